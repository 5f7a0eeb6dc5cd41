package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// FunctionCaller calls a function of the agent with a context and returns its result; what names the function. The
// error is ErrAbandoned, the error of the function, or describes what the function did. A function that does not return is
// abandoned and may continue beside the planner.
type FunctionCaller func(what string, f func(ctx context.Context) (any, error)) (answer any, err error)

// ErrAbandoned means that the run no longer waits for a function. The planner's decision then does not count: the
// caller calls Stopped, or drops the planner.
var ErrAbandoned = errors.New("the function was abandoned")

// FunctionError means that a function of an agent returned no result.
type FunctionError struct {
	Function, Agent string
	Err             error
}

func (e *FunctionError) Error() string {
	return fmt.Sprintf("the %s function of the agent %q has given no answer: %v", e.Function, e.Agent, e.Err)
}

func (e *FunctionError) Unwrap() error { return e.Err }

// callFunction calls a function of the agent through Start.CallFunction. The function may outlive the call, so it receives
// everything that it uses.
func callFunction[A any](r *run, what string, f func(ctx context.Context) (A, error)) (answer A, err error) {
	value, err := r.start.CallFunction(what, func(ctx context.Context) (any, error) { return f(ctx) })
	switch {
	case err == nil:
		return value.(A), nil
	case errors.Is(err, ErrAbandoned):
		r.awaitsStop = true
		return answer, ErrAbandoned
	}
	return answer, &FunctionError{Function: what, Agent: r.start.Agent.Name, Err: err}
}

// view returns the run for one call of a function of the agent.
func (r *run) view(state agent.State) agent.RunView {
	of, session := r.start.Run, r.start.Session
	return agent.RunView{
		Tenant: of.Tenant, SessionID: of.SessionID, ParentSessionID: session.ParentID, RunID: of.RunID,
		AgentType: r.start.Agent.Name, UserID: session.UserID, Tags: slices.Clone(session.Tags), Metadata: maps.Clone(session.Metadata),
		Turn: r.start.Turn, Step: r.step, State: state,
	}
}

// needsApproval reports whether a call waits for a human. It does unless the rule says otherwise.
func (r *run) needsApproval(tool *agent.Tool, call agent.ToolCall) bool {
	if tool.Approval || tool.ApproveWhen == nil {
		return tool.Approval
	}
	asked := r.approvalCall(call)
	needs, err := callFunction(r, "ApproveWhen of "+tool.Name, func(ctx context.Context) (bool, error) { return tool.ApproveWhen(ctx, asked) })
	return err != nil || needs
}

// approvalCall returns a call for the function that decides about its approval.
func (r *run) approvalCall(call agent.ToolCall) *agent.Call {
	run := r.view(r.state)
	return &agent.Call{
		ID: call.ID, Tool: call.Name, IdempotencyKey: idempotencyKey(r.start.Run, r.step, call),
		Tenant: run.Tenant, SessionID: run.SessionID, ParentSessionID: run.ParentSessionID, RunID: run.RunID, AgentType: run.AgentType,
		UserID: run.UserID, Tags: run.Tags, Metadata: run.Metadata, Turn: run.Turn, Step: run.Step,
		Input: slices.Clone(call.Arguments), Host: stateReader{run.State},
	}
}

// stateReader is the host of a call that has not begun: the custom state can be read, and nothing else.
type stateReader struct{ state agent.State }

func (s stateReader) State() agent.State {
	copied, err := s.state.Clone()
	if err != nil { // the state comes from JSON
		return agent.State{}
	}
	return copied
}

func (stateReader) Update(func(draft agent.State) error) error {
	return errNotBegun("change the custom state")
}

func (stateReader) Emit(context.Context, string, any, ...agent.EmitOption) error {
	return errNotBegun("emit events")
}

func (stateReader) RecordUsage(_, _ string, _ float64) {}

func errNotBegun(what string) error {
	return fault.New(fault.Conflict, "CALL_ENDED", "ApproveWhen cannot %s: the call has not begun", what)
}

// estimateTokens estimates the tokens of messages with the agent's function, if it has one and a budget. After a failure
// this planner does not call the function again. If the function panics, the runtime's estimate is used.
func (c *compaction) estimateTokens(messages []agent.Message) []int {
	policy := c.run.start.Agent.Context
	count := policy.Count
	if count == nil || policy.MaxTokens <= 0 || c.uncounted {
		return estimates(messages)
	}
	tokens, err := callFunction(c.run, "Count", func(context.Context) ([]int, error) {
		tokens := make([]int, len(messages))
		for i, m := range messages {
			tokens[i] = counted(count, m)
		}
		return tokens, nil
	})
	if err != nil {
		c.uncounted = true
		return estimates(messages)
	}
	return tokens
}

func counted(count func(agent.Message) int, m agent.Message) (tokens int) {
	defer func() {
		if recover() != nil {
			tokens = estimate(m)
		}
	}()
	return count(m)
}

func estimates(messages []agent.Message) []int {
	tokens := make([]int, len(messages))
	for i, m := range messages {
		tokens[i] = estimate(m)
	}
	return tokens
}
