package worker_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// useCappedAgent adds an agent with two steps a turn. From the second turn on, the first step asks a client.
func useCappedAgent(p *system) {
	a := define("demo", stepReplies(callsReply("count", `{}`), callsReply("count", `{}`), callsReply("locate", `{}`), textReply("done")),
		p.tool("count", agent.RetrySafe, nil), agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
	a.MaxSteps = 2
	p.agents["demo"] = a
}

func TestAResumedRunHasABudgetOfItsOwnOverItsSuspensions(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		useCappedAgent(p)
		p.openMortal(c)
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetFailure().GetCode() != "framework_max_steps" {
			t.Fatalf("run = %v, want it at its cap", run)
		}
		if run := p.end(p.resume("s")); run.GetStatus() != statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL {
			t.Fatalf("run = %v, want it suspended", run)
		}
		open := p.openedCalls("s")[0].GetToolCallId()
		p.answer(open, result(`"done `+open+`"`))
		if run := p.end(p.current()); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed within the remaining budget", run)
		}
		p.verifyOnce()
	})
}

func TestAContinuationWhoseTurnIsNotKnownCountsFromTheUsersMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		useCappedAgent(p)
		p.faults.alterClaim = func(c *statev1.Claim) { // a state service of an earlier version
			if c.GetRun().GetEntry() == statev1.RunEntry_RUN_ENTRY_CONTINUATION {
				c.Run.TurnMessageCount = 0
			}
		}
		p.open()
		p.end(p.startRun("s", "demo", "hi"))
		p.end(p.resume("s"))
		open := p.openedCalls("s")[0].GetToolCallId()
		p.answer(open, result(`"done `+open+`"`))
		if run := p.end(p.current()); run.GetFailure().GetCode() != "framework_max_steps" {
			t.Errorf("run = %v, want it at its cap", run)
		}
	})
}
