package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// checker is the address of an executor that checks stored agents.
const checker = "checker"

// serveChecker serves an executor without agents that serves stored ones. It claims no runs.
func serveChecker(t testing.TB, world *gatewaytest.World) {
	t.Helper()
	registry := executor.NewRegistry()
	err := registry.ServeStored(executor.AgentsConfig{StoredAgents: true, StoredKept: 9}, executor.RegistryPeers{LookupEnv: lookupKey})
	if err != nil {
		t.Fatal(err)
	}
	serveRegistry(t, world, checker, registry)
}

// clerkBody stores an agent over plain HTTP.
const clerkBody = `{"definition":{"model":"anthropic/x","systemPrompt":"You are a clerk."}}`

// agentExchanges are requests about stored agents. The agent doomed is stored.
func agentExchanges(t *testing.T, h *fixture) map[string][]exchange {
	t.Helper()
	for _, name := range []string{"doomed", "known"} {
		if answer := h.request(t, http.MethodPut, "/agents/"+name, clerkBody); answer.StatusCode != http.StatusOK {
			t.Fatalf("got %d %s", answer.StatusCode, text(t, answer))
		}
	}
	return map[string][]exchange{
		"PUT /agents/{id}": {
			sent("/agents/clerk", clerkBody, http.StatusOK, ""),
			sent("/agents/clerk", `{"definition":"model: anthropic/x\nsystemPrompt: You are a clerk."}`, http.StatusOK, ""),
			sent("/agents/clerk", `{"definition":{"model":"anthropic/x"},"expectedHash":""}`, http.StatusConflict, "AGENT_CHANGED"),
			sent("/agents/clerk", `{"definition":{"model":"none/x"}}`, http.StatusBadRequest, "AGENTS_INVALID"),
			sent("/agents/demo", clerkBody, http.StatusConflict, "AGENT_ANNOUNCED"),
			sent("/agents/clerk", `{"agentType":"clerk"}`, http.StatusBadRequest, "BODY_INVALID"),
		},
		"GET /agents/{id}": {
			{about: "a stored agent", path: "/agents/known", status: http.StatusOK},
			{about: "an unknown agent", path: "/agents/unknown", status: http.StatusNotFound, code: "AGENT_NOT_FOUND"},
		},
		"DELETE /agents/{id}": {
			{about: "another hash", path: "/agents/doomed?expectedHash=x", status: http.StatusConflict, code: "AGENT_CHANGED"},
			{about: "a stored agent", path: "/agents/doomed", status: http.StatusOK},
			{about: "a repetition", path: "/agents/doomed", status: http.StatusNotFound, code: "AGENT_NOT_FOUND"},
		},
	}
}

func TestWithoutAnExecutorThatServesThemNoAgentIsStored(t *testing.T) {
	t.Parallel()
	world := gatewaytest.New(t)
	serveRegistry(t, world, "other", executor.NewRegistry())
	for _, test := range []struct {
		executors []string
		status    int
		code      string
	}{
		{nil, http.StatusConflict, "STORED_AGENTS_DISABLED"},
		{[]string{"other"}, http.StatusConflict, "STORED_AGENTS_DISABLED"},
		{[]string{"other", "nobody"}, http.StatusServiceUnavailable, "EXECUTOR_UNREACHABLE"},
	} {
		h := openOver(t, listen(t), world, func(c *gateway.Config) { c.Executors = test.executors })
		answer := h.request(t, http.MethodPut, "/agents/clerk", clerkBody)
		if body := text(t, answer); answer.StatusCode != test.status || !strings.Contains(body, test.code) {
			t.Errorf("%v: got %d %s, want %d %s", test.executors, answer.StatusCode, body, test.status, test.code)
		}
	}
	serveChecker(t, world)
	h := openOver(t, listen(t), world, func(c *gateway.Config) { c.Executors = []string{"nobody", "other", checker} })
	if answer := h.request(t, http.MethodPut, "/agents/clerk", clerkBody); answer.StatusCode != http.StatusOK {
		t.Errorf("got %d %s, want the third executor asked", answer.StatusCode, text(t, answer))
	}
	list := text(t, h.request(t, http.MethodGet, "/agents", ""))
	if !strings.Contains(list, `"agentType":"clerk"`) || !strings.Contains(list, `"source":"stored","hash":"`) {
		t.Errorf("got the agents %s", list)
	}
}
