package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

const (
	parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	state  = "vendor=a,other=b"
)

func TestATraceparentSurvivesARoundTrip(t *testing.T) {
	t.Parallel()
	ctx := telemetry.WithTraceparent(t.Context(), parent, state)
	if span := trace.SpanContextFromContext(ctx); !span.IsRemote() || !span.IsSampled() {
		t.Errorf("span context = %+v, want a remote, sampled one", span)
	}
	gotParent, gotState := telemetry.Traceparent(ctx)
	if gotParent != parent || gotState != state {
		t.Errorf("Traceparent = %q, %q, want %q, %q", gotParent, gotState, parent, state)
	}
}

func TestAContextWithoutASpanHasNoTraceparent(t *testing.T) {
	t.Parallel()
	if parent, state := telemetry.Traceparent(t.Context()); parent != "" || state != "" {
		t.Errorf("Traceparent = %q, %q, want none", parent, state)
	}
}

func TestAnInvalidTraceparentChangesNothing(t *testing.T) {
	t.Parallel()
	before := telemetry.WithTraceparent(t.Context(), parent, "")
	for _, bad := range []string{"", "nonsense", parent[:20], "00-00000000000000000000000000000000-b7ad6b7169203331-01", strings.ToUpper(parent)} {
		if after := telemetry.WithTraceparent(before, bad, state); after != before {
			t.Errorf("WithTraceparent(%q) changed the context", bad)
		}
	}
}

func TestAnInvalidTracestateIsDropped(t *testing.T) {
	t.Parallel()
	ctx := telemetry.WithTraceparent(t.Context(), parent, "no pair")
	if gotParent, gotState := telemetry.Traceparent(ctx); gotParent != parent || gotState != "" {
		t.Errorf("Traceparent = %q, %q, want %q and no state", gotParent, gotState, parent)
	}
}

func TestLogLinesCarryTheTraceOfTheirContext(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, "info", "json")
	if err != nil {
		t.Fatal(err)
	}
	ctx := telemetry.WithTraceparent(t.Context(), parent, "")
	log.With("service", "state").InfoContext(ctx, "committed")
	log.Info("no span")
	log.Debug("too quiet")

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("logged %d lines, want 2:\n%s", len(lines), out.String())
	}
	var with, without map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &with); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(lines[1]), &without); err != nil {
		t.Fatal(err)
	}
	if with["trace_id"] != parent[3:35] || with["span_id"] != parent[36:52] || with["service"] != "state" {
		t.Errorf("line = %v, want the ids of %s", with, parent)
	}
	if _, ok := without["trace_id"]; ok {
		t.Errorf("line = %v, want no trace_id", without)
	}
}

func TestABadSettingIsNamed(t *testing.T) {
	t.Parallel()
	good := telemetry.Config{ServiceName: "test", LogLevel: "info", LogFormat: "text"}
	tests := []struct {
		variable string
		change   func(*telemetry.Config)
	}{
		{"HOLDFAST_LOG_LEVEL", func(c *telemetry.Config) { c.LogLevel = "loud" }},
		{"HOLDFAST_LOG_FORMAT", func(c *telemetry.Config) { c.LogFormat = "xml" }},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", func(c *telemetry.Config) { c.Endpoint = "localhost:4317" }},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", func(c *telemetry.Config) { c.Endpoint = "http://" }},
	}
	for _, test := range tests {
		c := good
		test.change(&c)
		if _, err := telemetry.Setup(t.Context(), c, io.Discard); err == nil || !strings.Contains(err.Error(), test.variable) {
			t.Errorf("Setup(%+v) = %v, want an error that names %s", c, err, test.variable)
		}
	}
}

// The setup is global, so this test runs alone and covers everything.
func TestSetupMakesSpansThatPropagate(t *testing.T) {
	provider, meters, propagator := otel.GetTracerProvider(), otel.GetMeterProvider(), otel.GetTextMapPropagator()
	t.Cleanup(func() {
		otel.SetTracerProvider(provider)
		otel.SetMeterProvider(meters)
		otel.SetTextMapPropagator(propagator)
	})
	c := telemetry.Config{ServiceName: "test", LogLevel: "debug", LogFormat: "text"}
	setup := func(extra ...sdktrace.SpanProcessor) *telemetry.Telemetry {
		tel, err := telemetry.Setup(t.Context(), c, io.Discard, extra...)
		if err != nil {
			t.Fatal(err)
		}
		return tel
	}

	tel := setup()
	if _, span := otel.Tracer("test").Start(t.Context(), "unseen"); span.SpanContext().IsValid() {
		t.Errorf("without an endpoint a trace begins: %v", span.SpanContext())
	}
	if _, off := otel.GetTracerProvider().(noop.TracerProvider); !off {
		t.Errorf("without an endpoint the tracer provider is %T, want the one that does nothing", otel.GetTracerProvider())
	}
	ctx, span := otel.Tracer("test").Start(telemetry.WithTraceparent(t.Context(), parent, ""), "unseen")
	if got, _ := telemetry.Traceparent(ctx); got != parent || span.IsRecording() {
		t.Errorf("without an endpoint: traceparent = %q, recording = %v, want %q and no recording", got, span.IsRecording(), parent)
	}
	carrier := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	if want, _ := telemetry.Traceparent(ctx); carrier["traceparent"] != want || want == "" {
		t.Errorf("the global propagator wrote %q, want %q", carrier["traceparent"], want)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}

	c.Endpoint = "http://127.0.0.1:1" // no listener: neither Setup nor Shutdown waits for it
	if err := setup().Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown with an endpoint = %v", err)
	}

	c.Endpoint = ""
	recorder := tracetest.NewSpanRecorder()
	tel = setup(recorder)
	_, span = otel.Tracer("test").Start(telemetry.WithTraceparent(t.Context(), parent, ""), "seen")
	span.End()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tel.Shutdown(ended); err != nil {
		t.Errorf("Shutdown with an ended context = %v", err)
	}
	spans := recorder.Ended()
	if len(spans) != 1 || spans[0].SpanContext().TraceID().String() != parent[3:35] {
		t.Errorf("recorded %v, want one span in the trace of %s", spans, parent)
	}
}

func ExampleNewLogger() {
	if _, err := telemetry.NewLogger(io.Discard, "loud", "text"); err != nil {
		fmt.Println(err)
	}
	// Output: HOLDFAST_LOG_LEVEL is "loud": it must be debug, info, warn or error
}
