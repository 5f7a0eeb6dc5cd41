package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// promptLog has the custom states seen by prompts, by the number of messages in the request.
type promptLog struct {
	mu   sync.Mutex
	seen map[int][]string
}

// agent returns an agent whose prompt is its state.
func (s *promptLog) agent(m modelFunc, tools ...agent.Tool) catalog.Agent {
	s.seen = map[int][]string{}
	a := define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
		s.mu.Lock()
		s.seen[len(r.Messages)] = append(s.seen[len(r.Messages)], r.System)
		s.mu.Unlock()
		return m(ctx, r, say)
	}), tools...)
	a.Prompt = func(_ context.Context, run *agent.RunView) (string, error) {
		text, err := json.Marshal(run.State)
		return string(text), err
	}
	return a
}

// verify checks that all prompts with so many messages were the same one.
func (s *promptLog) verify(t *testing.T, messages int, want string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := slices.Compact(slices.Clone(s.seen[messages])); !slices.Equal(got, []string{want}) {
		t.Errorf("prompts with %d messages = %q, want %s", messages, got, want)
	}
}

func putState(h agent.Host, key, value string) {
	if err := h.Update(func(draft agent.State) error { draft[key] = value; return nil }); err != nil {
		panic(err)
	}
}

func TestAKeyThatAHookAndAToolWriteIsTheSameToPromptsReadersAndTheStateService(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p, seen := newSystem(t), &promptLog{}
		a := seen.agent(stepReplies(callsReply("write", `{}`), textReply("done")), p.tool("write", agent.RetrySafe, func(_ context.Context, c *agent.Call) (any, error) {
			putState(c, "k", "tool")
			return "done " + c.ID, nil
		}))
		a.Hooks = agent.Hooks{
			BeforeRun: func(_ context.Context, h *agent.HookCall) error {
				if h.State()["run"] == nil {
					putState(h, "run", "before")
				}
				return nil
			},
			OnStart: func(_ context.Context, h *agent.HookCall) { putState(h, "start", "on") },
			BeforeModel: func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) {
				if h.Step == 1 {
					putState(h, "k", "hook")
				}
			},
		}
		p.agents["demo"] = a
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		want := `{"k":"tool","run":"before","start":"on"}`
		if got, _ := json.Marshal(p.customState("s")); string(got) != want {
			t.Errorf("state = %s, want %s", got, want)
		}
		seen.verify(t, 1, `{"run":"before","start":"on"}`)
		seen.verify(t, 3, want)
		p.verifyOnce()
	}, dieBefore, dieAfter)
}

// appendState appends the key to a list under the key.
func appendState(h agent.Host, key string) {
	if err := h.Update(func(draft agent.State) error {
		list, _ := draft[key].([]any)
		draft[key] = append(list, key)
		return nil
	}); err != nil {
		panic(err)
	}
}

// countingHooks returns hooks of every point, each with a write.
func countingHooks() agent.Hooks {
	at := func(h *agent.HookCall, point string) { appendState(h, fmt.Sprintf("%s %d", point, h.Step)) }
	return agent.Hooks{
		BeforeRun: func(_ context.Context, h *agent.HookCall) error {
			putState(h, "BeforeRun", "yes") // the same for each executor
			return nil
		},
		OnStart:     func(_ context.Context, h *agent.HookCall) { at(h, "OnStart") },
		BeforeModel: func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) { at(h, "BeforeModel") },
		AfterModel: func(_ context.Context, h *agent.HookCall, _ agent.ModelCall, _ agent.Message, _ error) {
			at(h, "AfterModel")
		},
		BeforeTool:    func(_ context.Context, h *agent.HookCall, _ agent.ToolCall) { at(h, "BeforeTool") },
		AfterTool:     func(_ context.Context, h *agent.HookCall, _ agent.ToolCall, _ agent.ToolResult) { at(h, "AfterTool") },
		OnStateChange: func(_ context.Context, h *agent.HookCall, _ []agent.Op) { putState(h, "OnStateChange", "yes") },
		OnMessage:     func(_ context.Context, h *agent.HookCall, m agent.Message) { at(h, "OnMessage "+string(m.Role)) },
		AfterRun:      func(_ context.Context, h *agent.HookCall, _ agent.RunEnd) { at(h, "AfterRun") },
	}
}

