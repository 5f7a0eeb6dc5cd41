package rpc_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// guarded is a service with roles in its contract: Common for gateways and operators, as the service says, and Special
// for executors. Bare has none.
const guarded = "holdfast.roletest.Guarded"

// registerGuarded registers the contract of guarded, and of the options.
var registerGuarded = sync.OnceValue(func() error {
	extension := func(name, extendee string) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{
			Name: &name, Extendee: &extendee, Number: proto.Int32(50702), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(),
		}
	}
	options, err := register(&descriptorpb.FileDescriptorProto{
		Name: proto.String("roletest/options.proto"), Package: proto.String("holdfast.event.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/descriptor.proto"},
		Extension: []*descriptorpb.FieldDescriptorProto{
			extension("roles", ".google.protobuf.MethodOptions"), extension("service_roles", ".google.protobuf.ServiceOptions"),
		},
	})
	if err != nil {
		return err
	}
	name := func(on proto.Message, at int, roles ...string) error {
		option := dynamicpb.NewExtensionType(options.Extensions().Get(at))
		list := on.ProtoReflect().Mutable(option.TypeDescriptor()).List()
		for _, role := range roles {
			list.Append(protoreflect.ValueOfString(role))
		}
		_, known := protoregistry.GlobalTypes.FindExtensionByName(option.TypeDescriptor().FullName())
		if known == nil {
			return nil
		}
		return protoregistry.GlobalTypes.RegisterExtension(option)
	}
	ofService, ofMethod := &descriptorpb.ServiceOptions{}, &descriptorpb.MethodOptions{}
	if err := errors.Join(name(ofService, 1, "gateway", "operator"), name(ofMethod, 0, "executor")); err != nil {
		return err
	}
	method := func(name string, options *descriptorpb.MethodOptions) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: &name, InputType: proto.String(".holdfast.roletest.Nothing"), OutputType: proto.String(".holdfast.roletest.Nothing"), Options: options}
	}
	_, err = register(&descriptorpb.FileDescriptorProto{
		Name: proto.String("roletest/guarded.proto"), Package: proto.String("holdfast.roletest"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Nothing")}},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name: proto.String("Guarded"), Options: ofService,
			Method: []*descriptorpb.MethodDescriptorProto{method("Common", nil), method("Special", ofMethod)},
		}},
	})
	return err
})

func register(file *descriptorpb.FileDescriptorProto) (protoreflect.FileDescriptor, error) {
	made, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		return nil, err
	}
	return made, protoregistry.GlobalFiles.RegisterFile(made)
}

// guardedMethods are the roles beside any that may call each method. The contract does not have Unlisted.
var guardedMethods = map[string][]rpc.Role{
	"Common": {rpc.RoleGateway, rpc.RoleOperator}, "Special": {rpc.RoleExecutor}, "Unlisted": nil,
}

// serveGuarded serves guarded. Its handlers answer with the caller's role.
func serveGuarded(t *testing.T, network rpc.Network, c rpc.ServerConfig) string {
	t.Helper()
	if err := registerGuarded(); err != nil {
		t.Fatal(err)
	}
	c.Log = slog.New(slog.DiscardHandler)
	server, err := rpc.NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	desc := &grpc.ServiceDesc{ServiceName: guarded, HandlerType: (*any)(nil)}
	for name := range guardedMethods {
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
			var r grpc_testing.SimpleRequest
			if err := decode(&r); err != nil {
				return nil, err
			}
			answer := func(ctx context.Context, _ any) (any, error) {
				return &grpc_testing.SimpleResponse{Username: string(rpc.RoleOf(ctx))}, nil
			}
			if next == nil {
				return answer(ctx, &r)
			}
			return next(ctx, &r, &grpc.UnaryServerInfo{FullMethod: "/" + guarded + "/" + name}, answer)
		}})
	}
	server.RegisterService(desc, nil)
	listener, err := network.Listen(t.Context(), "state")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, listener, 0) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func fullName(method string) string { return "/" + guarded + "/" + method }

// callerOf calls a method, and returns the role that its handler has seen.
func callerOf(ctx context.Context, conn *grpc.ClientConn, method string) (string, error) {
	var answer grpc_testing.SimpleResponse
	err := conn.Invoke(ctx, fullName(method), &grpc_testing.SimpleRequest{}, &answer)
	return answer.GetUsername(), err
}

