package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// waysToGiveUp has ways to end a run outside of a step, after the result of its first call was recorded and
// while the second call is running.
var waysToGiveUp = map[string]struct {
	dies   bool // the executor dies first
	do     func(p *system, run string, refuses *atomic.Bool)
	status statev1.RunStatus
	code   string
}{
	"too many executors were lost with it": {true, func(p *system, _ string, _ *atomic.Bool) { p.config.MaxLosses = 1 }, failed, "framework_run_lost"},
	"its agent is not here when it is to stop": {true, func(p *system, run string, _ *atomic.Bool) {
		p.agents["other"], p.agents["away"] = define("other", stepReplies(textReply("never"))), p.agents["demo"]
		delete(p.agents, "demo")
		p.stopRun(run, interrupt, "")
	}, interrupted, ""},
	"a hook refuses it":       {true, func(_ *system, _ string, refuses *atomic.Bool) { refuses.Store(true) }, failed, "framework_run_refused"},
	"a result cannot be kept": {false, func(*system, string, *atomic.Bool) {}, failed, "framework_internal_error"},
}

func TestARunThatIsGivenUpWhileApprovedCallsRunLeavesNoneOfThemToTheNext(t *testing.T) {
	t.Parallel()
	for name, test := range waysToGiveUp {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				var refuses atomic.Bool
				paid := make(chan struct{})
				pay := p.tool("pay", agent.RetryNever, func(_ context.Context, c *agent.Call) (any, error) {
					return "done " + c.ID, c.Update(func(draft agent.State) error { draft["paid"] = true; return nil })
				})
				crunch := p.tool("crunch", agent.RetryNever, func(ctx context.Context, c *agent.Call) (any, error) {
					select {
					case <-paid: // with a write, so that its result is recorded although it is the last
						return "done " + c.ID, c.Update(func(draft agent.State) error { draft["crunched"] = true; return nil })
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				pay.Approval, crunch.Approval = true, true
				a := define("demo", stepReplies(callsReply("pay", `{}`, "crunch", `{}`, "pay", `{}`), textReply("ok")), pay, crunch)
				a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error {
					if refuses.Load() {
						return errors.New("not today")
					}
					return nil
				}
				p.agents["demo"] = a
				c := &death{point: worker.PointCallReported, n: 2} // after the refused call
				if !test.dies {
					c.n = 0
				}
				p.faults.refuse = func(request any) error {
					if r, ok := request.(*statev1.RecordResultRequest); ok && r.GetResult().GetResult().GetToolCallId() == "call_1" {
						return fault.New(fault.Invalid, "ODD", "no such result")
					}
					return nil
				}
				p.openMortal(c)
				dies := p.passed
				p.passed = func(ctx context.Context, e *executor, point worker.Point) {
					if point == worker.PointCallReported && len(p.recordedResults("s")) == 1 {
						if !test.dies {
							close(paid)
							return
						}
						test.do(p, p.current(), &refuses)
					}
					dies(ctx, e, point)
				}
				p.end(p.startRun("s", "demo", "hi"))
				p.answer("call_0", approval(true, ""))
				p.answer("call_1", approval(true, ""))
				p.answer("call_2", approval(false, "too dear"))
				run := p.end(p.current())
				if run.GetStatus() != test.status || run.GetFailure().GetCode() != test.code {
					t.Errorf("run = %v, want it %v", run, test.status)
				}
				if p.customState("s")["paid"] != true {
					t.Errorf("state = %v, want what the recorded call has written", p.customState("s"))
				}
				if away, ok := p.agents["away"]; ok {
					p.agents["demo"] = away
					p.open()
				}
				refuses.Store(false)
				if run := p.end(p.startRun("s", "demo", "again")); run.GetStatus() != completed {
					t.Errorf("run = %v, want it completed", run)
				}
				if ran := p.executions(); ran["call_0"] != 1 || ran["call_1"] != 1 || ran["call_2"] != 0 {
					t.Errorf("executions = %v, want one of each approved call", ran)
				}
				lines := p.conversation()
				slices.Sort(lines)
				equalLines(t, "messages", lines, []string{
					"assistant: [call_0 pay] [call_1 crunch] [call_2 pay]", "assistant: ok", "tool: [result call_0 done, approved]",
					"tool: [result call_1 unknown, approved]", "tool: [result call_2 failed, refused: too dear]", "user: again", "user: hi",
				})
				p.verifyReaders("s")
				p.verifyState()
			})
		})
	}
}

