package worker

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// callHooks calls the hooks around one call, one at a time. Their writes are recorded with those of the call, in
// the order of the hooks.
type callHooks struct {
	hooks    *hookRunner
	step     int
	toolCall agent.ToolCall
	state    agent.State // with the writes so far
	ops      []agent.Op
	usage    []*eventv1.UsageEntry
}

func (h *callHooks) call(ctx context.Context, name string, f func(ctx context.Context, c *agent.HookCall)) {
	effects, err := h.hooks.call(ctx, name, h.step, h.state, h.hooks.emitter(int32(h.step)), neverFails(f))
	h.usage = append(h.usage, effects.usage...)
	if err == nil {
		h.add(effects.ops)
	}
}

func (h *callHooks) add(ops []agent.Op) {
	h.ops = append(h.ops, ops...)
	h.state = applied(h.state, ops)
}

func (h *callHooks) before(ctx context.Context) {
	if f := h.hooks.hooks.BeforeTool; f != nil {
		h.call(ctx, "BeforeTool", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, h.toolCall) })
	}
}

// after calls the hooks after the tool, in the order of the specification.
func (h *callHooks) after(ctx context.Context, ran tool.Outcome) {
	hooks := h.hooks.hooks
	h.add(ran.Ops)
	if f := hooks.OnStateChange; f != nil && len(h.ops) > 0 {
		written := slices.Clone(h.ops)
		h.call(ctx, "OnStateChange", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, written) })
	}
	if f := hooks.OnMessage; f != nil && h.hooks.messaged.add(h.toolCall.ID) {
		message := agent.Message{Role: agent.RoleTool, Parts: []agent.Part{ran.Result}}
		h.call(ctx, "OnMessage", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, message) })
	}
	if f := hooks.AfterTool; f != nil {
		h.call(ctx, "AfterTool", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, h.toolCall, ran.Result) })
	}
}
