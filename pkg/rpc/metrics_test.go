package rpc_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-run/holdfast/pkg/rpc"
)

func TestAServerCountsItsErrorsByReason(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	server, err := rpc.NewServer(rpc.ServerConfig{
		Security: rpc.Security{Token: "0123456789abcdef0123456789abcdef"},
		Meter:    sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"),
	})
	if err != nil {
		t.Fatal(err)
	}
	desc := grpc.ServiceDesc{ServiceName: "test.Refused", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Call", Handler: func(_ any, ctx context.Context, _ func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
			return i(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/test.Refused/Call"}, func(context.Context, any) (any, error) { return nil, nil })
		},
	}}}
	server.Server.RegisterService(&desc, struct{}{})
	network := rpc.NewMemory()
	listener, err := network.Listen(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := rpc.Dial(network, "test", rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.Invoke(t.Context(), "/test.Refused/Call", &grpc_health_v1.HealthCheckRequest{}, &grpc_health_v1.HealthCheckResponse{}); err == nil {
		t.Fatal("a call without a token is admitted")
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	points := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints
	want := attribute.NewSet(attribute.String("rpc.method", "test.Refused/Call"), attribute.String("reason", "BAD_TOKEN"))
	if len(points) != 1 || points[0].Value != 1 || !points[0].Attributes.Equals(&want) {
		t.Errorf("counted %+v, want one BAD_TOKEN", points)
	}
}
