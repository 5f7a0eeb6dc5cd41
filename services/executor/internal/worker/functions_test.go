package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// stuckFunctions has the functions of an agent that the planner calls: how to set one that does not return, the end
// of the run, and its messages.
var stuckFunctions = map[string]struct {
	set    func(a *catalog.Agent, wait func())
	status statev1.RunStatus
	detail string
	said   []string // the conversation if a stop cuts the run during the call of the function
}{
	"Prompt": {
		func(a *catalog.Agent, wait func()) {
			a.SystemPrompt = ""
			a.Prompt = func(context.Context, *agent.RunView) (string, error) { wait(); return "Be brief.", nil }
		},
		failed, `the Prompt function of the agent "demo" has given no answer: it did not return within 10s`, []string{"user: hi"},
	},
	"StopWhen": {
		func(a *catalog.Agent, wait func()) {
			a.StopWhen = func(context.Context, *agent.Progress) (bool, error) { wait(); return true, nil }
		},
		completed, "", []string{"user: hi", "assistant: [call_0 pay]", "tool: [result call_0 done]"},
	},
	"ApproveWhen": {
		func(a *catalog.Agent, wait func()) {
			a.Tools[0].ApproveWhen = func(context.Context, *agent.Call) (bool, error) { wait(); return false, nil }
		},
		statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL, "", []string{"user: hi", "assistant: [call_0 pay]", "tool: [result call_0 failed]"},
	},
	"Count": {
		func(a *catalog.Agent, wait func()) {
			a.Context = agent.ContextPolicy{MaxTokens: 1000, Count: func(agent.Message) int { wait(); return 1 }}
		},
		completed, "", []string{"user: hi"},
	},
}

// stuckSystem is a system whose agent has such a function. The function waits until free is closed.
func stuckSystem(t *testing.T, set func(a *catalog.Agent, wait func())) (p *system, calls *atomic.Int32, free chan struct{}) {
	t.Helper()
	p, calls, free = newSystem(t), &atomic.Int32{}, make(chan struct{})
	a := define("demo", stepReplies(callsReply("pay", `{}`), textReply("ok")), p.tool("pay", agent.RetryNever, nil))
	set(&a, func() { calls.Add(1); <-free })
	p.agents["demo"] = a
	return p, calls, free
}

func TestAFunctionThatDoesNotReturnHoldsUpNoRunForEver(t *testing.T) {
	t.Parallel()
	for name, test := range stuckFunctions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, calls, free := stuckSystem(t, test.set)
				p.open()
				begin := time.Now()
				run := p.end(p.startRun("s", "demo", "hi"))
				if took := time.Since(begin); took > time.Minute || calls.Load() == 0 {
					t.Errorf("the run took %v, with %d calls of the function", took, calls.Load())
				}
				if run.GetStatus() != test.status || run.GetFailure().GetDetail() != test.detail {
					t.Errorf("run = %v, want it %v with %q", run, test.status, test.detail)
				}
				p.verifyReaders("s")
				close(free)
			})
		})
	}
}

func TestAStopCutsAFunctionThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, test := range stuckFunctions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, _, free := stuckSystem(t, test.set)
				p.open()
				run := p.startRun("s", "demo", "hi")
				time.Sleep(3 * time.Second)
				begin := time.Now()
				p.stopRun(run, interrupt, "")
				if ended := p.end(run); ended.GetStatus() != interrupted || time.Since(begin) > 2*time.Second {
					t.Errorf("run = %v after %v, want it interrupted at once", ended, time.Since(begin))
				}
				equalLines(t, "messages", p.conversation(), test.said)
				p.verifyReaders("s")
				close(free)
			})
		})
	}
}

func TestAStoppingExecutorReleasesARunWhoseFunctionDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, test := range stuckFunctions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, calls, free := stuckSystem(t, test.set)
				p.config.HookTimeout = time.Hour
				e := p.open()
				run := p.startRun("s", "demo", "hi")
				p.until("the function is called", func() bool { return calls.Load() > 0 })
				e.stop()
				<-e.ended
				if n := p.run(run).GetLosses(); n != 0 {
					t.Errorf("losses = %d, want the run released", n)
				}
				close(free)
				p.open()
				p.end(run)
				p.verifyReaders("s")
				p.verifyOnce()
			})
		})
	}
}

func TestAFunctionThatDoesNotReturnIsAtLastNotCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, calls, free := stuckSystem(t, stuckFunctions["Prompt"].set)
		p.config.HookTimeout = time.Second
		p.open()
		for range 34 {
			p.end(p.startRun("s", "demo", "hi"))
			time.Sleep(2 * time.Second)
		}
		if n := calls.Load(); n != 32 {
			t.Errorf("the function was called %d times, want 32", n)
		}
		run := p.end(p.startRun("s", "demo", "hi"))
		if !strings.Contains(run.GetFailure().GetDetail(), "32 earlier calls") {
			t.Errorf("run = %v, want that the function is not called any more", run)
		}
		close(free)
		synctest.Wait()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed once the function returns", run)
		}
	})
}

// A plan has the calls to run: a new owner does not call ApproveWhen again.
func TestAFunctionThatDoesNotReturnTakesNothingFromAPlan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		var waits atomic.Bool
		free := make(chan struct{})
		pay := p.tool("pay", agent.RetryNever, func(_ context.Context, c *agent.Call) (any, error) {
			putState(c, "paid", "yes") // so its result is recorded
			return "done " + c.ID, nil
		})
		pay.ApproveWhen = func(context.Context, *agent.Call) (bool, error) {
			if waits.Load() {
				<-free
			}
			return false, nil
		}
		p.agents["demo"] = define("demo", stepReplies(callsReply("pay", `{}`), textReply("ok")), pay)
		p.openMortal(&death{point: worker.PointCallRecorded, n: 1})
		dies := p.passed
		p.passed = func(ctx context.Context, e *executor, point worker.Point) {
			waits.Store(waits.Load() || point == worker.PointCallRecorded)
			dies(ctx, e, point)
		}
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed || !waits.Load() {
			t.Errorf("run = %v, want it completed", run)
		}
		equalLines(t, "messages", p.conversation(), []string{"user: hi", "assistant: [call_0 pay]", "tool: [result call_0 done]", "assistant: ok"})
		close(free)
	})
}
