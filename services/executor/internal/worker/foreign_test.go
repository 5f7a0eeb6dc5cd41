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
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// deaf is a model that ignores its context until free is closed.
type deaf struct{ free chan struct{} }

func (d deaf) Generate(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if yield(model.TextDelta{Text: "One "}, nil) {
			<-d.free
		}
	}
}

func TestAModelThatIgnoresItsContextIsLeftBehindAndAtLastNotCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := deaf{make(chan struct{})}
		p := newPlay(t, definition("demo", d))
		p.open()
		for range 32 {
			run := p.state.startRun("s", "demo", "hi")
			time.Sleep(5 * time.Second)
			begin := time.Now()
			p.state.stopRun(run, interrupt, "")
			if ended := p.end(run); ended.GetStatus() != interrupted || time.Since(begin) > 4*time.Second {
				t.Fatalf("run = %v after %v", ended, time.Since(begin))
			}
		}
		time.Sleep(2 * time.Second)
		run := p.end(p.state.startRun("s", "demo", "hi"))
		if run.GetFailure().GetCode() != model.CodeUnavailable || !strings.Contains(run.GetFailure().GetDetail(), "32 earlier calls") {
			t.Errorf("run = %v, want that the model is not called any more", run)
		}
		close(d.free)
	})
}

func TestAHookThatIgnoresItsContextIsLeftBehindAndAtLastNotCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		var calls atomic.Int32
		a := definition("demo", mind(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			speak(say, "ok")
			return nil
		}))
		a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error {
			calls.Add(1)
			<-free
			return nil
		}
		p := newPlay(t, a)
		p.open()
		for range 34 {
			run := p.end(p.state.startRun("s", "demo", "hi"))
			if run.GetFailure().GetError() != "Something went wrong on our side." {
				t.Errorf("users read %q", run.GetFailure().GetError())
			}
			time.Sleep(2 * time.Second)
		}
		if n := calls.Load(); n != 32 {
			t.Errorf("the hook was called %d times, want 32", n)
		}
		close(free)
		if run := p.end(p.state.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed once the hook returns", run)
		}
	})
}

func TestCodeThatEndsItsGoroutineOrPanicsHasFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set    func(a *worker.Agent)
		shown  string
		detail string
	}{
		"a hook that does not return": {func(a *worker.Agent) {
			a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error { runtime.Goexit(); return nil }
		}, "Something went wrong on our side.", "it did not return"},
		"a hook that panics": {func(a *worker.Agent) {
			a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error { panic("secret") }
		}, "Something went wrong on our side.", "secret"},
		"a hook that refuses": {func(a *worker.Agent) {
			a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error { return errors.New("Not today.") }
		}, "Not today.", "Not today."},
		"a guard that does not return": {func(a *worker.Agent) {
			a.Guard.OnReply = func(context.Context, agent.Ending) (agent.Verdict, error) {
				runtime.Goexit()
				return agent.Verdict{}, nil
			}
		}, "", "it did not return"},
		"a model that does not return": {func(a *worker.Agent) {
			a.Models["fake/mind"] = mind(func(context.Context, model.Request, func(model.Event) bool) error { runtime.Goexit(); return nil })
		}, "Something went wrong on our side.", "it did not return"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := definition("demo", replies(text("done")))
				c.set(&a)
				p := newPlay(t, a)
				p.open()
				run := p.end(p.state.startRun("s", "demo", "hi"))
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
		a := definition("demo", replies(ask("nothing", `{}`), text("never")))
		a.StopWhen = func(agent.Progress) bool { <-free; return true }
		p := newPlay(t, a)
		e := p.open()
		p.state.startRun("s", "demo", "hi")
		time.Sleep(time.Second)
		begin := time.Now()
		e.stop()
		<-e.ended
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		close(free)
		time.Sleep(5 * time.Second) // what was left behind tries to give its run back
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
		p := newPlay(t)
		p.agents["demo"] = definition("demo", replies(ask("emit", `{}`), ask("emit", `{}`), text("ok")), p.tool("emit", agent.RetryNever, emit))
		p.open()
		if run := p.end(p.state.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v", run)
		}
		if err := *over.Load(); fault.KindOf(err) != fault.TooLarge || fault.ReasonOf(err) != "EVENTS_TOO_LARGE" {
			t.Errorf("the event beyond the limit = %v", err)
		}
		events := 0
		for _, r := range p.stream.records("s") {
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
		end  func(p *play, run string)
		want statev1.RunStatus
		code string
	}{
		"an abort":     {func(p *play, run string) { p.state.stopRun(run, abort, "") }, failed, "framework_cancelled"},
		"an interrupt": {func(p *play, run string) { p.state.stopRun(run, interrupt, "") }, interrupted, ""},
		"a deadline": {func(p *play, run string) {
			p.state.mu.Lock()
			defer p.state.mu.Unlock()
			p.state.find(run).run.DeadlineAt = time.Now().Add(20 * time.Second).UnixMilli()
		}, failed, "framework_deadline_exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlay(t, definition("other", replies(text("never"))))
				p.open()
				run := p.state.startRun("s", "demo", "hi")
				time.Sleep(time.Minute)
				begin := time.Now()
				c.end(p, run)
				ended := p.end(run)
				if ended.GetStatus() != c.want || ended.GetFailure().GetCode() != c.code || time.Since(begin) > 30*time.Second {
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
		p := newPlay(t)
		a := definition("demo", mind(func(context.Context, model.Request, func(model.Event) bool) error { return errors.New("broken") }))
		a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) { h.RecordUsage("x", "y", 1) }
		p.agents["demo"] = a
		p.state.refuseEnd = func(r *statev1.FinishRunRequest) error {
			if len(r.GetUsage()) > 0 {
				return fault.New(fault.Invalid, "USAGE_INVALID", "no")
			}
			return nil
		}
		p.open()
		if run := p.end(p.state.startRun("s", "demo", "hi")); run.GetStatus() != failed || run.GetAttempt() != 1 {
			t.Errorf("run = %v, want it failed under its first claim", run)
		}
	})
}

func TestARunThatCannotBeEndedIsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t, definition("demo", mind(func(context.Context, model.Request, func(model.Event) bool) error { return errors.New("broken") })))
		var closed atomic.Bool
		closed.Store(true)
		p.state.refuseEnd = func(*statev1.FinishRunRequest) error {
			if closed.Load() {
				return fault.New(fault.Invalid, "OUTCOME_INVALID", "no")
			}
			return nil
		}
		p.open()
		run := p.state.startRun("s", "demo", "hi")
		time.Sleep(time.Hour)
		p.state.mu.Lock()
		if n := p.state.find(run).run.GetAttempt(); n > 14 || n < 8 {
			t.Errorf("%d claims in an hour", n)
		}
		p.state.mu.Unlock()
		closed.Store(false)
		p.end(run)
	})
}

func TestTooMuchUsageIsAddedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t)
		var tools []agent.Tool
		var asks []string
		for i := range 12 {
			name := fmt.Sprintf("count%d", i)
			asks = append(asks, name, `{}`)
			tools = append(tools, agent.Tool{Name: name, InputSchema: anyObject, Execute: func(context.Context, *agent.Call) (any, error) { return 1, nil }})
		}
		a := definition("demo", replies(ask(asks...), text("ok")), tools...)
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
		p.end(p.state.startRun("s", "demo", "hi"))
		total, most := 0.0, 0
		for _, u := range p.state.sessions["s"].usage {
			total += u.GetCustom().GetValue()
		}
		for _, c := range p.state.commits {
			most = max(most, len(c.GetUsage()))
		}
		if most > 1000 || total < 1400 {
			t.Errorf("%v counted, %d entries in a request", total, most)
		}
	})
}

func TestAnAnswerThatChangesBehindAnApprovedCallIsToldAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t)
		pay := p.tool("pay", agent.RetryNever, nil)
		pay.Approval = true
		p.agents["demo"] = definition("demo", replies(ask("pay", `{}`, "locate", `{}`), text("ok")), pay,
			agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
		changed := false
		p.passed = func(_ context.Context, _ *executor, point worker.Point) {
			p.state.mu.Lock()
			defer p.state.mu.Unlock()
			if c := p.state.sessions["s"].call("call_1"); point == worker.PointCommitBegins && c.GetRevision() == 1 && !changed {
				changed = true
				c.Answer, c.Revision = result(`"here"`), 2
			}
		}
		p.open()
		p.end(p.state.startRun("s", "demo", "hi"))
		p.state.answer("call_0", approval(true, ""))
		p.state.answer("call_1", &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "timeout"}, Source: statev1.AnswerSource_ANSWER_SOURCE_TIMEOUT})
		if run := p.end("s/run 2"); run.GetStatus() != completed || !changed || p.ran()["call_0"] != 1 {
			t.Errorf("run = %v, changed %v, executions %v", run, changed, p.ran())
		}
		told := map[string][]string{}
		for _, r := range p.stream.records("s") {
			if end := r.GetChunk().GetToolEnd(); end != nil {
				told[end.GetToolCallId()] = append(told[end.GetToolCallId()], end.GetResult()+end.GetError())
			}
		}
		if fmt.Sprint(told) != `map[call_0:["done call_0"] call_1:["here"]]` {
			t.Errorf("a reader has %v", told)
		}
		p.once()
	})
}
