package loop_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

func TestAPromptIsMadeFromTheStateAsItIsWhenTheCallIsAskedFor(t *testing.T) {
	t.Parallel()
	now := agent.State{"n": 0}
	made := 0
	p := loop.New(loop.Start{
		Agent: agent.Agent{Model: "t/m", Prompt: func(_ context.Context, run *agent.RunView) (string, error) {
			made++
			return fmt.Sprint("n is ", run.State["n"]), nil
		}},
		CallFunction: callDirectly,
		Now:          func() agent.State { return now },
	})
	now = agent.State{"n": 1} // written by a hook at the start of the run
	for range 2 {
		if got := p.Next().(loop.CallModel).Request.System; got != "n is 1" {
			t.Errorf("the prompt is %q, want it from what the hook has written", got)
		}
	}
	if made != 1 {
		t.Errorf("the prompt was made %d times, want once", made)
	}
}

func TestAStopBeforeTheFirstCallIsAskedForMakesNoPrompt(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", Prompt: func(context.Context, *agent.RunView) (string, error) {
		t.Error("a prompt was made")
		return "", nil
	}}, CallFunction: callDirectly})
	p.Stopped(loop.Stop{Kind: loop.StopInterrupt}, nil)
	if e, ok := p.Next().(loop.Finish); !ok || e.Outcome.Status != loop.StatusInterrupted {
		t.Errorf("the effect is %+v, want the end of the run", p.Next())
	}
}
