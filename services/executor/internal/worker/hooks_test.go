package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// hookLog has the calls of hooks in their order.
type hookLog struct {
	mu    sync.Mutex
	lines []string
}

func (d *hookLog) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *hookLog) count(line string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, l := range d.lines {
		if l == line {
			n++
		}
	}
	return n
}

func keys(ops []agent.Op) string {
	var list []string
	for _, op := range ops {
		list = append(list, string(op.Kind)+" "+op.Key)
	}
	return strings.Join(list, ", ")
}

// hooks returns hooks that write to the log, and their names to the state.
func (d *hookLog) hooks() agent.Hooks {
	step := func(h *agent.HookCall, name string) {
		if err := h.Update(func(draft agent.State) error {
			list, _ := draft["hooks"].([]any)
			draft["hooks"] = append(list, name)
			return nil
		}); err != nil {
			panic(err)
		}
	}
	return agent.Hooks{
		BeforeRun: func(ctx context.Context, h *agent.HookCall) error {
			d.add("BeforeRun step %d", h.Step)
			return h.Emit(ctx, "hello", map[string]int{"turn": h.Turn})
		},
		OnStart:  func(_ context.Context, h *agent.HookCall) { d.add("OnStart"); step(h, "OnStart") },
		OnResume: func(context.Context, *agent.HookCall) { d.add("OnResume") },
		BeforeModel: func(_ context.Context, h *agent.HookCall, m agent.ModelCall) {
			d.add("BeforeModel %d %s %d messages", h.Step, m.Model, len(m.Messages))
		},
		AfterModel: func(_ context.Context, h *agent.HookCall, _ agent.ModelCall, reply agent.Message, err error) {
			d.add("AfterModel %d parts, %v", len(reply.Parts), err)
			h.RecordUsage("replies", "all", 1)
		},
		BeforeTool: func(_ context.Context, h *agent.HookCall, c agent.ToolCall) {
			d.add("BeforeTool %s", c.Name)
			step(h, "BeforeTool")
		},
		AfterTool: func(_ context.Context, _ *agent.HookCall, c agent.ToolCall, r agent.ToolResult) {
			d.add("AfterTool %s %v", c.Name, r.Success)
		},
		OnStateChange: func(_ context.Context, _ *agent.HookCall, ops []agent.Op) { d.add("OnStateChange %s", keys(ops)) },
		OnMessage: func(_ context.Context, _ *agent.HookCall, m agent.Message) {
			d.add("OnMessage %s", m.Role)
		},
		AfterRun: func(_ context.Context, _ *agent.HookCall, end agent.RunEnd) {
			d.add("AfterRun %s after %d steps", end.Status, end.Steps)
		},
	}
}

func withHookLog(p *system, d *hookLog) catalog.Agent {
	a := define("demo", stepReplies(callsReply("count", `{}`), textReply("done")), p.tool("count", agent.RetrySafe, func(ctx context.Context, c *agent.Call) (any, error) {
		d.add("the tool")
		c.RecordUsage("counted", "all", 2)
		if err := c.Emit(ctx, "half", 50); err != nil {
			return nil, err
		}
		return "done " + c.ID, c.Update(func(draft agent.State) error {
			draft["n"] = 1
			return nil
		})
	}))
	a.Hooks = d.hooks()
	return a
}

func TestHooksAreCalledInTheOrderOfTheSpecificationAndWriteWithTheStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, d := newSystem(t), &hookLog{}
		p.agents["demo"] = withHookLog(p, d)
		p.open()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Fatalf("run = %v", run)
		}
		equalLines(t, "hooks", d.lines, []string{
			"BeforeRun step 0", "OnStart", "OnStateChange replace hooks",
			"BeforeModel 1 fake/mind 1 messages", "AfterModel 1 parts, <nil>", "OnMessage assistant",
			"BeforeTool count", "the tool", "OnStateChange append hooks, replace n", "OnMessage tool", "AfterTool count true",
			"BeforeModel 2 fake/mind 3 messages", "AfterModel 1 parts, <nil>", "OnMessage assistant",
			"AfterRun completed after 2 steps",
		})
		equalLines(t, "stream", streamLines(p.records("s")), []string{
			"0 run_started 1", "0 custom", "1 step_started", "1 args call_0 {}", "1 start call_0", "1 custom", "1 state_patch", "1 end call_0",
			"1 state_patch", "1 step_committed", "2 step_started", "2 text done", "2 step_committed", `2 run_completed "done"`, `END "done"`,
		})
		var counted []string
		for _, u := range p.usage() {
			if c := u.GetCustom(); c != nil {
				counted = append(counted, fmt.Sprintf("%s %s %v", u.GetSource(), c.GetType(), c.GetValue()))
			}
		}
		equalLines(t, "usage", counted, []string{"agent replies 1", "tool counted 2", "agent replies 1"})
	})
}

