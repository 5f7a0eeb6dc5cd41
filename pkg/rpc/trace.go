package rpc

import (
	"context"
	"slices"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
)

// recordsSpans reports whether calls have spans: not with the no-op tracer provider. OpenTelemetry's handlers
// cost as much as the rest of a small unary call, even if no span is recorded.
func recordsSpans() bool {
	_, off := otel.GetTracerProvider().(noop.TracerProvider)
	return !off
}

// traced returns a filter for calls with a span.
func traced(but []string) otelgrpc.Filter {
	return func(info *stats.RPCTagInfo) bool { return !slices.Contains(but, info.FullMethodName) }
}

const (
	traceparentHeader = "traceparent"
	tracestateHeader  = "tracestate"
)

// sendTrace adds ctx's trace, if any, to a call's metadata.
func sendTrace(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if state := carrier[tracestateHeader]; state != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, tracestateHeader, state)
	}
	return metadata.AppendToOutgoingContext(ctx, traceparentHeader, carrier[traceparentHeader])
}

// receiveTrace adopts the trace of a call's metadata.
func receiveTrace(ctx context.Context) context.Context {
	parent := metadata.ValueFromIncomingContext(ctx, traceparentHeader)
	if len(parent) == 0 {
		return ctx
	}
	carrier := propagation.MapCarrier{traceparentHeader: parent[0]}
	if state := metadata.ValueFromIncomingContext(ctx, tracestateHeader); len(state) > 0 {
		carrier[tracestateHeader] = state[0]
	}
	return propagation.TraceContext{}.Extract(ctx, carrier)
}
