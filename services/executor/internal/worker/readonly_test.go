package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// readOnly makes a tool read-only.
func readOnly(t agent.Tool) agent.Tool {
	t.ReadOnly = true
	return t
}

func TestAStepThatOnlyLooksUpIsDurableWithItsCommitAloneWhereverItsExecutorDies(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply("look", `{}`, "look", `{}`, "nothing", `{}`), callsReply("look", `{}`), textReply("done")),
			readOnly(p.tool("look", agent.RetryNever, func(_ context.Context, call *agent.Call) (any, error) {
				call.RecordUsage("seen", "call", 1)
				return "done " + call.ID, nil
			})))
		a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) {
			appendState(h, "asked")
			h.RecordUsage("seen", "hook", 1)
		}
		p.agents["demo"] = a
		p.openMortal(c)
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		equalLines(t, "writes", p.written("s"), []string{"commit 1", "commit 2", "commit 3"})
		equalLines(t, "messages", p.conversation(), []string{
			"user: hi", "assistant: [call_0 look] [call_1 look] [call_2 nothing]", "tool: [result call_0 done]", "tool: [result call_1 done]",
			"tool: [result call_2 failed]", "assistant: [call_0_1 look]", "tool: [result call_0_1 done]", "assistant: done",
		})
		if got, want := p.stateText(), `{"asked":["asked","asked","asked"]}`; got != want {
			t.Errorf("state = %s, want %s", got, want)
		}
		if p.tokensCounted() != 45 || p.toolsCounted()["look"] != 3 || p.counted("call") != 3 || p.counted("hook") != 3 {
			t.Errorf("counted are %d tokens, %v executions, %v and %v; want 45, 3, 3 and 3",
				p.tokensCounted(), p.toolsCounted(), p.counted("call"), p.counted("hook"))
		}
		p.verifyOnce()
	}, failBefore, failAfter, dieBefore, dieAfter)
}

func TestBesideAnEffectOnlyTheEffectIsRecordedUnlessItEndsLast(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		slow string // the last tool to end
		want []string
	}{
		"the look-up ends last": {"look", []string{"plan", "result call_0", "commit 1", "commit 2"}},
		"the effect ends last":  {"pay", []string{"plan", "commit 1", "commit 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dieEverywhere(t, func(t *testing.T, c *death) {
				p := newSystem(t)
				run := func(ctx context.Context, call *agent.Call) (any, error) {
					if call.Tool == test.slow {
						pause(ctx, time.Second)
					}
					return "done " + call.ID, ctx.Err()
				}
				p.agents["demo"] = define("demo", stepReplies(callsReply("pay", `{}`, "look", `{}`), textReply("ok")),
					p.tool("pay", agent.RetryNever, run), readOnly(p.tool("look", "", run)))
				p.openMortal(c)
				if ended := p.end(p.startRun("s", "demo", "hi")); ended.GetStatus() != completed {
					t.Errorf("run = %v, want it completed", ended)
				}
				if c.hit == "" {
					equalLines(t, "writes", p.written("s"), test.want)
				}
				paid := "tool: [result call_0 done]"
				if c.hit != "" && p.conversation()[2] != paid {
					paid = "tool: [result call_0 unknown]"
				}
				equalLines(t, "messages", p.conversation(), []string{"user: hi", "assistant: [call_0 pay] [call_1 look]", paid, "tool: [result call_1 done]", "assistant: ok"})
				if p.executions()["call_0"] > 1 || strings.Contains(paid, "done") && p.toolsCounted()["pay"] != 1 || p.toolsCounted()["look"] != 1 {
					t.Errorf("executions = %v, counted = %v, want each once at most", p.executions(), p.toolsCounted())
				}
				p.verifyOnce()
			}, failAfter, dieBefore, dieAfter)
		})
	}
}

