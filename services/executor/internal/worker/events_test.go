package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

func TestTheIDOfAnEventAndWhetherItIsTransientReachItsReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		work := p.tool("work", agent.RetrySafe, func(ctx context.Context, c *agent.Call) (any, error) {
			return "done", errors.Join(c.Emit(ctx, "progress", 1, agent.WithID("upload")), c.Emit(ctx, "typing", 2, agent.Transient()))
		})
		a := define("demo", stepReplies(callsReply("work", `{}`), textReply("ok")), work)
		a.Hooks.BeforeRun = func(ctx context.Context, h *agent.HookCall) error {
			return h.Emit(ctx, "early", 0, agent.WithID("hook"))
		}
		p.agents["demo"] = a
		p.open()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Fatalf("run = %v", run)
		}
		var got []string
		for _, r := range p.records("s") {
			if c := r.GetChunk().GetCustom(); c != nil {
				line := c.GetEventName() + " " + c.GetData() + " " + c.GetId()
				if c.GetTransient() {
					line += "transient"
				}
				got = append(got, line)
			}
		}
		equalLines(t, "events", got, []string{"early 0 hook", "progress 1 upload", "typing 2 transient"})
	})
}
