package httpapi_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

func serverOf(log *bytes.Buffer, handler httpapi.Handler) *httpapi.Server {
	return &httpapi.Server{
		Log: slog.New(slog.NewTextHandler(log, nil)), Now: time.Now,
		Routes: []httpapi.Route{{Method: http.MethodGet, Pattern: "/things/{id}", Handler: handler}},
	}
}

func get(t *testing.T, s *httpapi.Server, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/things/a%2Fb", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func TestErrorsAndPanicsSayNothingInternal(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]httpapi.Handler{
		"an error": func(http.ResponseWriter, *http.Request, string) error { return errors.New("secret of the database") },
		"a panic":  func(http.ResponseWriter, *http.Request, string) error { panic("secret of the database") },
		"an internal fault": func(http.ResponseWriter, *http.Request, string) error {
			return fault.New(fault.Internal, "INTERNAL", "secret of the database")
		},
	} {
		var log bytes.Buffer
		w := get(t, serverOf(&log, handler))
		if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), `"code":"INTERNAL"`) {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
		if !strings.Contains(log.String(), "secret of the database") {
			t.Errorf("%s: not logged: %s", name, &log)
		}
	}
}

func TestFaultsTellTheirReasonAndDetail(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := get(t, serverOf(&log, func(http.ResponseWriter, *http.Request, string) error {
		return fault.New(fault.Conflict, "SESSION_BUSY", "run %q is at work", "r1")
	}))
	want := `{"error":"This conversation is still answering the last message.","code":"SESSION_BUSY","detail":"run \"r1\" is at work","retryable":false}` + "\n"
	if w.Code != 409 || w.Body.String() != want || log.Len() != 0 {
		t.Errorf("got %d %s, log %s", w.Code, w.Body, &log)
	}
}

// The tracer provider is global, so this test runs alone.
func TestARequestHasASpanInTheCallersTrace(t *testing.T) { //nolint:paralleltest // see above
	spans := tracetest.NewSpanRecorder()
	former := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	t.Cleanup(func() { otel.SetTracerProvider(former) })
	var inside trace.SpanContext
	var id string
	var log bytes.Buffer
	get(t, serverOf(&log, func(_ http.ResponseWriter, r *http.Request, _ string) error {
		inside, id = trace.SpanContextFromContext(r.Context()), r.PathValue("id")
		return fault.New(fault.Unavailable, "AWAY", "")
	}), "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("got %d spans, want 1", len(ended))
	}
	span := ended[0]
	if got := span.Name(); got != "GET /things/{id}" {
		t.Errorf("name: got %q", got)
	}
	if got := span.SpanContext().TraceID().String(); got != "0af7651916cd43dd8448eb211c80319c" || inside.SpanID() != span.SpanContext().SpanID() {
		t.Errorf("trace: got %s", got)
	}
	if id != "a/b" {
		t.Errorf("id: got %q, want a/b", id)
	}
	status := int64(0)
	for _, a := range span.Attributes() {
		if a.Key == "http.response.status_code" {
			status = a.Value.AsInt64()
		}
	}
	if status != 503 {
		t.Errorf("status: got %d, want 503", status)
	}
}
