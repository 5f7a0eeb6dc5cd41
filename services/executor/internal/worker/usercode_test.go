package worker_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// deafModel is a model that ignores its context until free is closed.
type deafModel struct{ free chan struct{} }

func (d deafModel) Generate(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if yield(model.TextDelta{Text: "One "}, nil) {
			<-d.free
		}
	}
}

func TestAModelThatIgnoresItsContextIsAbandonedAndAtLastNotCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := deafModel{make(chan struct{})}
		p := newSystem(t, define("demo", d))
		p.open()
		for range 32 {
			run := p.startRun("s", "demo", "hi")
			time.Sleep(5 * time.Second)
			begin := time.Now()
			p.stopRun(run, interrupt, "")
			if ended := p.end(run); ended.GetStatus() != interrupted || time.Since(begin) > 4*time.Second {
				t.Fatalf("run = %v after %v", ended, time.Since(begin))
			}
		}
		time.Sleep(2 * time.Second)
		run := p.end(p.startRun("s", "demo", "hi"))
		if run.GetFailure().GetCode() != model.CodeUnavailable || !strings.Contains(run.GetFailure().GetDetail(), "32 earlier calls") {
			t.Errorf("run = %v, want that the model is not called any more", run)
		}
		close(d.free)
	})
}

func TestAHookThatIgnoresItsContextIsAbandonedAndAtLastNotCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		var calls atomic.Int32
		a := define("demo", modelFunc(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			sendText(say, "ok")
			return nil
		}))
		a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error {
			calls.Add(1)
			<-free
			return nil
		}
		p := newSystem(t, a)
		p.open()
		for range 34 {
			run := p.end(p.startRun("s", "demo", "hi"))
			if run.GetFailure().GetError() != "Something went wrong on our side." {
				t.Errorf("users read %q", run.GetFailure().GetError())
			}
			time.Sleep(2 * time.Second)
		}
		if n := calls.Load(); n != 32 {
			t.Errorf("the hook was called %d times, want 32", n)
		}
		close(free)
		synctest.Wait()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed once the hook returns", run)
		}
	})
}

func TestCodeThatEndsItsGoroutineOrPanicsHasFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set    func(a *catalog.Agent)
		shown  string
		detail string
	}{
		"a hook that does not return": {func(a *catalog.Agent) {
			a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error { runtime.Goexit(); return nil }
		}, "Something went wrong on our side.", "it did not return"},
		"a hook that panics": {func(a *catalog.Agent) {
			a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error { panic("secret") }
		}, "Something went wrong on our side.", "secret"},
		"a hook that refuses": {func(a *catalog.Agent) {
			a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error { return errors.New("Not today.") }
		}, "Not today.", "Not today."},
		"a guard that does not return": {func(a *catalog.Agent) {
			a.Guard.OnReply = func(context.Context, agent.Ending) (agent.Verdict, error) {
				runtime.Goexit()
				return agent.Verdict{}, nil
			}
		}, "", "it did not return"},
		"a model that does not return": {func(a *catalog.Agent) {
			a.Models["fake/mind"] = modelFunc(func(context.Context, model.Request, func(model.Event) bool) error { runtime.Goexit(); return nil })
		}, "Something went wrong on our side.", "it did not return"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := define("demo", stepReplies(textReply("done")))
				c.set(&a)
				p := newSystem(t, a)
				p.open()
				run := p.end(p.startRun("s", "demo", "hi"))
				f := run.GetFailure()
				if run.GetStatus() != failed || c.shown != "" && f.GetError() != c.shown || !strings.Contains(f.GetDetail(), c.detail) {
					t.Errorf("run = %v, want %q with %q", run, c.shown, c.detail)
				}
			})
		})
	}
}

func TestAnExecutorStopsAlthoughAFunctionOfAnAgentHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		a := define("demo", stepReplies(callsReply("nothing", `{}`), textReply("never")))
		a.StopWhen = func(context.Context, *agent.Progress) (bool, error) { <-free; return true, nil }
		p := newSystem(t, a)
		e := p.open()
		p.startRun("s", "demo", "hi")
		time.Sleep(time.Second)
		begin := time.Now()
		e.stop()
		<-e.ended
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		close(free)
		time.Sleep(5 * time.Second) // the abandoned runner tries to release its run
	})
}

func TestWhatAStepEmitsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each = 256 << 10
		data := strings.Repeat("x", each-len("part")-2) // two quotes and the name
		var over atomic.Pointer[error]
		emit := func(ctx context.Context, c *agent.Call) (any, error) {
			for range 4 << 20 / each {
				if err := c.Emit(ctx, "part", data); err != nil {
					return nil, err
				}
			}
			err := c.Emit(ctx, "e", 1)
			over.Store(&err)
			return "done " + c.ID, nil
		}
		p := newSystem(t)
		p.agents["demo"] = define("demo", stepReplies(callsReply("emit", `{}`), callsReply("emit", `{}`), textReply("ok")), p.tool("emit", agent.RetryNever, emit))
		p.open()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v", run)
		}
		if err := *over.Load(); fault.KindOf(err) != fault.TooLarge || fault.ReasonOf(err) != "EVENTS_TOO_LARGE" {
			t.Errorf("the event beyond the limit = %v", err)
		}
		events := 0
		for _, r := range p.records("s") {
			if r.GetChunk().GetCustom() != nil {
				events++
			}
		}
		if events != 2*(4<<20/each) {
			t.Errorf("%d events, want those of both steps", events)
		}
		p.verifyReaders("s")
	})
}

