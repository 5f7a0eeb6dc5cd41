package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestAWriteOfAToolOrHookThatBreaksTheSchemaIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		set := func(value any) func(agent.State) error {
			return func(draft agent.State) error { draft["count"] = value; return nil }
		}
		var refused error
		work := p.tool("work", agent.RetrySafe, func(_ context.Context, c *agent.Call) (any, error) {
			if err := c.Update(set("many")); err != nil {
				return nil, err
			}
			return "done", nil
		})
		a := define("demo", stepReplies(callsReply("work", `{}`), textReply("ok")), work)
		a.StateSchema = json.RawMessage(`{"type":"object","properties":{"count":{"type":"integer","default":1}},"required":["name"]}`)
		a.Hooks.BeforeRun = func(_ context.Context, h *agent.HookCall) error {
			refused = h.Update(set(1.5))
			return h.Update(set(2))
		}
		p.agents["demo"] = a
		p.open()
		p.until("the agent is announced with its schema", func() bool { return len(p.announced()) > 0 })
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Fatalf("run = %v", run)
		}
		if fault.ReasonOf(refused) != "STATE_INVALID" || !strings.Contains(refused.Error(), "/count") {
			t.Errorf("the hook's write: %v, want STATE_INVALID about /count", refused)
		}
		if got := p.results(); len(got) != 1 || !strings.Contains(got[0].GetError(), "/count must be") {
			t.Errorf("results = %v, want a failure about /count", got)
		}
		if got, want := p.stateText(), `{"count":2}`; got != want {
			t.Errorf("state = %s, want %s", got, want)
		}
		if got := p.announced()[0].GetAgents()[0].GetStateSchema(); got != string(a.StateSchema) {
			t.Errorf("announced schema = %s", got)
		}
	})
}
