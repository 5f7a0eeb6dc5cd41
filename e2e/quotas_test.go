package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

const quotasAgents = `
models:
  scripted:
    script: |
      models:
        slow: {rules: [{reply: [{text: "Now.", chunk: whole, delay: 0s}, {wait: 1h}]}]}
agents:
  - {name: slow, model: scripted/slow}
`

// TestQuotasHoldOnEveryInterfaceAndReplica starts runs and streams up to the limits of a tenant and one above them, and
// raises the limits without a restart.
func TestQuotasHoldOnEveryInterfaceAndReplica(t *testing.T) {
	t.Parallel()
	quotas := filepath.Join(t.TempDir(), "quotas.yaml")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(quotas, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("tenants: {first: {tenant: {inFlight: 1, queued: 2}}}\n")
	s := harness.Start(t, harness.Options{
		Agents: quotasAgents, States: 2, Gateways: 2, StateEnv: []string{"HOLDFAST_STATE_QUOTAS=" + quotas}, GatewayEnv: []string{"HOLDFAST_GATEWAY_MAX_TENANT_STREAMS=2"},
	})
	start := func(gateway int, session string) harness.Answer {
		t.Helper()
		return s.At(gateway).Do(t, http.MethodPost, "/start", fmt.Appendf(nil, `{"sessionId":%q,"agentType":"slow","message":"hi","requestKey":"key of %s"}`, session, session))
	}
	accepts := func(a harness.Answer) {
		t.Helper()
		if a.Code != http.StatusOK {
			t.Fatalf("got %d %s", a.Code, a.Body)
		}
	}
	refuses := func(a harness.Answer, code string) {
		t.Helper()
		if a.Code != http.StatusTooManyRequests || !strings.Contains(a.Body, code) || a.Header.Get("Retry-After") == "" {
			t.Fatalf("got %d %s with %v, want 429 %s and when to retry", a.Code, a.Body, a.Header, code)
		}
	}
	accepts(start(0, "running"))
	first := s.Native(t, "running", 0)
	first.Until("the first run to begin", func(n *harness.NativeStream) bool { return n.Text() != "" })
	accepts(start(1, "queued 1"))
	accepts(start(0, "queued 2"))
	refuses(start(0, "queued 3"), "QUOTA_QUEUED")
	refuses(start(1, "queued 3"), "QUOTA_QUEUED")
	refuses(s.Do(t, http.MethodPost, "/chat", harness.ChatBody("queued 3", "slow", "hi")), "Too many requests")
	accepts(start(1, "queued 2")) // a repetition
	agents := s.AgentService(t)
	_, err := agents.Start(t.Context(), &agentv1.StartRequest{SessionId: "queued 3", AgentType: "slow", Message: "hi"})
	if f, _ := fault.From(harness.Fault(err)); f == nil || f.Reason != "QUOTA_QUEUED" || f.Meta[fault.LimitName] != "tenant.queued" || f.Meta[fault.LimitValue] != "2" {
		t.Errorf("over Connect: got %v", err)
	} else if refused, ok := errors.AsType[*connect.Error](err); ok && refused.Meta().Get("Retry-After") == "" {
		t.Errorf("over Connect: got no Retry-After in %v", refused.Meta())
	}
	if got := s.Do(t, http.MethodGet, "/sessions", nil).Body; strings.Contains(got, "queued 3") {
		t.Errorf("a refused start has written a session: %s", got)
	}

	second := s.Native(t, "running", 0)
	refuses(s.Do(t, http.MethodGet, "/sse?sessionId=running", nil), "QUOTA_STREAMS")
	conn, response, err := websocket.Dial(t.Context(), s.URL+"/ws?sessionId=running", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + s.Key}}}) //nolint:bodyclose // the body is the socket
	if err == nil || response == nil || response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("over a socket: got %v, %v, %v", conn, response, err)
	}
	_, err = agents.WaitRun(t.Context(), &agentv1.WaitRunRequest{SessionId: "running", WaitMs: 1000})
	if f, _ := fault.From(harness.Fault(err)); f == nil || f.Reason != "QUOTA_STREAMS" {
		t.Errorf("over Connect: got %v", err)
	}
	s.At(1).Native(t, "running", 0) // it counts its own
	first.Close()
	second.Close()

	put("tenants: {first: {tenant: {inFlight: 2, queued: 2}}}\n")
	harness.WaitFor(t, spansLimit, "room in the queue", func() (bool, string) {
		a := start(0, "queued 3")
		return a.Code == http.StatusOK, a.Body
	})
}
