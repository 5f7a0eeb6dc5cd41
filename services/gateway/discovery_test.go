package gateway_test

import (
	"net/http"
	"slices"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	"github.com/holdfast-run/holdfast/services/gateway"
)

func TestReflectionNamesTheServicesToCallersWithAKey(t *testing.T) {
	t.Parallel()
	h, acme, _ := openWithKeys(t)
	dev := open(t, nil)
	list := func(url, key string) ([]protoreflect.FullName, *grpcreflect.ClientStream) {
		client := http2(t)
		client.Transport = keyed{client.Transport, key}
		stream := grpcreflect.NewClient(client, url, connect.WithGRPC()).NewStream(t.Context())
		names, err := stream.ListServices()
		if key == "" && url == h.url {
			if connect.CodeOf(err) != connect.CodeUnauthenticated {
				t.Errorf("without a key: got %v, %v", names, err)
			}
			return nil, stream
		}
		if err != nil {
			t.Fatal(err)
		}
		return names, stream
	}
	list(h.url, "")
	for url, key := range map[string]string{h.url: acme, dev.url: ""} {
		names, stream := list(url, key)
		if !slices.Contains(names, agentv1connect.AgentServiceName) || !slices.Contains(names, grpchealth.HealthV1ServiceName) {
			t.Errorf("got %v", names)
		}
		files, err := stream.FileContainingSymbol(agentv1connect.AgentServiceName)
		if err != nil || len(files) == 0 {
			t.Errorf("descriptor of the service: got %d files, %v", len(files), err)
		}
		if _, err := stream.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheHealthOverGRPCIsThatOfReadyz(t *testing.T) {
	t.Parallel()
	h, _, _ := openWithKeys(t)
	broken := open(t, func(c *gateway.Config) { c.StreamAddress = "nobody" })
	check := func(url, service string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
		conn, err := grpc.NewClient("passthrough:///"+url[len("http://"):], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		answer, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		return answer.GetStatus(), err
	}
	for _, service := range []string{"", agentv1connect.AgentServiceName} {
		if got, err := check(h.url, service); err != nil || got != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("%q: got %v, %v", service, got, err)
		}
		if got, err := check(broken.url, service); err != nil || got != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("%q without the stream service: got %v, %v", service, got, err)
		}
	}
	if got := broken.request(t, http.MethodGet, "/readyz", "").StatusCode; got != http.StatusServiceUnavailable {
		t.Errorf("/readyz: got %d", got)
	}
	if _, err := check(h.url, "nobody"); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: got %v", err)
	}
}