// Only the owner that has committed the end calls AfterRun. If it dies first, the hook is missed.
func TestHooksSeeTheEndOfARunOnceUnlessItsExecutorDiesWithTheCommit(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p, d := newSystem(t), &hookLog{}
		p.agents["demo"] = withHookLog(p, d)
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		got, missed := d.count("AfterRun completed after 2 steps"), p.runsOf("s")[0].GetAttempt() == 1 && p.died()
		if want := map[bool]int{false: 1, true: 0}[missed]; got != want {
			t.Errorf("hooks = %q, want the end of the run %d times", d.lines, want)
		}
		if n := p.customState("s")["n"]; fmt.Sprint(n) != "1" {
			t.Errorf("state = %v, want what the tool has written", p.customState("s"))
		}
		p.verifyOnce()
	})
}

func TestARunThatAHookRefusesFailsWithTheHooksWords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := define("demo", stepReplies(textReply("never")))
		a.Hooks.BeforeRun = func(context.Context, *agent.HookCall) error { return errors.New("Not today.") }
		p.agents["demo"] = a
		p.open()
		run := p.end(p.startRun("s", "demo", "hi"))
		if run.GetStatus() != failed || run.GetFailure().GetCode() != "framework_run_refused" || run.GetFailure().GetError() != "Not today." {
			t.Errorf("run = %v, want it refused", run)
		}
		equalLines(t, "stream", streamLines(p.records("s")), []string{"0 run_started 1", "0 error", "END Not today."})
	})
}

func TestAHookThatPanicsOrHangsChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply("count", `{}`), textReply("done")), p.tool("count", agent.RetrySafe, nil))
		a.Hooks = agent.Hooks{
			BeforeModel: func(context.Context, *agent.HookCall, agent.ModelCall) { panic("a hook") },
			BeforeTool: func(ctx context.Context, h *agent.HookCall, _ agent.ToolCall) {
				_ = h.Update(func(draft agent.State) error { draft["late"] = true; return nil })
				<-ctx.Done()
			},
			AfterRun: func(context.Context, *agent.HookCall, agent.RunEnd) { panic("another") },
		}
		p.agents["demo"] = a
		p.config.HookTimeout = time.Second
		p.open()
		run := p.end(p.startRun("s", "demo", "hi"))
		if run.GetStatus() != completed || len(p.customState("s")) != 0 || p.executions()["call_0"] != 1 {
			t.Errorf("run = %v, state %v, executions %v; want it completed as without hooks", run, p.customState("s"), p.executions())
		}
	})
}

func TestTheStateOfANewSessionHasTheDefaultsOfItsSchema(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply("add", `{}`, "add", `{}`), textReply("done")), p.tool("add", agent.RetrySafe, func(_ context.Context, c *agent.Call) (any, error) {
			if c.State()["unit"] != "C" {
				t.Errorf("state = %v, want the defaults", c.State())
			}
			return "done " + c.ID, c.Update(func(draft agent.State) error {
				list, _ := draft["list"].([]any)
				draft["list"] = append(list, c.ID)
				return nil
			})
		}))
		a.StateSchema = []byte(`{"type":"object","properties":{"unit":{"type":"string","default":"C"},"list":{"type":"array","default":["first"]}}}`)
		p.agents["demo"] = a
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		state := p.customState("s")
		if state["unit"] != "C" || fmt.Sprint(state["list"]) != "[first call_0 call_1]" {
			t.Errorf("state = %v, want the defaults and both calls", state)
		}
		p.verifyOnce()
	})
}

