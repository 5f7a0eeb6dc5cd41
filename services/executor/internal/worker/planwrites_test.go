package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// appendLog appends to a list in the state.
func appendLog(h agent.Host, format string, args ...any) {
	if err := h.Update(func(draft agent.State) error {
		list, _ := draft["log"].([]any)
		draft["log"], draft["last"] = append(list, fmt.Sprintf(format, args...)), fmt.Sprintf(format, args...)
		return nil
	}); err != nil {
		panic(err)
	}
}

// loggingAgent is an agent whose model fails once in the first step. Its hooks and its tool append to the log.
func loggingAgent(p *system) catalog.Agent {
	var attempt atomic.Int32
	answers := stepReplies(callsReply("write", `{}`, "write", `{}`), callsReply("write", `{}`), textReply("done"))
	a := define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
		if !endsWithResults(r) && attempt.Load() == 1 {
			return &model.Error{Code: model.CodeOverloaded, Retryable: true}
		}
		return answers(ctx, r, say)
	}), p.tool("write", agent.RetrySafe, func(_ context.Context, c *agent.Call) (any, error) {
		appendLog(c, "%s", c.ID)
		return "done " + c.ID, nil
	}))
	a.StateSchema = []byte(`{"type":"object","properties":{"log":{"type":"array","default":["first"]}}}`)
	a.Hooks = agent.Hooks{
		OnStart: func(_ context.Context, h *agent.HookCall) {
			appendLog(h, "OnStart beside others %t", h.State()["asked"] != nil)
		},
		BeforeModel: func(_ context.Context, h *agent.HookCall, m agent.ModelCall) {
			attempt.Store(int32(m.Attempt))
			appendLog(h, "BeforeModel %d of step %d", m.Attempt, h.Step)
			appendState(h, "asked")
		},
		AfterModel: func(_ context.Context, h *agent.HookCall, _ agent.ModelCall, _ agent.Message, err error) {
			appendLog(h, "AfterModel of step %d, %v", h.Step, err != nil)
		},
		OnMessage: func(_ context.Context, h *agent.HookCall, m agent.Message) {
			if m.Role == agent.RoleAssistant {
				appendLog(h, "OnMessage of step %d", h.Step)
			}
		},
	}
	return a
}

// Once a reply is recorded, no later owner repeats the writes that led to it. Before that, the owner that calls
// the model again does.
func TestTheStateIsThatOfTheUncutRunWhereverTheOwnerOfAPlanDies(t *testing.T) {
	t.Parallel()
	want := ""
	hit := dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		p.agents["demo"] = loggingAgent(p)
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		got := p.stateText()
		if c.hit == "" && want == "" {
			want = got
			for _, part := range []string{
				`"first","OnStart beside others false","BeforeModel 1 of step 1","AfterModel of step 1, true","BeforeModel 2 of step 1","AfterModel of step 1, false","OnMessage of step 1","call_0",`,
				`"call_1","BeforeModel 1 of step 2","AfterModel of step 2, false","OnMessage of step 2","call_0_1","BeforeModel 1 of step 3","AfterModel of step 3, false","OnMessage of step 3"]`,
				`"asked":["asked","asked","asked","asked"]`,
			} {
				if !strings.Contains(want, part) {
					t.Errorf("state = %s, want %s in it", want, part)
				}
			}
		}
		if got != want {
			t.Errorf("state = %s,\nwant    %s", got, want)
		}
		p.verifyOnce()
	}, dieBefore, dieAfter)
	for _, point := range []worker.Point{worker.PointPlanRecorded, worker.PointCallRecorded, worker.PointCallsEnded, worker.PointCommitBegins} {
		if !hit[string(point)] {
			t.Errorf("no run was cut at %s", point)
		}
	}
}

// stateHooksAgent is an agent with hooks that write before and after the reply, and with a tool that runs the
// function.
func stateHooksAgent(p *system, run func(ctx context.Context) error) catalog.Agent {
	a := define("demo", stepReplies(callsReply("write", `{}`, "hang", `{}`), textReply("ok")), p.tool("write", agent.RetrySafe, func(_ context.Context, c *agent.Call) (any, error) {
		putState(c, "tool", "yes")
		return "done " + c.ID, nil
	}), p.tool("hang", agent.RetrySafe, func(ctx context.Context, _ *agent.Call) (any, error) { return nil, run(ctx) }))
	a.Hooks.OnStart = func(_ context.Context, h *agent.HookCall) { putState(h, "start", "yes") }
	a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) { putState(h, "before", "yes") }
	a.Hooks.AfterModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall, _ agent.Message, _ error) {
		putState(h, "after", "yes")
	}
	return a
}

// The writes recorded with the plan count like those of the recorded calls.
func TestACutStepKeepsTheWritesInItsJournal(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		p.agents["demo"] = stateHooksAgent(p, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		p.openMortal(c)
		run := p.startRun("s", "demo", "hi")
		p.until("a result", func() bool {
			return len(p.recordedResults("s")) > 0 || !live(p.run(run))
		})
		p.stopRun(run, abort, "")
		if ended := p.end(run); ended.GetStatus() != failed {
			t.Errorf("run = %v, want it aborted", ended)
		}
		if got, want := p.stateText(), `{"before":"yes","tool":"yes"}`; got != want {
			t.Errorf("state = %s, want %s", got, want)
		}
		p.verifyOnce()
	}, dieBefore, dieAfter)
}

func TestALostRunKeepsTheWritesInItsJournal(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		if c.point != worker.PointPlanRecorded && c.point != worker.PointCallsEnded && c.point != worker.PointCommitBegins || c.n > 1 {
			return
		}
		p := newSystem(t)
		p.config.MaxLosses = 1
		p.agents["demo"] = stateHooksAgent(p, func(context.Context) error { return nil })
		p.openMortal(c)
		run := p.end(p.startRun("s", "demo", "hi"))
		if run.GetFailure().GetCode() != "framework_run_lost" {
			t.Errorf("run = %v, want it given up", run)
		}
		want := `{"before":"yes","tool":"yes"}`
		if c.point == worker.PointPlanRecorded {
			want = `{"before":"yes"}`
		}
		if got := p.stateText(); got != want {
			t.Errorf("state = %s, want %s", got, want)
		}
		p.verifyOnce()
	})
}

// The plan is recorded without such writes, and every owner comes to the same state.
func TestWhatCannotBeRecordedWithThePlanIsDroppedForEveryOwner(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		p.environ = []string{"HOLDFAST_STATE_MAX_STAGED_BYTES=100"}
		a := stateHooksAgent(p, func(context.Context) error { return nil })
		a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) {
			if h.Step == 1 {
				putState(h, "before", strings.Repeat("x", 200))
			}
		}
		p.agents["demo"] = a
		p.openMortal(c)
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		if got, want := p.stateText(), `{"after":"yes","start":"yes","tool":"yes"}`; got != want {
			t.Errorf("state = %s, want %s", got, want)
		}
		p.verifyOnce()
	}, failBefore, failAfter, dieBefore, dieAfter)
}