func TestARunWhoseAgentIsNotHereCanBeStoppedAndReachesItsDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(p *system, run string)
		want statev1.RunStatus
		code string
	}{
		"an abort":     {func(p *system, run string) { p.stopRun(run, abort, "") }, failed, "framework_cancelled"},
		"an interrupt": {func(p *system, run string) { p.stopRun(run, interrupt, "") }, interrupted, ""},
		"a deadline":   {func(*system, string) {}, failed, "framework_deadline_exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t, define("other", stepReplies(textReply("never"))))
				p.open()
				run := p.post(&statev1.StartRunRequest{
					SessionId: "s", AgentType: "demo", Messages: userMessages("hi"), TimeoutMs: (80 * time.Second).Milliseconds(),
				})
				time.Sleep(time.Minute)
				begin := time.Now()
				c.end(p, run)
				ended := p.end(run)
				if ended.GetStatus() != c.want || ended.GetFailure().GetCode() != c.code || time.Since(begin) > 40*time.Second {
					t.Errorf("run = %v after %v", ended, time.Since(begin))
				}
				p.verifyReaders("s")
			})
		})
	}
}

func TestAnEndThatIsRefusedIsSentWithoutItsUsage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := define("demo", modelFunc(func(context.Context, model.Request, func(model.Event) bool) error { return errors.New("broken") }))
		a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) { h.RecordUsage("x", "y", 1) }
		p.agents["demo"] = a
		p.faults.refuse = func(request any) error {
			if r, ok := request.(*statev1.FinishRunRequest); ok && len(r.GetUsage()) > 0 {
				return fault.New(fault.Invalid, "USAGE_INVALID", "no")
			}
			return nil
		}
		p.open()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != failed || run.GetAttempt() != 1 {
			t.Errorf("run = %v, want it failed under its first claim", run)
		}
	})
}

func TestARunThatCannotBeEndedIsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t, define("demo", modelFunc(func(context.Context, model.Request, func(model.Event) bool) error { return errors.New("broken") })))
		var closed atomic.Bool
		closed.Store(true)
		p.faults.refuse = func(request any) error {
			if _, ok := request.(*statev1.FinishRunRequest); ok && closed.Load() {
				return fault.New(fault.Invalid, "OUTCOME_INVALID", "no")
			}
			return nil
		}
		p.open()
		run := p.startRun("s", "demo", "hi")
		time.Sleep(10 * time.Minute)
		if n := p.run(run).GetAttempt(); n > 11 || n < 6 {
			t.Errorf("%d claims in ten minutes", n)
		}
		closed.Store(false)
		p.end(run)
	})
}

func TestTooMuchUsageIsAddedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		var tools []agent.Tool
		var asks []string
		for i := range 12 {
			name := fmt.Sprintf("count%d", i)
			asks = append(asks, name, `{}`)
			tools = append(tools, agent.Tool{Name: name, InputSchema: anyObject, Execute: func(context.Context, *agent.Call) (any, error) { return 1, nil }})
		}
		a := define("demo", stepReplies(callsReply(asks...), textReply("ok")), tools...)
		a.Hooks.OnMessage = func(_ context.Context, h *agent.HookCall, _ agent.Message) {
			for i := range 100 {
				h.RecordUsage("x", fmt.Sprint(i), 1)
			}
		}
		a.Hooks.AfterModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall, _ agent.Message, _ error) {
			for i := range 100 {
				h.RecordUsage("x", fmt.Sprint(i), 1)
			}
		}
		p.agents["demo"] = a
		p.open()
		p.end(p.startRun("s", "demo", "hi"))
		total, most := 0.0, 0
		for _, u := range p.usage() {
			total += u.GetCustom().GetValue()
		}
		for _, c := range p.commits() {
			most = max(most, len(c.GetUsage()))
		}
		if most > 1000 || total < 1400 {
			t.Errorf("%v counted, %d entries in a request", total, most)
		}
	})
}

func TestAnAnswerThatReplacesATimeoutDuringAnApprovedCallIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		pay := p.tool("pay", agent.RetryNever, nil)
		pay.Approval = true
		p.agents["demo"] = define("demo", stepReplies(callsReply("pay", `{}`, "locate", `{}`), textReply("ok")), pay,
			agent.Tool{Name: "locate", InputSchema: anyObject, Client: true, AnswerWithin: time.Minute})
		var changed atomic.Bool
		p.passed = func(_ context.Context, _ *executor, point worker.Point) {
			if point == worker.PointCommitBegins && p.executions()["call_0"] == 1 && changed.CompareAndSwap(false, true) {
				p.answer("call_1", result(`"here"`))
			}
		}
		p.open()
		p.end(p.startRun("s", "demo", "hi"))
		p.answer("call_0", approval(true, ""))
		time.Sleep(2 * time.Minute) // the other call times out
		if run := p.end(p.current()); run.GetStatus() != completed || !changed.Load() || p.executions()["call_0"] != 1 {
			t.Errorf("run = %v, changed %v, executions %v", run, changed.Load(), p.executions())
		}
		told := map[string][]string{}
		for _, r := range p.records("s") {
			if end := r.GetChunk().GetToolEnd(); end != nil {
				told[end.GetToolCallId()] = append(told[end.GetToolCallId()], end.GetResult()+end.GetError())
			}
		}
		if fmt.Sprint(told) != `map[call_0:["done call_0"] call_1:["here"]]` {
			t.Errorf("a reader has %v", told)
		}
		p.verifyOnce()
	})
}