func TestALookUpThatWritesIsRecordedBehindItsPlanWhereverItsExecutorDies(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		look := readOnly(p.tool("look", agent.RetryNever, func(_ context.Context, call *agent.Call) (any, error) {
			putState(call, call.ID, "yes")
			return "done " + call.ID, nil
		}))
		a := define("demo", stepReplies(callsReply("look", `{}`, "glance", `{}`, "look", `{}`), textReply("ok")), look, readOnly(p.tool("glance", "", nil)))
		a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) { appendState(h, "asked") }
		p.agents["demo"] = a
		p.openMortal(c)
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		writes := p.written("s")
		slices.Sort(writes) // the calls run concurrently
		equalLines(t, "writes", writes, []string{"commit 1", "commit 2", "plan", "result call_0", "result call_2"})
		if got, want := p.stateText(), `{"asked":["asked","asked"],"call_0":"yes","call_2":"yes"}`; got != want {
			t.Errorf("state = %s, want %s", got, want)
		}
		if p.tokensCounted() != 30 || p.toolsCounted()["look"] != 2 || p.toolsCounted()["glance"] != 1 {
			t.Errorf("counted are %d tokens, %v; want 30, and each call once", p.tokensCounted(), p.toolsCounted())
		}
		p.verifyOnce()
	}, failBefore, failAfter, dieBefore, dieAfter)
}

func TestALookUpWhoseResultCannotBeKeptHasFailed(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(call *agent.Call) string{
		"it is too large":    func(*agent.Call) string { return strings.Repeat("x", 200_000) },
		"it writes too much": func(call *agent.Call) string { putState(call, "k", strings.Repeat("x", 600)); return "done" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				p.environ = []string{"HOLDFAST_STATE_MAX_RESULT_BYTES=100000", "HOLDFAST_STATE_MAX_STAGED_BYTES=500"}
				p.agents["demo"] = define("demo", stepReplies(callsReply("look", `{}`), textReply("ok")),
					readOnly(p.tool("look", "", func(_ context.Context, call *agent.Call) (any, error) { return do(call), nil })))
				p.open()
				if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
					t.Errorf("run = %v, want it completed", run)
				}
				equalLines(t, "messages", p.conversation(), []string{"user: hi", "assistant: [call_0 look]", "tool: [result call_0 failed]", "assistant: ok"})
				equalLines(t, "writes", p.written("s"), []string{"plan", "result call_0", "commit 1", "commit 2"})
				p.verifyOnce()
			})
		})
	}
}

func TestALookUpBesideACallOfTheClientIsSuspendedWithItsResult(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		p.agents["demo"] = define("demo", stepReplies(callsReply("look", `{}`, "locate", `{}`), textReply("ok")),
			readOnly(p.tool("look", "", nil)), agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
		p.openMortal(c)
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL {
			t.Errorf("run = %v, want it suspended", run)
		}
		equalLines(t, "writes", p.written("s"), []string{"plan", "commit 1"})
		p.answer("call_1", result(`"done call_1"`))
		if run := p.end(p.current()); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		equalLines(t, "messages", p.conversation(), []string{
			"user: hi", "assistant: [call_0 look] [call_1 locate]", "tool: [result call_0 done]", "tool: [result call_1 done]", "assistant: ok",
		})
		if p.toolsCounted()["look"] != 1 {
			t.Errorf("counted = %v, want one execution", p.toolsCounted())
		}
		p.verifyOnce()
	}, failBefore, failAfter, dieBefore, dieAfter)
}

