package worker_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// capped is an agent of two steps, which asks a client in the first of each turn but the
// first one.
func capped(p *play) {
	a := definition("demo", replies(ask("count", `{}`), ask("count", `{}`), ask("locate", `{}`), text("done")),
		p.tool("count", agent.RetrySafe, nil), agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
	a.MaxSteps = 2
	p.agents["demo"] = a
}

func TestAResumedRunHasABudgetOfItsOwnOverItsSuspensions(t *testing.T) {
	t.Parallel()
	playEverywhere(t, func(t *testing.T, c *cut) {
		p := newPlay(t)
		capped(p)
		p.start(c)
		if run := p.end(p.state.startRun("s", "demo", "hi")); run.GetFailure().GetCode() != "framework_max_steps" {
			t.Fatalf("run = %v, want it at its cap", run)
		}
		if run := p.end(p.state.resume("s")); run.GetStatus() != statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL {
			t.Fatalf("run = %v, want it suspended", run)
		}
		open := p.state.sessions["s"].calls[0].GetToolCallId()
		p.state.answer(open, result(`"done `+open+`"`))
		if run := p.end("s/run 3"); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed within what the resumed one had left", run)
		}
		p.once()
	})
}

func TestAContinuationWhoseTurnIsNotKnownCountsFromTheUsersMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t)
		capped(p)
		p.open()
		p.end(p.state.startRun("s", "demo", "hi"))
		p.end(p.state.resume("s"))
		p.state.sessions["s"].turnless = true
		open := p.state.sessions["s"].calls[0].GetToolCallId()
		p.state.answer(open, result(`"done `+open+`"`))
		if run := p.end("s/run 3"); run.GetFailure().GetCode() != "framework_max_steps" {
			t.Errorf("run = %v, want it at its cap", run)
		}
	})
}
