package telemetry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// Setup is global, so this test runs alone.
func TestSpansAreSentOverHTTPWithTheirHeaders(t *testing.T) {
	provider, meters, propagator := otel.GetTracerProvider(), otel.GetMeterProvider(), otel.GetTextMapPropagator()
	t.Cleanup(func() {
		otel.SetTracerProvider(provider)
		otel.SetMeterProvider(meters)
		otel.SetTextMapPropagator(propagator)
	})
	var mu sync.Mutex
	received := map[string]string{} // headers by path
	var names []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		received[r.URL.Path] = r.Header.Get("Authorization")
		var spans collectorv1.ExportTraceServiceRequest
		if proto.Unmarshal(body, &spans) != nil {
			return
		}
		for _, resource := range spans.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					names = append(names, s.GetName())
				}
			}
		}
	}))
	defer server.Close()
	tel, err := telemetry.Setup(t.Context(), telemetry.Config{
		ServiceName: "test", LogLevel: "info", LogFormat: "text", Endpoint: server.URL + "/api/public/otel",
		Protocol: "http/protobuf", Headers: "Authorization=Basic%20a2V5,x-other=1", Measures: "none",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, span := otel.Tracer("test").Start(t.Context(), "a span")
	span.End()
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if received["/api/public/otel/v1/traces"] != "Basic a2V5" || len(received) != 1 || len(names) != 1 || names[0] != "a span" {
		t.Errorf("got the requests %v and the spans %q, want one span at v1/traces with its header", received, names)
	}
}

func TestAWrongProtocolOrHeaderNamesItsVariable(t *testing.T) {
	for name, c := range map[string]telemetry.Config{
		"OTEL_EXPORTER_OTLP_PROTOCOL is": {Protocol: "http/json"},
		"OTEL_EXPORTER_OTLP_HEADERS":     {Headers: "Authorization"},
	} {
		c.ServiceName, c.LogLevel, c.LogFormat, c.Endpoint = "test", "info", "text", "http://127.0.0.1:1"
		if _, err := telemetry.Setup(t.Context(), c, io.Discard); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%+v: got %v, want an error that begins with %s", c, err, name)
		}
	}
}