// A branch has messages of steps, but neither a step nor a checkpoint of its own.
func TestABranchKeepsTheStateThatItWasMadeWith(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		a := define("demo", stepReplies(textReply("first"), textReply("second"), textReply("third")))
		a.StateSchema = []byte(`{"type":"object","properties":{"unit":{"type":"string","default":"C"},"list":{"type":"array","default":["first"]}}}`)
		p.agents["demo"] = a
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		p.end(p.branch("s", "b", "and then?", &statev1.StateOp{Key: "unit", Op: &statev1.StateOp_Replace{Replace: `"F"`}}, &statev1.StateOp{Key: "list", Op: &statev1.StateOp_Delete{Delete: true}}))
		if state := p.customState("b"); fmt.Sprint(state) != "map[unit:F]" {
			t.Errorf("state = %v, want that of the branch", state)
		}
		p.end(p.startRun("n", "demo", "hi"))
		if state := p.customState("n"); fmt.Sprint(state) != "map[list:[first] unit:C]" {
			t.Errorf("state = %v, want the defaults", state)
		}
	})
}

func TestStateThatCannotBeKeptFailsTheCallAndNotTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.environ = []string{"HOLDFAST_STATE_MAX_STAGED_BYTES=100"}
		a := define("demo", stepReplies(callsReply("big", `{}`), textReply("done")), p.tool("big", agent.RetrySafe, func(_ context.Context, c *agent.Call) (any, error) {
			return "done", c.Update(func(draft agent.State) error { draft["big"] = strings.Repeat("x", 200); return nil })
		}))
		a.Hooks.OnStart = func(_ context.Context, h *agent.HookCall) {
			_ = h.Update(func(draft agent.State) error { draft["huge"] = strings.Repeat("y", 200); return nil })
		}
		p.agents["demo"] = a
		p.open()
		run := p.end(p.startRun("s", "demo", "hi"))
		results := p.messages("s")[2].GetParts()
		if r := results[0].GetToolResult(); run.GetStatus() != completed || !r.GetSynthetic() || !strings.Contains(r.GetError(), "state_size_exceeded") {
			t.Errorf("run = %v, result %v; want a failed result and a completed run", run, r)
		}
		if len(p.customState("s")) != 0 {
			t.Errorf("state = %v, want nothing of it", p.customState("s"))
		}
	})
}

func TestUsageOfFailedAttemptsIsStoredWithTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.agents["demo"] = define("demo", modelFunc(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "I c"})
			say(model.Usage{PromptTokens: 7, CompletionTokens: 1, TotalTokens: 8})
			return &model.Error{Code: model.CodeOverloaded, Retryable: true}
		}))
		p.open()
		run := p.end(p.startRun("s", "demo", "hi"))
		total := int64(0)
		for _, u := range p.usage() {
			total += u.GetTokens().GetTotalTokens()
		}
		if run.GetStatus() != failed || total != 4*8 || p.usage()[0].GetTokens().GetModel() != "fake/mind" {
			t.Errorf("run = %v with usage %v, want that of four attempts", run, p.usage())
		}
	})
}

func TestARunWithWhichExecutorsAreLostAgainAndAgainFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, _ func(model.Event) bool) error {
			<-ctx.Done()
			return ctx.Err()
		})))
		run := p.startRun("s", "demo", "hi")
		for losses := range int32(5) {
			e := p.open()
			p.until("the run is claimed", func() bool { return p.run(run).GetAttempt() == losses+1 })
			e.connection.kill()
			e.stop()
		}
		p.open()
		ended := p.end(run)
		if ended.GetStatus() != failed || ended.GetFailure().GetCode() != "framework_run_lost" {
			t.Errorf("run = %v, want it failed", ended)
		}
	})
}

func TestARunThatFinishesBesideOtherCallsRunsThemFirst(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply(agent.FinishTool, `{"city":"Rome"}`, "count", `{}`)), p.tool("count", agent.RetrySafe, nil))
		a.OutputSchema = []byte(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)
		p.agents["demo"] = a
		p.openMortal(c)
		run := p.end(p.startRun("s", "demo", "hi"))
		if run.GetStatus() != completed || run.GetOutput() != `{"city":"Rome"}` || p.executions()["call_1"] == 0 {
			t.Errorf("run = %v with the executions %v, want its output after the other call", run, p.executions())
		}
		got := streamLines(p.records("s"))
		if at := slices.Index(got, "1 output"); at < 0 || got[at+1] != "1 step_committed" || got[len(got)-1] != `END {"city":"Rome"}` {
			t.Errorf("stream = %s, want the output in the step", strings.Join(got, "\n"))
		}
		p.verifyOnce()
	}, dieBefore, dieAfter)
}