// writeTokens writes a file in which each role's token is its name.
func writeTokens(t *testing.T, file string, roles ...rpc.Role) {
	t.Helper()
	text := "# the tokens of a test\n\n"
	for _, role := range roles {
		text += fmt.Sprintf("%s  %x # its name\n", role, sha256.Sum256([]byte(role)))
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var everyRole = []rpc.Role{rpc.RoleGateway, rpc.RoleExecutor, rpc.RoleOperator, rpc.RoleAny}

func mayCall(role rpc.Role, method string) bool {
	for _, allowed := range guardedMethods[method] {
		if role == allowed {
			return true
		}
	}
	return role == rpc.RoleAny
}

func expectRole(t *testing.T, conn *grpc.ClientConn, role rpc.Role, how string) {
	t.Helper()
	for method := range guardedMethods {
		seen, err := callerOf(t.Context(), conn, method)
		switch {
		case mayCall(role, method) && (err != nil || seen != string(role)):
			t.Errorf("%s: %s as %s = %q, %v", how, method, role, seen, err)
		case !mayCall(role, method) && (fault.KindOf(err) != fault.Denied || fault.ReasonOf(err) != "ROLE_REFUSED"):
			t.Errorf("%s: %s as %s = %v, want it refused", how, method, role, err)
		}
	}
}

func TestATokenCallsTheMethodsOfItsRole(t *testing.T) {
	t.Parallel()
	network, file := rpc.NewMemory(), filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, file, everyRole...)
	serveGuarded(t, network, rpc.ServerConfig{Security: rpc.Security{Token: "shared", TokensFile: file}})
	var names []string
	for method := range guardedMethods {
		names = append(names, fullName(method))
	}
	for how, piped := range map[string][]string{"unary": nil, "piped": names} {
		for _, role := range everyRole {
			conn := dial(t, network, "state", rpc.ClientConfig{Security: rpc.Security{Token: string(role)}, Piped: piped})
			expectRole(t, conn, role, how)
		}
		for _, token := range []string{"shared", "", "stranger"} { // the server's own token is not one of the file
			conn := dial(t, network, "state", rpc.ClientConfig{Security: rpc.Security{Token: token}, Piped: piped})
			if _, err := callerOf(t.Context(), conn, "Common"); fault.ReasonOf(err) != "BAD_TOKEN" {
				t.Errorf("%s call with the token %q = %v, want BAD_TOKEN", how, token, err)
			}
		}
	}
}

func TestTheSharedTokenCallsEverything(t *testing.T) {
	t.Parallel()
	network := rpc.NewMemory()
	serveGuarded(t, network, rpc.ServerConfig{Security: rpc.Security{Token: "shared"}})
	expectRole(t, dial(t, network, "state", rpc.ClientConfig{Security: rpc.Security{Token: "shared"}}), rpc.RoleAny, "shared")
}

func TestCallersOfTheSameProcessCallEverything(t *testing.T) {
	t.Parallel()
	network, file := rpc.NewProcess(), filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, file, rpc.RoleGateway)
	serveGuarded(t, network, rpc.ServerConfig{Security: rpc.Security{TokensFile: file}})
	expectRole(t, dial(t, network, "state", rpc.ClientConfig{}), rpc.RoleAny, "in process")
}

func TestARemovedTokenStopsToWorkOnOpenPipesAndStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network, file := rpc.NewMemory(), filepath.Join(t.TempDir(), "tokens")
		writeTokens(t, file, rpc.RoleAny, rpc.RoleGateway)
		security := rpc.ServerConfig{Security: rpc.Security{TokensFile: file}, Log: slog.New(slog.DiscardHandler)}
		serveGuarded(t, network, security)
		address := serve(t, network, "streams", security, chatty{})
		client := rpc.ClientConfig{Security: rpc.Security{Token: "any"}, Piped: []string{fullName("Common")}}
		piped := dial(t, network, "state", client)
		if _, err := callerOf(t.Context(), piped, "Common"); err != nil {
			t.Fatal(err)
		}
		stream, err := grpc_testing.NewTestServiceClient(dial(t, network, address, client)).FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		chat := func() error {
			if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil {
				return err
			}
			_, err := stream.Recv()
			return err
		}
		if err := chat(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		writeTokens(t, file, rpc.RoleGateway)
		if err := chat(); fault.ReasonOf(err) != "BAD_TOKEN" {
			t.Errorf("the open stream = %v, want BAD_TOKEN", err)
		}
		if _, err := callerOf(t.Context(), piped, "Common"); fault.ReasonOf(err) != "BAD_TOKEN" {
			t.Errorf("the open pipe = %v, want BAD_TOKEN", err)
		}
		time.Sleep(time.Hour)
		if err := os.WriteFile(file, []byte("executor half-a-line\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		other := dial(t, network, "state", rpc.ClientConfig{Security: rpc.Security{Token: "gateway"}})
		if _, err := callerOf(t.Context(), other, "Common"); err != nil {
			t.Errorf("with a broken file = %v, want the last good one", err)
		}
	})
}

