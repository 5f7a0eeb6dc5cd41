package worker_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// expectMetrics reads the metrics and looks for the beginnings of lines.
func expectMetrics(t *testing.T, m *telemetry.Metrics, lines ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range lines {
		if !strings.Contains(w.Body.String(), "\n"+line) {
			t.Errorf("no line begins with %s in:\n%s", line, w.Body)
		}
	}
}

func TestMetricsTellWhatModelsToolsAndStepsTook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := telemetry.NewMetrics(t.Context(), telemetry.Config{ServiceName: "test", Listen: "none"})
		must(t, err)
		reply := callsOnce("done", "work", "{}")
		var tried []model.Request
		h := newSystem(t)
		h.agents["demo"] = within(define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			pause(ctx, 2*time.Second)
			if len(tried) == 0 {
				tried = append(tried, r)
				return &model.Error{Code: "provider_overloaded", Retryable: true}
			}
			return reply(ctx, r, say)
		}), h.tool("work", "", func(ctx context.Context, _ *agent.Call) (any, error) {
			pause(ctx, 5*time.Second)
			return "worked", nil
		})), model.Limits{Concurrency: 1})
		h.meter = metrics.Meter("holdfast.executor")
		h.open()
		if run := h.end(h.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		const ofModel = `{gen_ai_operation_name="chat",gen_ai_provider_name="fake",gen_ai_request_model="mind"`
		expectMetrics(t, metrics,
			`holdfast_executor_steps_total{agent_type="demo"} 2`,
			`holdfast_executor_retries_total{agent_type="demo",error_type="provider_overloaded"} 1`,
			`holdfast_executor_step_duration_seconds_sum{agent_type="demo"} 12`,
			`holdfast_executor_tool_duration_seconds_sum{agent_type="demo",gen_ai_tool_name="work",outcome="success"} 5`,
			`holdfast_executor_governor_wait_seconds_count{gen_ai_request_model="fake/mind"} 3`,
			`holdfast_executor_slots 4`,
			`holdfast_executor_runs `,
			`gen_ai_client_operation_duration_seconds_sum`+ofModel+`} 4`,
			`gen_ai_client_operation_time_to_first_chunk_seconds_sum`+ofModel+`} 4`,
			`gen_ai_client_token_usage_sum`+ofModel+`,gen_ai_token_type="input"} 20`,
			`gen_ai_client_token_usage_sum`+ofModel+`,gen_ai_token_type="output"} 10`,
		)
	})
}
