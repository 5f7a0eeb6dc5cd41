package stream_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/stream"
)

func TestMetricsTellWhatWasAppended(t *testing.T) {
	t.Parallel()
	metrics, err := telemetry.NewMetrics(t.Context(), telemetry.Config{ServiceName: "test", Listen: "none"})
	if err != nil {
		t.Fatal(err)
	}
	w := startWith(t, onMemory(), stream.Peers{Meter: metrics.Meter("holdfast.stream")}).writer(refOf("s"))
	for _, delta := range []string{"Hello ", "world"} {
		if err := w.append(t.Context(), delta); err != nil {
			t.Fatal(err)
		}
	}
	w.epoch = 0
	if err := w.append(t.Context(), "refused"); err == nil {
		t.Fatal("an append without an epoch is stored")
	}
	recorded := httptest.NewRecorder()
	metrics.Handler().ServeHTTP(recorded, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`holdfast_stream_chunks_total 2`,
		`holdfast_stream_bytes_total `,
		`holdfast_stream_append_time_seconds_count{outcome="stored"} 2`,
	} {
		if !strings.Contains(recorded.Body.String(), "\n"+line) {
			t.Errorf("no line begins with %s in:\n%s", line, recorded.Body)
		}
	}
}
