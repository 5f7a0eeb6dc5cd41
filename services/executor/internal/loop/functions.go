package loop

import (
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// FunctionCaller calls a function of the agent without a context and returns its result; what names the function. The
// error is ErrAbandoned, or describes what the function did. A function that does not return is abandoned and may
// continue beside the planner.
type FunctionCaller func(what string, f func() any) (answer any, err error)

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

// callFunction calls a function of the agent through Start.CallFunction if set, and directly otherwise. The function may
// outlive the call, so it receives everything that it uses.
func callFunction[A any](r *run, what string, f func() A) (answer A, err error) {
	call := r.start.CallFunction
	if call == nil {
		call = callDirectly
	}
	value, err := call(what, func() any { return f() })
	switch {
	case err == nil:
		return value.(A), nil
	case errors.Is(err, ErrAbandoned):
		r.awaitsStop = true
		return answer, ErrAbandoned
	}
	return answer, &FunctionError{Function: what, Agent: r.start.Agent.Name, Err: err}
}

// callDirectly calls a function directly and turns a panic into an error.
func callDirectly(_ string, f func() any) (answer any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("it panicked: %v", cause)
		}
	}()
	return f(), nil
}

// needsApproval reports whether a call waits for a human. It does unless the rule says otherwise.
func (r *run) needsApproval(tool *agent.Tool, call agent.ToolCall) bool {
	if tool.Approval || tool.ApproveWhen == nil {
		return tool.Approval
	}
	state := r.state
	needs, err := callFunction(r, "ApproveWhen of "+tool.Name, func() bool { return tool.ApproveWhen(call.Arguments, state) })
	return err != nil || needs
}

// estimateTokens estimates the tokens of messages with the agent's function, if it has one and a budget. After a failure
// this planner does not call the function again. If the function panics, the runtime's estimate is used.
func (c *compaction) estimateTokens(messages []agent.Message) []int {
	policy := c.run.start.Agent.Context
	count := policy.Count
	if count == nil || policy.MaxTokens <= 0 || c.uncounted {
		return estimates(messages)
	}
	tokens, err := callFunction(c.run, "Count", func() []int {
		tokens := make([]int, len(messages))
		for i, m := range messages {
			tokens[i] = counted(count, m)
		}
		return tokens
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