func TestWhatHooksWriteIsInTheStateOnceWhereverTheirExecutorDies(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply("write", `{}`), textReply("done")), p.tool("write", agent.RetrySafe, func(_ context.Context, c *agent.Call) (any, error) {
			appendState(c, "tool")
			return "done " + c.ID, nil
		}))
		a.Hooks = countingHooks()
		p.agents["demo"] = a
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		var got []string
		state := p.customState("s")
		for _, key := range slices.Sorted(maps.Keys(state)) {
			got = append(got, fmt.Sprint(key, " ", state[key]))
		}
		want := []string{
			"AfterModel 1 [AfterModel 1]", "AfterModel 2 [AfterModel 2]", "AfterTool 1 [AfterTool 1]", "BeforeModel 1 [BeforeModel 1]",
			"BeforeModel 2 [BeforeModel 2]", "BeforeRun yes", "BeforeTool 1 [BeforeTool 1]", "OnMessage assistant 1 [OnMessage assistant 1]",
			"OnMessage assistant 2 [OnMessage assistant 2]", "OnMessage tool 1 [OnMessage tool 1]", "OnStart 0 [OnStart 0]",
			"OnStateChange yes", "tool [tool]",
		}
		equalLines(t, "state", got, want)
		p.verifyOnce()
	}, dieBefore, dieAfter)
}

func TestUsageOfHooksThatSeeARecordedReplyAgainCountsOnce(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		if c.point != worker.PointPlanRecorded && c.point != worker.PointCallReported {
			return
		}
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply("write", `{}`), textReply("done")), p.tool("write", agent.RetrySafe, nil))
		a.Hooks.OnStart = func(_ context.Context, h *agent.HookCall) { h.RecordUsage("seen", "start", 1) }
		a.Hooks.AfterModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall, _ agent.Message, _ error) {
			h.RecordUsage("seen", "reply", 1)
		}
		a.Hooks.OnMessage = func(_ context.Context, h *agent.HookCall, m agent.Message) { h.RecordUsage("seen", string(m.Role), 1) }
		p.agents["demo"] = a
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		counts := map[string]float64{}
		for _, u := range p.usage() {
			if u.GetCustom() != nil {
				counts[u.GetCustom().GetName()] += u.GetCustom().GetValue()
			}
		}
		if want := map[string]float64{"start": 1, "reply": 2, "assistant": 2, "tool": 1}; !maps.Equal(counts, want) {
			t.Errorf("usage = %v, want %v", counts, want)
		}
	})
}

func TestReadersForgetWhatHooksHaveWrittenAndTheCommitDrops(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p, seen := newSystem(t), &promptLog{}
		p.environ = []string{"HOLDFAST_STATE_MAX_STAGED_BYTES=100"}
		a := seen.agent(stepReplies(callsReply("write", `{}`), textReply("done")), p.tool("write", agent.RetrySafe, func(_ context.Context, c *agent.Call) (any, error) {
			putState(c, "k", "tool")
			return "done " + c.ID, nil
		}))
		a.Hooks.OnStart = func(_ context.Context, h *agent.HookCall) {
			putState(h, "huge", strings.Repeat("x", 200))
			putState(h, "k", "hook")
		}
		a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) {
			if h.Step == 2 { // no other hook or tool writes in it
				putState(h, "huge", strings.Repeat("x", 200))
			}
		}
		p.agents["demo"] = a
		p.openMortal(c)
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		want := `{"k":"tool"}`
		if got, _ := json.Marshal(p.customState("s")); string(got) != want {
			t.Errorf("state = %s, want %s", got, want)
		}
		seen.verify(t, 3, want)
		p.verifyOnce()
	}, failBefore, failAfter, dieBefore, dieAfter)
}
