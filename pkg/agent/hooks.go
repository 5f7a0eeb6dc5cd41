package agent

import (
	"context"
	"encoding/json"
	"time"
)

// Hooks are called at points of a run. Each may be nil. An error or panic of a hook
// is logged and changes nothing, except of BeforeRun. After a crash a hook may be
// called again for what it has seen: AfterModel (with the zero ModelCall) and OnMessage
// for a reply that was recorded. BeforeModel is not: what it has written was recorded with
// the reply. AfterRun is called at most once for each end of a run: by the executor that has
// made the end durable. It is missed when that executor dies at this moment, and when a run
// fails before its agent is known.
//
// Changes of the custom state are written with the step, each once, however often an executor
// is lost: of a hook that is called again only those of the call that the step is committed
// behind count. Those of AfterRun are dropped.
//
// The order of a call's hooks is the specification's: BeforeTool, the tool,
// OnStateChange, OnMessage, AfterTool.
type Hooks struct {
	// BeforeRun is called when an executor takes the run up, before anything is
	// done for it. An error fails the run with its text.
	BeforeRun func(ctx context.Context, h *HookCall) error
	// OnStart is called before the first step of a run that was started, OnResume of one
	// that goes on where another has stopped.
	OnStart  func(ctx context.Context, h *HookCall)
	OnResume func(ctx context.Context, h *HookCall)

	BeforeModel func(ctx context.Context, h *HookCall, m ModelCall)
	AfterModel  func(ctx context.Context, h *HookCall, m ModelCall, reply Message, err error)
	BeforeTool  func(ctx context.Context, h *HookCall, call ToolCall)
	AfterTool   func(ctx context.Context, h *HookCall, call ToolCall, result ToolResult)
	// OnStateChange sees the writes of one call, or of a hook before them.
	OnStateChange func(ctx context.Context, h *HookCall, ops []Op)
	// OnMessage sees each message that the step is about to append.
	OnMessage func(ctx context.Context, h *HookCall, m Message)

	// AfterRun is called when the end of the run is durable.
	AfterRun func(ctx context.Context, h *HookCall, end RunEnd)
}

// HookCall is where a hook is called. Its Host is never nil.
type HookCall struct {
	Tenant, SessionID, RunID, AgentType string
	ParentSessionID                     string
	UserID                              string
	Tags                                []string
	Metadata                            map[string]string
	Turn                                int
	// Step is the step in flight, 0 outside of steps.
	Step int
	Host
}

// ModelCall is a call of a model.
type ModelCall struct {
	// Model is provider/name.
	Model   string
	Attempt int
	System  string
	// Messages is what the model is shown. Not to be changed.
	Messages []Message
	Tools    []string
}

// RunEnd is how a run ended.
type RunEnd struct {
	// Status is completed, failed, interrupted or one of the suspended statuses.
	Status   string
	Output   json.RawMessage
	Error    string
	Code     string
	Steps    int
	Duration time.Duration // since the first claim
}

// Then gives hooks that call h and then others, point by point. Of BeforeRun the
// first error counts.
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
