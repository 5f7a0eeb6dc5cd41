package telemetry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// Setup is global, so this test runs alone.
func TestSetupServesMetricsOnAListenerOfTheirOwnUntilShutdown(t *testing.T) {
	provider, meters, propagator := otel.GetTracerProvider(), otel.GetMeterProvider(), otel.GetTextMapPropagator()
	t.Cleanup(func() {
		otel.SetTracerProvider(provider)
		otel.SetMeterProvider(meters)
		otel.SetTextMapPropagator(propagator)
	})
	c := telemetry.Config{ServiceName: "test", LogLevel: "info", LogFormat: "text", Listen: "127.0.0.1:0"}
	tel, err := telemetry.Setup(t.Context(), c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	counter, err := tel.Meter("holdfast.test").Int64Counter("holdfast.test.things")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)

	url := "http://" + tel.MetricsAddress()
	if status, body := get(t, url+"/metrics"); status != http.StatusOK || !strings.Contains(body, "holdfast_test_things_total 3\n") {
		t.Errorf("GET /metrics = %d\n%s\nwant 200 with the counter", status, body)
	}
	if status, _ := get(t, url+"/"); status != http.StatusNotFound {
		t.Errorf("GET / = %d, want 404", status)
	}

	c.Listen = tel.MetricsAddress()
	if _, err := telemetry.Setup(t.Context(), c, io.Discard); err == nil || !strings.Contains(err.Error(), "HOLDFAST_METRICS_LISTEN") {
		t.Errorf("Setup on a taken address = %v, want an error that names HOLDFAST_METRICS_LISTEN", err)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if response, err := http.Get(url + "/metrics"); err == nil {
		response.Body.Close()
		t.Error("the process has ended its telemetry, but /metrics still answers")
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestWithoutAnEndpointAndAListenerNothingIsMeasured(t *testing.T) {
	t.Parallel()
	m, err := telemetry.NewMetrics(t.Context(), telemetry.Config{ServiceName: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, off := m.Meter("test").(noop.Meter); !off {
		t.Errorf("the meter is %T, want the one that does nothing", m.Meter("test"))
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("GET /metrics = %d, want 404", w.Code)
	}
	if err := m.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
}
