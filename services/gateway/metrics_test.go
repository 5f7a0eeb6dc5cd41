package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/telemetry"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func TestMetricsTellRequestsRefusalsAndStreams(t *testing.T) {
	t.Parallel()
	metrics, err := telemetry.NewMetrics(t.Context(), telemetry.Config{ServiceName: "test", Listen: "none"})
	if err != nil {
		t.Fatal(err)
	}
	h := openWith(t, listen(t), gatewaytest.New(t), gateway.Peers{Meter: metrics.Meter("holdfast.gateway")}, nil)
	for _, path := range []string{"/status?sessionId=none", "/healthz", "/metrics"} {
		response, err := http.Get(h.url + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if path == "/metrics" && response.StatusCode != http.StatusNotFound {
			t.Errorf("the public port answers /metrics with %d, want 404", response.StatusCode)
		}
	}
	client := agentv1connect.NewAgentServiceClient(http.DefaultClient, h.url)
	if _, err := client.ListSessions(t.Context(), &agentv1.ListSessionsRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err = client.GetSession(t.Context(), &agentv1.GetSessionRequest{SessionId: "none"})
	wantReason(t, "an unknown session", err, "SESSION_NOT_FOUND")
	lines := []string{
		`holdfast_gateway_rpc_duration_seconds_count{rpc_method="holdfast.agent.v1.AgentService/ListSessions",rpc_response_status_code="ok"} 1`,
		`holdfast_gateway_rpc_duration_seconds_count{rpc_method="holdfast.agent.v1.AgentService/GetSession",rpc_response_status_code="not_found"} 1`,
		`holdfast_gateway_request_duration_seconds_count{http_request_method="GET",http_response_status_code="404",http_route="/status"} 1`,
		`holdfast_gateway_request_duration_seconds_count{http_request_method="GET",http_response_status_code="200",http_route="/healthz"} 1`,
		`holdfast_gateway_requests_refused_total{reason="SESSION_NOT_FOUND"} 1`,
		`holdfast_gateway_streams{protocol="sse"} 0`,
	}
	expectMetrics(t, metrics, lines...)
}

func TestMetricsTellWhyCallersAreNotAdmitted(t *testing.T) {
	t.Parallel()
	metrics, err := telemetry.NewMetrics(t.Context(), telemetry.Config{ServiceName: "test", Listen: "none"})
	if err != nil {
		t.Fatal(err)
	}
	_, sum := gateway.NewAPIKey()
	h := openWith(t, listen(t), gatewaytest.New(t), gateway.Peers{Meter: metrics.Meter("holdfast.gateway")}, func(c *gateway.Config) {
		c.InsecureNoAuth, c.APIKeys = false, keysFile(t, "- {name: a, tenant: x, sha256: "+sum+"}")
	})
	response, err := http.Get(h.url + "/status?sessionId=s")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	expectMetrics(t, metrics, `holdfast_gateway_auth_failures_total{reason="API_KEY_MISSING"} 1`)
}

// expectMetrics reads the metrics until it finds the beginnings of lines. A request is measured after its answer.
func expectMetrics(t *testing.T, m *telemetry.Metrics, lines ...string) {
	t.Helper()
	for _, line := range lines {
		waitFor(t, "a line begins with "+line, func() bool {
			w := httptest.NewRecorder()
			m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			return strings.Contains(w.Body.String(), "\n"+line)
		})
	}
}
