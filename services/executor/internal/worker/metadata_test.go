package worker_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestToolsAndHooksSetTheMetadataOfTheMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		var refused []error
		work := p.tool("work", agent.RetrySafe, func(ctx context.Context, c *agent.Call) (any, error) {
			refused = append(refused, c.SetMetadata(ctx, "no object"), c.SetMetadata(ctx, map[string]any{"usage": 1}))
			return "done", c.SetMetadata(ctx, map[string]any{"cents": 2})
		})
		a := define("demo", stepReplies(callsReply("work", `{}`), textReply("ok")), work)
		a.Hooks.BeforeRun = func(ctx context.Context, h *agent.HookCall) error {
			return h.SetMetadata(ctx, map[string]any{"mode": "careful"})
		}
		p.agents["demo"] = a
		p.open()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Fatalf("run = %v", run)
		}
		for _, err := range refused {
			if fault.ReasonOf(err) != "EVENT_INVALID" {
				t.Errorf("SetMetadata = %v, want EVENT_INVALID", err)
			}
		}
		var got []string
		for _, r := range p.stored("s") {
			if c := r.GetChunk().GetCustom(); c != nil {
				got = append(got, c.GetEventName()+" "+c.GetData())
			}
		}
		equalLines(t, "events", got, []string{`message-metadata {"mode":"careful"}`, `message-metadata {"cents":2}`})
		p.verifyReaders("s")
	})
}
