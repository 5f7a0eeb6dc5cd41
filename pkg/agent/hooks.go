package agent

import (
	"context"
	"encoding/json"
	"time"
)

// Hooks are functions that the executor calls during a run. Each may be nil.
//
// An error or a panic is logged and has no effect, except in BeforeRun.
//
// The hooks of a tool call are called in this order: BeforeTool, the tool, OnStateChange, OnMessage,
// AfterTool.
//
// After a crash a hook may be called again for the same event. For a recorded reply of a model,
// AfterModel (with a zero ModelCall) and OnMessage are called again, BeforeModel is not: its writes
// were recorded with the reply. AfterRun is called at most once per end of a run, by the executor
// that committed the end. It is not called if that executor dies at this moment, or if the run
// fails before its agent is known.
//
// Changes of the custom state are committed with the step, exactly once: if a hook was called again,
// only the changes of the last call count. Changes in AfterRun are dropped.
type Hooks struct {
	// BeforeRun is called first when an executor claims the run. An error fails the run, and is the
	// error of the run.
	BeforeRun func(ctx context.Context, h *HookCall) error
	// OnStart is called before the first step of a new run, OnResume before the first step of a run
	// that continues another one.
	OnStart  func(ctx context.Context, h *HookCall)
	OnResume func(ctx context.Context, h *HookCall)

	BeforeModel func(ctx context.Context, h *HookCall, m ModelCall)
	AfterModel  func(ctx context.Context, h *HookCall, m ModelCall, reply Message, err error)
	BeforeTool  func(ctx context.Context, h *HookCall, call ToolCall)
	AfterTool   func(ctx context.Context, h *HookCall, call ToolCall, result ToolResult)
	// BeforeSubAgent is called for each call that a sub-agent answers, before the commit that gives the sub-agent its task.
	// AfterSubAgent is called when a run takes in the answer, before the commit with it. Messages to companions that the run does
	// not wait for are tools: see BeforeTool.
	BeforeSubAgent func(ctx context.Context, h *HookCall, call SubAgentCall)
	AfterSubAgent  func(ctx context.Context, h *HookCall, call SubAgentCall, result ToolResult)
	// OnStateChange receives the writes of one tool call, or of an earlier hook.
	OnStateChange func(ctx context.Context, h *HookCall, ops []Op)
	// OnMessage receives each message before the step appends it.
	OnMessage func(ctx context.Context, h *HookCall, m Message)

	// AfterRun is called after the end of the run is committed.
	AfterRun func(ctx context.Context, h *HookCall, end RunEnd)

	// Children calls the hooks for the runs of all sub-agents below as well, before those of the sub-agent. HookCall then
	// describes the run of the sub-agent, and writes go to its state. An executor that does not have the agent of the hooks, or
	// has it from a factory, does not call them.
	Children bool
}

// HookCall describes the run of a hook. Its Host is never nil.
type HookCall struct {
	Tenant, SessionID, RunID, AgentType string
	ParentSessionID                     string
	UserID                              string
	Tags                                []string
	Metadata                            map[string]string
	Turn                                int
	// Step is the current step, 0 outside of steps.
	Step int
	Host
}

// SubAgentCall is a call that a sub-agent answers.
type SubAgentCall struct {
	ToolCall
	// AgentType and SessionID are those of the sub-agent.
	AgentType, SessionID string
}

// ModelCall is a request to a model.
type ModelCall struct {
	// Model is provider/name.
	Model   string
	Attempt int
	System  string
	// Messages must not be modified.
	Messages []Message
	Tools    []string
}

// RunEnd describes the end of a run.
type RunEnd struct {
	// Status is completed, failed, interrupted or a suspended status.
	Status   string
	Output   json.RawMessage
	Error    string
	Code     string
	Steps    int
	Duration time.Duration // since the first claim
}

// Then returns hooks that call each hook of h and then the same hook of others. If BeforeRun of h
// fails, BeforeRun of others is not called. The result has no Children: it is for one run.
func (h Hooks) Then(others Hooks) Hooks {
	return Hooks{
		BeforeRun: func(ctx context.Context, c *HookCall) error {
			for _, f := range []func(context.Context, *HookCall) error{h.BeforeRun, others.BeforeRun} {
				if f == nil {
					continue
				}
				if err := f(ctx, c); err != nil {
					return err
				}
			}
			return nil
		},
		OnStart:     chain(h.OnStart, others.OnStart),
		OnResume:    chain(h.OnResume, others.OnResume),
		BeforeModel: chain2(h.BeforeModel, others.BeforeModel),
		AfterModel: func(ctx context.Context, c *HookCall, m ModelCall, reply Message, err error) {
			for _, f := range []func(context.Context, *HookCall, ModelCall, Message, error){h.AfterModel, others.AfterModel} {
				if f != nil {
					f(ctx, c, m, reply, err)
				}
			}
		},
		BeforeTool: chain2(h.BeforeTool, others.BeforeTool),
		AfterTool: func(ctx context.Context, c *HookCall, call ToolCall, result ToolResult) {
			for _, f := range []func(context.Context, *HookCall, ToolCall, ToolResult){h.AfterTool, others.AfterTool} {
				if f != nil {
					f(ctx, c, call, result)
				}
			}
		},
		BeforeSubAgent: chain2(h.BeforeSubAgent, others.BeforeSubAgent),
		AfterSubAgent: func(ctx context.Context, c *HookCall, call SubAgentCall, result ToolResult) {
			for _, f := range []func(context.Context, *HookCall, SubAgentCall, ToolResult){h.AfterSubAgent, others.AfterSubAgent} {
				if f != nil {
					f(ctx, c, call, result)
				}
			}
		},
		OnStateChange: chain2(h.OnStateChange, others.OnStateChange),
		OnMessage:     chain2(h.OnMessage, others.OnMessage),
		AfterRun:      chain2(h.AfterRun, others.AfterRun),
	}
}

func chain(first, second func(context.Context, *HookCall)) func(context.Context, *HookCall) {
	return func(ctx context.Context, c *HookCall) {
		if first != nil {
			first(ctx, c)
		}
		if second != nil {
			second(ctx, c)
		}
	}
}

func chain2[A any](first, second func(context.Context, *HookCall, A)) func(context.Context, *HookCall, A) {
	return func(ctx context.Context, c *HookCall, a A) {
		if first != nil {
			first(ctx, c, a)
		}
		if second != nil {
			second(ctx, c, a)
		}
	}
}
