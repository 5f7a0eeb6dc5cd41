package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
)

// unreachableFunctions sets the functions of an agent whose application may be down: called returns an error then.
var unreachableFunctions = map[string]func(a *catalog.Agent, called func() error){
	"Prompt": func(a *catalog.Agent, called func() error) {
		a.SystemPrompt = ""
		a.Prompt = func(context.Context, *agent.RunView) (string, error) { return "Be brief.", called() }
	},
	"StopWhen": func(a *catalog.Agent, called func() error) {
		a.StopWhen = func(context.Context, *agent.Progress) (bool, error) { return false, called() }
	},
	"ApproveWhen": func(a *catalog.Agent, called func() error) {
		a.Tools[0].ApproveWhen = func(context.Context, *agent.Call) (bool, error) { return false, called() }
	},
	"OnReply": func(a *catalog.Agent, called func() error) {
		a.Guard.OnReply = func(context.Context, agent.Ending) (agent.Verdict, error) { return agent.Verdict{}, called() }
	},
	"BeforeRun": func(a *catalog.Agent, called func() error) {
		a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error { return called() }
	},
}

func TestARunWaitsForTheApplicationOfItsAgent(t *testing.T) {
	t.Parallel()
	for name, set := range unreachableFunctions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				a := define("demo", stepReplies(callsReply("pay", `{}`), textReply("ok")), p.tool("pay", agent.RetryNever, nil))
				down := time.Now().Add(20 * time.Minute)
				set(&a, func() error {
					if time.Now().Before(down) {
						return fmt.Errorf("%w: %w", catalog.ErrUnreachable, errors.New("connection refused"))
					}
					return nil
				})
				p.agents["demo"] = a
				p.open()
				begin := time.Now()
				run := p.end(p.startRun("s", "demo", "hi"))
				if took := time.Since(begin); run.GetStatus() != completed || took < 20*time.Minute || took > 21*time.Minute {
					t.Errorf("the run is %v after %v, want it completed after 20 minutes", run, took)
				}
				equalLines(t, "messages", p.conversation(), []string{"user: hi", "assistant: [call_0 pay]", "tool: [result call_0 done]", "assistant: ok"})
				p.verifyReaders("s")
			})
		})
	}
}

func TestAStopEndsARunThatWaitsForItsApplication(t *testing.T) {
	t.Parallel()
	for name, set := range unreachableFunctions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				a := define("demo", stepReplies(callsReply("pay", `{}`), textReply("ok")), p.tool("pay", agent.RetryNever, nil))
				set(&a, func() error { return catalog.ErrUnreachable })
				p.agents["demo"] = a
				p.open()
				run := p.startRun("s", "demo", "hi")
				time.Sleep(5 * time.Minute)
				begin := time.Now()
				p.stopRun(run, interrupt, "")
				if ended := p.end(run); ended.GetStatus() != interrupted || time.Since(begin) > 2*time.Second {
					t.Errorf("run = %v after %v, want it interrupted at once", ended, time.Since(begin))
				}
			})
		})
	}
}
