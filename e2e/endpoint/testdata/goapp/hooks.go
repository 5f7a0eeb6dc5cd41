package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// hooked tells the ledger of each call of a hook. If its state says so, hooks also have effects.
func (o outside) hooked() agent.Agent {
	tell := o.tell
	return agent.Agent{
		Name: "hooked", SystemPrompt: "You have hooks.",
		Tools: []agent.Tool{o.tool("act", nil), o.tool("act_asked", func(t *agent.Tool) { t.Approval = true })},
		Hooks: agent.Hooks{
			BeforeRun: func(ctx context.Context, h *agent.HookCall) error {
				tell(ctx, h, "beforeRun turn %d of %s", h.Turn, h.UserID)
				if text, ok := h.State()["refuse"].(string); ok {
					return errors.New(text)
				}
				return nil
			},
			OnStart: func(ctx context.Context, h *agent.HookCall) {
				tell(ctx, h, "onStart")
				if h.State()["busy"] == true {
					h.Emit(ctx, "started", map[string]any{"turn": h.Turn})
					h.SetMetadata(ctx, map[string]any{"mood": "busy"})
					h.Update(func(draft agent.State) error { draft["started"] = true; return nil })
					h.RecordUsage("hooks", "started", 2)
				}
				if h.State()["broken"] == true {
					panic("the hook is broken")
				}
			},
			OnResume: func(ctx context.Context, h *agent.HookCall) { tell(ctx, h, "onResume") },
			BeforeModel: func(ctx context.Context, h *agent.HookCall, m agent.ModelCall) {
				tell(
					ctx, h, "beforeModel %s attempt %d, %d messages, tools %s, %s", m.Model, m.Attempt, len(m.Messages),
					strings.Join(m.Tools, " "), m.System,
				)
			},
			AfterModel: func(ctx context.Context, h *agent.HookCall, m agent.ModelCall, reply agent.Message, err error) {
				tell(ctx, h, "afterModel %s says %q with %d calls, failed %v", m.Model, reply.Text(), len(reply.Calls()), err != nil)
			},
			BeforeTool: func(ctx context.Context, h *agent.HookCall, call agent.ToolCall) {
				tell(ctx, h, "beforeTool %s", call.Name)
			},
			AfterTool: func(ctx context.Context, h *agent.HookCall, call agent.ToolCall, result agent.ToolResult) {
				tell(ctx, h, "afterTool %s success %v %s%s", call.Name, result.Success, result.Result, result.Error)
			},
			OnStateChange: func(ctx context.Context, h *agent.HookCall, ops []agent.Op) {
				var texts []string
				for _, op := range ops {
					texts = append(texts, fmt.Sprintf("%s %s %s", op.Kind, op.Key, op.Value))
				}
				tell(ctx, h, "onStateChange %s", strings.Join(texts, ", "))
			},
			OnMessage: func(ctx context.Context, h *agent.HookCall, m agent.Message) {
				tell(ctx, h, "onMessage %s %q", m.Role, m.Text())
			},
			AfterRun: func(ctx context.Context, h *agent.HookCall, end agent.RunEnd) {
				tell(ctx, h, "afterRun %s %s%s steps %d", end.Status, end.Output, end.Error, end.Steps)
			},
		},
	}
}

// tell tells the ledger of the call of a hook.
func (o outside) tell(ctx context.Context, h *agent.HookCall, format string, args ...any) {
	_ = o.post(ctx, "", h.SessionID+"/"+fmt.Sprintf(format, args...)) // the suite misses what is lost
}

// leading has hooks around its sub-agent.
func (o outside) leading() agent.Agent {
	return agent.Agent{
		Name: "leading", SystemPrompt: "You lead.", Tools: []agent.Tool{agent.SubAgent[agent.Task]("worker", "Does a part.")},
		Hooks: agent.Hooks{
			BeforeSubAgent: func(ctx context.Context, h *agent.HookCall, call agent.SubAgentCall) {
				o.tell(ctx, h, "beforeSubAgent %s by %s, another session %v", call.Name, call.AgentType, call.SessionID != h.SessionID)
				h.Update(func(draft agent.State) error { draft["asked"] = call.AgentType; return nil })
			},
			AfterSubAgent: func(ctx context.Context, h *agent.HookCall, call agent.SubAgentCall, result agent.ToolResult) {
				o.tell(ctx, h, "afterSubAgent %s by %s, success %v %s", call.Name, call.AgentType, result.Success, result.Result)
			},
		},
	}
}