func TestAStopInTheMiddleOfLookUpsEndsTheRunWhereverItsExecutorDies(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]statev1.StopKind{"interrupt": interrupt, "abort": abort} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dieEverywhere(t, func(t *testing.T, c *death) {
				p := newSystem(t)
				a := define("demo", stepReplies(callsReply("look", `{}`, "slow", `{}`), textReply("never")), readOnly(p.tool("look", "", nil)),
					readOnly(p.tool("slow", "", func(ctx context.Context, _ *agent.Call) (any, error) { <-ctx.Done(); return nil, ctx.Err() })))
				a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) { appendState(h, "asked") }
				p.agents["demo"] = a
				p.openMortal(c)
				run := p.startRun("s", "demo", "hi")
				p.until("the run is under way", func() bool { return p.run(run).GetAttempt() > 0 })
				time.Sleep(10 * time.Second)
				p.stopRun(run, kind, "")
				ended := p.end(run)
				if want := map[statev1.StopKind]statev1.RunStatus{interrupt: interrupted, abort: failed}[kind]; ended.GetStatus() != want {
					t.Errorf("run = %v, want it %v", ended, want)
				}
				if lines := p.conversation(); len(lines) > 1 {
					equalLines(t, "messages", lines, []string{"user: hi", "assistant: [call_0 look] [call_1 slow]", "tool: [result call_0 done]", "tool: [result call_1 unknown]"})
				}
				if got := p.stateText(); strings.Contains(got, "asked") { // the journal does not have it
					t.Errorf("state = %s, want nothing of the step", got)
				}
				p.verifyOnce()
			}, failAfter, dieBefore, dieAfter)
		})
	}
}

func TestLookUpsOfAnExecutorThatStopsAreMadeByTheNextAndTheTokensOfBothCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.config.DrainGrace = time.Second
		begun := make(chan struct{}, 1)
		p.agents["demo"] = define("demo", stepReplies(callsReply("look", `{}`, "slow", `{}`), textReply("ok")), readOnly(p.tool("look", "", nil)),
			readOnly(p.tool("slow", "", func(ctx context.Context, call *agent.Call) (any, error) {
				select {
				case begun <- struct{}{}: // in the first executor
					<-ctx.Done()
				default:
				}
				return "done " + call.ID, ctx.Err()
			})))
		first := p.open()
		run := p.startRun("s", "demo", "hi")
		synctest.Wait()
		first.stop()
		<-first.ended
		if len(p.released(run)) != 1 {
			t.Error("the run was not released")
		}
		p.open()
		if ended := p.end(run); ended.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", ended)
		}
		equalLines(t, "writes", p.written("s"), []string{"commit 1", "commit 2"})
		if p.tokensCounted() != 45 || p.toolsCounted()["look"] != 1 || p.toolsCounted()["slow"] != 1 {
			t.Errorf("counted are %d tokens, %v; want 45, and the calls that are committed", p.tokensCounted(), p.toolsCounted())
		}
		p.verifyOnce()
	})
}

func TestAResultThatNoCommitCouldCarryIsKeptWithTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.agents["demo"] = define("demo", stepReplies(callsReply("pay", `{}`), textReply("never")), p.tool("pay", agent.RetryNever, nil))
		refused := 0
		p.faults.refuse = func(request any) error {
			if r, ok := request.(*statev1.CommitStepRequest); !ok || r.GetOutcome() != nil {
				return nil
			}
			refused++
			return fault.New(fault.Invalid, "ODD", "no such step")
		}
		p.open()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != failed || refused != 1 {
			t.Errorf("run = %v after %d refusals, want it failed after one", run, refused)
		}
		equalLines(t, "messages", p.conversation(), []string{"user: hi", "assistant: [call_0 pay]", "tool: [result call_0 done]"})
		if p.toolsCounted()["pay"] != 1 || p.tokensCounted() != 15 {
			t.Errorf("counted = %v and %d tokens, want one execution and 15", p.toolsCounted(), p.tokensCounted())
		}
		p.verifyOnce()
	})
}

// A model may give another call the id of an unrecorded one.
func TestALookUpThatIsNotMadeAgainSharesNoKeyWithWhatTakesItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		asked := 0
		p.agents["demo"] = define("demo", modelFunc(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			if endsWithResults(r) {
				sendText(say, "ok")
				return nil
			}
			asked++
			sendCalls(say, "look", fmt.Sprintf(`{"n":%d}`, asked))
			return nil
		}), readOnly(p.tool("look", "", nil)))
		p.openMortal(&death{point: "call_reported", n: 1})
		p.end(p.startRun("s", "demo", "hi"))
		if keys := p.keys["call_0"]; p.executions()["call_0"] != 2 || len(keys) != 2 {
			t.Errorf("%d executions had the keys %v, want 2 keys of 2", p.executions()["call_0"], keys)
		}
	})
}
