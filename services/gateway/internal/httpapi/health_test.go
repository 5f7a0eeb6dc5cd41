package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestAGatewayIsReadyOnceAnAgentIsKnownAndWarnsWhileNoneIsServed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known, served int
		broken        []string
		err           error
		status        int
		want          string
	}{
		"agents that are served": {known: 2, served: 1, status: http.StatusOK, want: `{"status":"ok"}`},
		"parts out of service": {
			known: 2, served: 2, broken: []string{PartName("tool", "s/odd", "clerk"), PartName("file", "/srv/secret/agents.yaml", ""), PartName("tool", "s/odd", "clerk")}, status: http.StatusOK,
			want: `{"status":"ok","warnings":["out of service: file \"agents.yaml\", tool \"s/odd\" of agent \"clerk\"; everything else is served (holdfast agents list has the reasons)"]}`,
		},
		"no agent yet": {
			status: http.StatusServiceUnavailable,
			want:   `{"notReady":["executor"],"reasons":["no executor has announced an agent yet: start one, with HOLDFAST_EXECUTOR_STATE_ADDRESS set to the same state service"],"status":"unavailable"}`,
		},
		"agents without an executor": {
			known: 2, status: http.StatusOK,
			want: `{"status":"ok","warnings":["no executor serves an agent now: messages are stored, and their runs wait for an executor"]}`,
		},
		"no list of agents": {
			err: errors.New("down"), status: http.StatusServiceUnavailable,
			want: `{"notReady":["state"],"reasons":["the state service answers, but cannot list the agents: see the logs of both services"],"status":"unavailable"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &Health{Agents: func(context.Context) (AgentHealth, error) {
				return AgentHealth{Known: test.known, Served: test.served, Broken: test.broken}, test.err
			}}
			w := httptest.NewRecorder()
			if err := h.Ready(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil), ""); err != nil {
				t.Fatal(err)
			}
			if got := w.Body.String(); got != test.want+"\n" || w.Code != test.status {
				t.Errorf("got %d %s, want %d %s", w.Code, got, test.status, test.want)
			}
		})
	}
}
