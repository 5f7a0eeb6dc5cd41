package remote

import (
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTheTraceGoesOnInARemoteAgent(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	got := ""
	client := traced{roundTrip(func(r *http.Request) (*http.Response, error) {
		got = r.Header.Get("Traceparent")
		return nil, http.ErrNotSupported
	})}
	r, err := http.NewRequestWithContext(telemetry.WithTraceparent(t.Context(), trace, ""), http.MethodGet, "http://other.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = client.RoundTrip(r) //nolint:bodyclose // there is no response
	if got != trace {
		t.Errorf("the request has the trace %q, want %q", got, trace)
	}
}
