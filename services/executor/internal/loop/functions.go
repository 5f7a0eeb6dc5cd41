package loop

import (
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Apart calls a function of the agent that has no context, what names it, and gives its
// answer. Where there is none the error says why: ErrCut, or what the function has done. A
// function that does not return is left behind, and may go on beside the planner.
type Apart func(what string, f func() any) (answer any, err error)

// ErrCut says that a run is not to wait for a function any more. What the planner decides
// then does not count: Stopped comes next, or the planner is given up.
var ErrCut = errors.New("the run was cut")

// FunctionError says that a function of an agent has given no answer.
type FunctionError struct {
	Function, Agent string
	Err             error
}

func (e *FunctionError) Error() string {
	return fmt.Sprintf("the %s function of the agent %q has given no answer: %v", e.Function, e.Agent, e.Err)
}

func (e *FunctionError) Unwrap() error { return e.Err }

// called calls a function of the agent, which is there: apart from the planner, or where it
// was given no way to do that, here. What the function uses is given to it: it may outlive
// the call.
func called[A any](p *Planner, what string, f func() A) (answer A, err error) {
	apart := p.start.Apart
	if apart == nil {
		apart = here
	}
	value, err := apart(what, func() any { return f() })
	switch {
	case err == nil:
		return value.(A), nil
	case errors.Is(err, ErrCut):
		p.cut = true
		return answer, ErrCut
	}
	return answer, &FunctionError{Function: what, Agent: p.start.Agent.Name, Err: err}
}

// here makes an error of a panic, and nothing else.
func here(_ string, f func() any) (answer any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			answer, err = nil, fmt.Errorf("it panicked: %v", cause)
		}
	}()
	return f(), nil
}

// system gives the system prompt.
func (p *Planner) system() (string, error) {
	a := p.start.Agent
	if a.Prompt == nil {
		return a.SystemPrompt, nil
	}
	state := p.State()
	return called(p, "Prompt", func() string { return a.Prompt(state) })
}

// needsApproval reports whether a call waits for a human. It does where nobody says that it
// need not.
func (p *Planner) needsApproval(tool *agent.Tool, call agent.ToolCall) bool {
	if tool.Approval || tool.ApproveWhen == nil {
		return tool.Approval
	}
	state := p.state
	needs, err := called(p, "ApproveWhen of "+tool.Name, func() bool { return tool.ApproveWhen(call.Arguments, state) })
	return err != nil || needs
}

// weigh estimates the tokens of messages, by the agent's own function where it has one and a
// budget. One that has given no answer is not asked again by this planner; of a message that
// it panics at the estimate is that of the runtime.
func (p *Planner) weigh(messages []agent.Message) []int {
	policy := p.start.Agent.Context
	count := policy.Count
	if count == nil || policy.MaxTokens <= 0 || p.uncounted {
		return estimates(messages)
	}
	tokens, err := called(p, "Count", func() []int {
		tokens := make([]int, len(messages))
		for i, m := range messages {
			tokens[i] = counted(count, m)
		}
		return tokens
	})
	if err != nil {
		p.uncounted = true
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
