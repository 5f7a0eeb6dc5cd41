package state_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state"
)

func TestMetricsTellWhatRanAndWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := telemetry.NewMetrics(t.Context(), telemetry.Config{ServiceName: "test", Listen: "none"})
		must(t, err)
		h := runWith(t, defaults(t, "HOLDFAST_STATE_STORE=memory"), state.Peers{Meter: metrics.Meter("holdfast.state")})
		defer h.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		claims := h.executor(ctx, "e1")
		synctest.Wait()
		h.suspend(claims, "first", time.Time{})
		h.start("second")
		<-claims
		time.Sleep(time.Minute) // fake time: the executor is silent and loses the run
		expect(t, metrics,
			`holdfast_state_runs_ended_total{agent_type="support",outcome="suspended_client_tool"} 1`,
			`holdfast_state_claims_total{agent_type="support"} 2`,
			`holdfast_state_claim_wait_seconds_count{agent_type="support"} 2`,
			`holdfast_state_runs_requeued_total{reason="executor_lost"} 1`,
			`holdfast_state_runs_queued 1`,
			`holdfast_state_runs_queued_age_seconds 60`,
			`holdfast_state_sessions_suspended{reason="suspended_client_tool"} 1`,
			`holdfast_state_sessions_suspended{reason="suspended_step_partial"} 0`,
			`holdfast_state_sessions_suspended_age_seconds{reason="suspended_client_tool"} 60`,
			`holdfast_state_batch_size_count`,
		)
	})
}

func TestMetricsTellWhichQuotaRefusesRequests(t *testing.T) {
	t.Parallel()
	quotas := filepath.Join(t.TempDir(), "quotas.yaml")
	must(t, os.WriteFile(quotas, []byte("tenant: {startsPerSecond: 1, burst: 1}\n"), 0o600))
	synctest.Test(t, func(t *testing.T) { // both starts are in the same second
		metrics, err := telemetry.NewMetrics(t.Context(), telemetry.Config{ServiceName: "test", Listen: "none"})
		must(t, err)
		h := runWith(t, defaults(t, "HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_QUOTAS="+quotas), state.Peers{Meter: metrics.Meter("holdfast.state")})
		defer h.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h.executor(ctx, "e1")
		synctest.Wait()
		h.start("first")
		_, err = h.runs.StartRun(ctx, &statev1.StartRunRequest{Tenant: "acme", SessionId: "second", AgentType: "support", Messages: hello()})
		if fault.ReasonOf(err) != "QUOTA_STARTS" {
			t.Fatalf("got %v, want QUOTA_STARTS", err)
		}
		expect(t, metrics, `holdfast_state_quota_refused_total{limit="tenant.startsPerSecond"} 1`)
	})
}

func hello() []*eventv1.Message {
	return []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "hi"}}}}}}
}

// expect reads the metrics and looks for the beginnings of lines.
func expect(t *testing.T, m *telemetry.Metrics, lines ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range lines {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("no line begins with %s in:\n%s", line, w.Body)
		}
	}
}
