package agent_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

func TestHooksAreCalledOneAfterTheOther(t *testing.T) {
	t.Parallel()
	var called []string
	hooks := func(name string, err error) agent.Hooks {
		note := func(point string) { called = append(called, name+" "+point) }
		return agent.Hooks{
			BeforeRun:      func(context.Context, *agent.HookCall) error { note("before run"); return err },
			OnStart:        func(context.Context, *agent.HookCall) { note("start") },
			BeforeTool:     func(context.Context, *agent.HookCall, agent.ToolCall) { note("before tool") },
			AfterTool:      func(context.Context, *agent.HookCall, agent.ToolCall, agent.ToolResult) { note("after tool") },
			AfterModel:     func(context.Context, *agent.HookCall, agent.ModelCall, agent.Message, error) { note("after model") },
			BeforeSubAgent: func(context.Context, *agent.HookCall, agent.SubAgentCall) { note("before sub-agent") },
			AfterSubAgent:  func(context.Context, *agent.HookCall, agent.SubAgentCall, agent.ToolResult) { note("after sub-agent") },
		}
	}
	both := hooks("host", nil).Then(agent.Hooks{}).Then(hooks("own", nil))
	if err := both.BeforeRun(t.Context(), nil); err != nil {
		t.Errorf("BeforeRun: %v", err)
	}
	both.OnStart(t.Context(), nil)
	both.OnResume(t.Context(), nil) // neither has one
	both.BeforeTool(t.Context(), nil, agent.ToolCall{})
	both.AfterTool(t.Context(), nil, agent.ToolCall{}, agent.ToolResult{})
	both.AfterModel(t.Context(), nil, agent.ModelCall{}, agent.Message{}, nil)
	both.BeforeSubAgent(t.Context(), nil, agent.SubAgentCall{})
	both.AfterSubAgent(t.Context(), nil, agent.SubAgentCall{}, agent.ToolResult{})
	want := []string{
		"host before run", "own before run", "host start", "own start", "host before tool", "own before tool",
		"host after tool", "own after tool", "host after model", "own after model",
		"host before sub-agent", "own before sub-agent", "host after sub-agent", "own after sub-agent",
	}
	if !slices.Equal(called, want) {
		t.Errorf("called %q, want %q", called, want)
	}
	called = nil
	no := errors.New("no")
	if err := hooks("host", no).Then(hooks("own", nil)).BeforeRun(t.Context(), nil); !errors.Is(err, no) || !slices.Equal(called, []string{"host before run"}) {
		t.Errorf("BeforeRun = %v behind %q, want the first error", err, called)
	}
}
