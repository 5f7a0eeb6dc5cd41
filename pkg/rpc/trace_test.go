package rpc_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/interop/grpc_testing"

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

// Also alone, for the same reason.
func TestATracePassesThroughAProcessThatRecordsNoSpans(t *testing.T) {
	provider := otel.GetTracerProvider()
	t.Cleanup(func() { otel.SetTracerProvider(provider) })
	otel.SetTracerProvider(noop.NewTracerProvider())

	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
		TraceState: traceState(t, "vendor=a"),
	})
	for name, methods := range map[string][]string{"unary": nil, "piped": piped, "process": nil} {
		seen := make(chan trace.SpanContext, 1) // each call sends one and is read before the next
		var network rpc.Network = rpc.NewMemory()
		if name == "process" {
			network = rpc.NewProcess()
		}
		serve(t, network, "state", rpc.ServerConfig{}, service{fail: func(ctx context.Context) error {
			seen <- trace.SpanContextFromContext(ctx)
			return nil
		}})
		client := grpc_testing.NewTestServiceClient(dial(t, network, "state", rpc.ClientConfig{Piped: methods}))
		for shape, call := range shapes {
			for _, want := range []trace.SpanContext{parent, {}, parent} {
				if err := call(trace.ContextWithSpanContext(t.Context(), want), client); err != nil {
					t.Fatalf("%s call = %v", shape, err)
				}
				if got := <-seen; !got.Equal(want) {
					t.Errorf("%s: the handler of the %s call is in %v, want %v", name, shape, got, want)
				}
			}
		}
	}
}

func traceState(t *testing.T, text string) trace.TraceState {
	t.Helper()
	state, err := trace.ParseTraceState(text)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestACallThatIsNotTracedHasNoSpanAndIsInItsTraceNevertheless(t *testing.T) {
	provider, propagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	t.Cleanup(func() {
		otel.SetTracerProvider(provider)
		otel.SetTextMapPropagator(propagator)
	})
	spans := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	otel.SetTextMapPropagator(propagation.TraceContext{})

	ctx, span := otel.Tracer("test").Start(t.Context(), "turn")
	defer span.End()
	var seen trace.TraceID
	untraced := []string{grpc_testing.TestService_EmptyCall_FullMethodName}
	network := rpc.NewMemory()
	serve(t, network, "state", rpc.ServerConfig{Untraced: untraced}, service{fail: func(ctx context.Context) error {
		seen = trace.SpanContextFromContext(ctx).TraceID()
		return nil
	}})
	client := grpc_testing.NewTestServiceClient(dial(t, network, "state", rpc.ClientConfig{Untraced: untraced}))
	if _, err := client.EmptyCall(ctx, &grpc_testing.Empty{}); err != nil {
		t.Fatal(err)
	}
	if n := len(spans.Ended()); n != 0 || seen != span.SpanContext().TraceID() {
		t.Errorf("the call has %d spans, and its handler is in trace %v, want none in %v", n, seen, span.SpanContext().TraceID())
	}
	if _, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	if n := len(spans.Ended()); n == 0 {
		t.Error("another call has no span")
	}
}