// chatty answers each message of a stream.
type chatty struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (chatty) FullDuplexCall(stream grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

func TestAFileOfTokensWithAMistakeIsRefused(t *testing.T) {
	t.Parallel()
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("x")))
	for name, text := range map[string]string{
		"an unknown role": "root " + sum, "no digest": "gateway", "a short digest": "gateway " + sum[2:], "no hex": "gateway zz" + sum[2:],
		"a token twice": "gateway " + sum + "\nexecutor " + sum, "no token": "# none\n", "three fields": "gateway " + sum + " x",
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := rpc.NewServer(rpc.ServerConfig{Security: rpc.Security{TokensFile: file}}); fault.ReasonOf(err) != "TOKENS_INVALID" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := rpc.NewServer(rpc.ServerConfig{Security: rpc.Security{TokensFile: "nowhere"}}); fault.ReasonOf(err) != "TOKENS_INVALID" {
		t.Errorf("no file: got %v", err)
	}
}

func TestACertificateNamesARole(t *testing.T) {
	t.Parallel()
	ours, file := newAuthority(t), filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, file, everyRole...)
	withTokens := ours.identity("state", "state")
	withTokens.TokensFile = file
	for _, test := range []struct {
		name   string
		server rpc.Security
		id     string
		token  string
		role   rpc.Role
		reason string
	}{
		{"a role", withoutTokens(withTokens), "spiffe://example.org/holdfast/executor", "", rpc.RoleExecutor, ""},
		{"no role", withoutTokens(withTokens), "", "", rpc.RoleAny, ""},
		{"another SPIFFE ID", withoutTokens(withTokens), "spiffe://example.org/ns/a/sa/executor", "", rpc.RoleAny, ""},
		{"another scheme", withoutTokens(withTokens), "https://example.org/holdfast/executor", "", rpc.RoleAny, ""},
		{"an unknown role", withoutTokens(withTokens), "spiffe://example.org/holdfast/root", "", "", "ROLE_UNKNOWN"},
		{"the role of its token", withTokens, "spiffe://example.org/holdfast/executor", "executor", rpc.RoleExecutor, ""},
		{"a role, with the token of any", withTokens, "spiffe://example.org/holdfast/executor", "any", rpc.RoleExecutor, ""},
		{"no role, with a token of one", withTokens, "", "gateway", rpc.RoleGateway, ""},
		{"another role than its token", withTokens, "spiffe://example.org/holdfast/executor", "gateway", "", "ROLE_REFUSED"},
		{"a role, without a token", withTokens, "spiffe://example.org/holdfast/executor", "", "", "BAD_TOKEN"},
	} {
		network := rpc.NewMemory()
		serveGuarded(t, network, rpc.ServerConfig{Security: test.server})
		conn := dial(t, network, "state", rpc.ClientConfig{Security: withToken(ours.identityWith("client", test.id), test.token)})
		if test.reason == "" {
			expectRole(t, conn, test.role, test.name)
		} else if _, err := callerOf(t.Context(), conn, "Common"); fault.ReasonOf(err) != test.reason {
			t.Errorf("%s: got %v, want %s", test.name, err, test.reason)
		}
	}
}

func withoutTokens(s rpc.Security) rpc.Security {
	s.TokensFile = ""
	return s
}

func TestCertificatesRotateUnderOpenConnections(t *testing.T) {
	t.Parallel()
	old, next := newAuthority(t), newAuthority(t)
	server, client := old.identity("state", "state"), old.identity("gateway")
	network := rpc.NewMemory()
	address := serve(t, network, "state", rpc.ServerConfig{Security: server, Log: slog.New(slog.DiscardHandler)}, service{})
	connect := func(s rpc.Security) *grpc.ClientConn { return dial(t, network, address, rpc.ClientConfig{Security: s}) }
	call := func(conn *grpc.ClientConn) error { return firstAnswer(t, grpc_testing.NewTestServiceClient(conn)) }
	open, late, stranger := connect(client), connect(client), connect(old.identity("former"))
	if err := call(open); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[rpc.Security]rpc.Security{server: next.identity("state", "state"), client: next.identity("gateway")} {
		for file, replacement := range map[string]string{to.CertFile: from.CertFile, to.KeyFile: from.KeyFile, to.CAFile: from.CAFile} {
			text, err := os.ReadFile(replacement)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			later := time.Now().Add(time.Minute) // as coarse clocks of file systems would not show
			if err := os.Chtimes(file, later, later); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := call(open); err != nil {
		t.Errorf("the open connection = %v, want it to go on", err)
	}
	if err := call(late); err != nil {
		t.Errorf("a client made before and connected after the rotation = %v", err)
	}
	if err := call(connect(client)); err != nil {
		t.Errorf("a new client = %v", err)
	}
	stranger.ResetConnectBackoff()
	if err := call(stranger); !errors.Is(err, fault.Unavailable) {
		t.Errorf("a client with the former certificate = %v, want it refused", err)
	}
}
