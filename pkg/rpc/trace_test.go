package rpc_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/rpc"
)

// The tracer provider is global, so this test runs alone.
func TestATraceGoesThroughEveryShapeOfCall(t *testing.T) {
	provider, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	t.Cleanup(func() {
		otel.SetTracerProvider(provider)
		otel.SetTextMapPropagator(propagator)
	})
	otel.SetTracerProvider(sdktrace.NewTracerProvider())
	otel.SetTextMapPropagator(propagation.TraceContext{})

	ctx, span := otel.Tracer("test").Start(t.Context(), "turn")
	defer span.End()
	want := span.SpanContext().TraceID()
	seen := make(chan trace.TraceID, 1) // each call sends one and is read before the next
	client := start(t, rpc.NewMemory(), "state", rpc.ServerConfig{}, service{fail: func(ctx context.Context) error {
		seen <- trace.SpanContextFromContext(ctx).TraceID()
		return nil
	}})
	for name, shape := range shapes {
		if err := shape(ctx, client); err != nil {
			t.Fatalf("%s call = %v", name, err)
		}
		if got := <-seen; got != want {
			t.Errorf("the handler of the %s call is in trace %v, want %v", name, got, want)
		}
	}
}