// However the run ends, the conversation has the journal of its last step: effects, and possible effects.
func TestARunThatIsGivenUpInAStepKeepsWhatIsRecordedOfIt(t *testing.T) {
	t.Parallel()
	for name, test := range waysToGiveUp {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				var refuses atomic.Bool
				paid := make(chan struct{})
				pay := p.tool("pay", agent.RetryNever, func(ctx context.Context, c *agent.Call) (any, error) {
					if err := c.Emit(ctx, "paying", 1); err != nil {
						return nil, err
					}
					return "done " + c.ID, c.Update(func(draft agent.State) error { draft["paid"] = true; return nil })
				})
				crunch := p.tool("crunch", agent.RetryNever, func(ctx context.Context, c *agent.Call) (any, error) {
					select {
					case <-paid:
						putState(c, "crunched", "yes") // so its result is recorded
						return "done " + c.ID, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				a := define("demo", stepReplies(callsReply("pay", `{}`, "crunch", `{}`, "locate", `{}`), textReply("ok")), pay, crunch,
					agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
				a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error {
					if refuses.Load() {
						return errors.New("not today")
					}
					return nil
				}
				p.agents["demo"] = a
				p.faults.refuse = func(request any) error {
					if r, ok := request.(*statev1.RecordResultRequest); ok && r.GetResult().GetResult().GetToolCallId() == "call_1" {
						return fault.New(fault.Invalid, "ODD", "no such result")
					}
					return nil
				}
				c := &death{point: worker.PointCallReported, n: 1}
				if !test.dies {
					c.n = 0
				}
				p.openMortal(c)
				dies := p.passed
				p.passed = func(ctx context.Context, e *executor, point worker.Point) {
					if point == worker.PointCallReported && len(p.recordedResults("s")) == 1 && e.id == "executor 1" {
						if !test.dies {
							close(paid)
							return
						}
						test.do(p, p.current(), &refuses)
					}
					dies(ctx, e, point)
				}
				run := p.end(p.startRun("s", "demo", "hi"))
				if run.GetStatus() != test.status || run.GetFailure().GetCode() != test.code {
					t.Errorf("run = %v, want it %v", run, test.status)
				}
				if p.customState("s")["paid"] != true {
					t.Errorf("state = %v, want what the recorded call has written", p.customState("s"))
				}
				if away, ok := p.agents["away"]; ok {
					p.agents["demo"] = away
					p.open()
				}
				refuses.Store(false)
				if run := p.end(p.startRun("s", "demo", "again")); run.GetStatus() != completed {
					t.Errorf("run = %v, want it completed", run)
				}
				equalLines(t, "messages", p.conversation(), []string{
					"user: hi", "assistant: [call_0 pay] [call_1 crunch] [call_2 locate]", "tool: [result call_0 done]", "tool: [result call_1 unknown]",
					"tool: [result call_2 failed]", "user: again", "assistant: ok",
				})
				p.verifyReaders("s")
				p.verifyState()
				if ran := p.executions(); ran["call_0"] != 1 || ran["call_1"] != 1 {
					t.Errorf("executions = %v, want one of each call", ran)
				}
			})
		})
	}
}

// After the whole conversation was replaced, the state begins with its defaults, and call ids do not repeat.
func TestARewoundSessionBeginsAnewButForItsCallIDs(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply("look", `{}`, "locate", `{}`), textReply("ok")),
			p.tool("look", agent.RetrySafe, nil), agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
		a.StateSchema = []byte(`{"type":"object","properties":{"unit":{"type":"string","default":"C"}}}`)
		p.agents["demo"] = a
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		var ids []string
		for again := range 2 {
			p.end(p.editFirst("s", fmt.Sprint("hi again ", again)))
			if state := p.customState("s"); state["unit"] != "C" {
				t.Errorf("state = %v, want the default", state)
			}
			for _, part := range p.messages("s")[1].GetParts() {
				ids = append(ids, part.GetToolCall().GetToolCallId())
			}
		}
		ids = append(ids, "call_0", "call_1")
		if slices.Sort(ids); len(slices.Compact(ids)) != 6 {
			t.Errorf("ids = %v, want none twice", ids)
		}
		p.verifyAppends()
	}, dieBefore)
}
