package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
)

type (
	empty    = grpc_testing.Empty
	request  = connect.Request[empty]
	response = connect.Response[empty]
)

// connectServer serves every shape of call over Connect. Each answers with one message if it can, and then with
// fail's error.
func connectServer(t *testing.T, log *logbook, fail func() error) *httptest.Server {
	t.Helper()
	option := connect.WithInterceptors(rpc.ConnectInterceptor(log.logger()))
	mux := http.NewServeMux()
	mux.Handle("/unary", connect.NewUnaryHandler("/unary", func(context.Context, *request) (*response, error) {
		return connect.NewResponse(&empty{}), fail()
	}, option))
	mux.Handle("/server", connect.NewServerStreamHandler("/server", func(_ context.Context, _ *request, s *connect.ServerStream[empty]) error {
		return errors.Join(s.Send(&empty{}), fail())
	}, option))
	mux.Handle("/client", connect.NewClientStreamHandler("/client", func(context.Context, *connect.ClientStream[empty]) (*response, error) {
		return connect.NewResponse(&empty{}), fail()
	}, option))
	mux.Handle("/both", connect.NewBidiStreamHandler("/both", func(_ context.Context, s *connect.BidiStream[empty, empty]) error {
		return errors.Join(s.Send(&empty{}), fail())
	}, option))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true // required for bidirectional calls
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

var connectShapes = map[string]func(context.Context, func(path string) *connect.Client[empty, empty]) error{
	"unary": func(ctx context.Context, client func(string) *connect.Client[empty, empty]) error {
		_, err := client("/unary").CallUnary(ctx, connect.NewRequest(&empty{}))
		return err
	},
	"server stream": func(ctx context.Context, client func(string) *connect.Client[empty, empty]) error {
		s, err := client("/server").CallServerStream(ctx, connect.NewRequest(&empty{}))
		if err != nil {
			return err
		}
		defer s.Close()
		for s.Receive() {
		}
		return s.Err()
	},
	"client stream": func(ctx context.Context, client func(string) *connect.Client[empty, empty]) error {
		_, err := client("/client").CallClientStream(ctx).CloseAndReceive()
		return err
	},
	"both ways": func(ctx context.Context, client func(string) *connect.Client[empty, empty]) error {
		s := client("/both").CallBidiStream(ctx)
		defer s.CloseResponse()
		if err := s.Send(&empty{}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return errors.Join(s.CloseRequest(), drain(s.Receive))
	},
}

var protocols = map[string]connect.ClientOption{
	"connect": connect.WithProtoJSON(),
	"grpc":    connect.WithGRPC(),
	"grpcweb": connect.WithGRPCWeb(),
}

func onEachConnectShape(t *testing.T, log *logbook, fail func() error, test func(t *testing.T, err error)) {
	t.Helper()
	server := connectServer(t, log, fail)
	for protocol, option := range protocols {
		client := func(path string) *connect.Client[empty, empty] {
			return connect.NewClient[empty, empty](server.Client(), server.URL+path, option)
		}
		for name, shape := range connectShapes {
			t.Run(protocol+" "+name, func(t *testing.T) {
				test(t, rpc.FromConnect(shape(t.Context(), client)))
			})
		}
	}
}

func TestAFaultKeepsItsKindOverConnect(t *testing.T) {
	t.Parallel()
	want := fault.New(fault.TooLarge, "STATE_SIZE_EXCEEDED", "custom state of s1: 2 MiB").With("limit", "1 MiB")
	fail := func() error { return fmt.Errorf("commit step: %w", want) }
	var log logbook
	onEachConnectShape(t, &log, fail, func(t *testing.T, err error) {
		if got, ok := fault.From(err); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("call = %#v, want %#v", err, want)
		}
	})
	if log.String() != "" {
		t.Errorf("logged %s", log.String())
	}
}

func TestNothingLeaksOverConnect(t *testing.T) {
	t.Parallel()
	const secret = "password=hunter2"
	ways := map[string]func() error{
		"error": func() error { return errors.New(secret) },
		"panic": func() error { panic(secret) },
	}
	for name, fail := range ways {
		var log logbook
		onEachConnectShape(t, &log, fail, func(t *testing.T, err error) {
			if !errors.Is(err, fault.Internal) || fault.ReasonOf(err) != "INTERNAL" || strings.Contains(err.Error(), secret) {
				t.Errorf("call = %v, want Internal (INTERNAL) and nothing of the %s", err, name)
			}
		})
		if got, want := strings.Count(log.String(), secret), len(protocols)*len(connectShapes); got != want {
			t.Errorf("%s was logged %d times, want %d:\n%s", name, got, want, log.String())
		}
	}
}

func TestGoodCallsOverConnectEndWell(t *testing.T) {
	t.Parallel()
	var log logbook
	onEachConnectShape(t, &log, func() error { return nil }, func(t *testing.T, err error) {
		if err != nil {
			t.Errorf("call = %v, want nil", err)
		}
	})
}

func TestTheEndOfTheCallersContextIsItsOwnOverConnect(t *testing.T) {
	t.Parallel()
	server := connectServer(t, &logbook{}, func() error { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	client := connect.NewClient[empty, empty](server.Client(), server.URL+"/unary")
	_, err := client.CallUnary(ctx, connect.NewRequest(&empty{}))
	if err := rpc.FromConnect(err); !errors.Is(err, context.Canceled) {
		t.Errorf("call = %v, want %v", err, context.Canceled)
	}
}

func TestAConnectionThatBreaksIsNoEndOfAStream(t *testing.T) {
	t.Parallel()
	broken := connect.NewError(connect.CodeUnavailable, fmt.Errorf("post: %w", io.EOF))
	if err := rpc.FromConnect(broken); !errors.Is(err, fault.Unavailable) {
		t.Errorf("FromConnect(%v) = %v, want Unavailable", broken, err)
	}
}
