package loop

import (
	"cmp"
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// verdict is the result of a guard, or its error.
type verdict struct {
	agent.Verdict
	err error
}

// consultGuard returns the effect that consults the guard.
func (e *ends) consultGuard(reply bool, output json.RawMessage) Effect {
	return Guard{Step: e.run.step, Reply: reply, Ending: agent.Ending{
		RunView: e.run.view(e.run.currentState()), Steps: e.run.replyCountWith(e.calls.message), Output: output, Reply: e.calls.message,
	}}
}

// failure returns the run's failure if the guard failed it, or nil.
func (v *verdict) failure() *Failure {
	switch {
	case v == nil:
		return nil
	case v.err != nil:
		return &Failure{
			Error: "Something went wrong on our side.", Detail: "the completion guard failed: " + v.err.Error(), Code: CodeGuardFailed,
		}
	case v.Fail != "":
		return &Failure{Error: v.Fail, Detail: "the completion guard has refused the end of the run", Code: CodeGuardRefused}
	}
	return nil
}

// runFinishing returns the effect for the calls that finish the run: only the first is executed. The output of
// __finish__ is judged before it becomes a result, the output of a tool afterwards.
func (e *ends) runFinishing(last []*task) Effect {
	winner := e.calls.finishingCall()
	for _, t := range last {
		if t != winner && t.Result == nil {
			t.fail(errSuperseded)
		}
	}
	if winner.Name == agent.FinishTool && winner.result() == nil {
		if e.run.start.Agent.Guard.OnOutput != nil && e.verdict == nil {
			return e.consultGuard(false, winner.Arguments)
		}
		if failure := e.verdict.failure(); failure != nil {
			winner.fail(failure.Error)
			return e.settle()
		}
		result := agent.ToolResult{CallID: winner.ID, Name: winner.Name, Success: true, Result: winner.Arguments}
		switch v := e.verdict; {
		case v == nil:
		case v.Revise != "":
			result = failedResult(winner.ToolCall, v.Revise)
		case v.Replace != nil:
			result.Result = v.Replace
		}
		winner.Result = &result
	}
	return e.calls.runCalls(last, e.calls.planned)
}

// finishOutcome returns the outcome of a finishing call, or the feedback for the model. Both are empty if the call
// failed.
func (e *ends) finishOutcome(winner *task) (o *Outcome, feedback string) {
	v, result := e.verdict, winner.result()
	if failure := v.failure(); failure != nil {
		return &Outcome{Status: StatusFailed, FinishReason: model.FinishError, Failure: failure}, ""
	}
	if !result.Success {
		return nil, ""
	}
	if problem := e.outputMismatch(winner); problem != "" {
		return nil, problem
	}
	output := result.Result
	if v != nil && winner.Name != agent.FinishTool { // the result of __finish__ is the output already
		if v.Revise != "" {
			return nil, v.Revise
		}
		if v.Replace != nil {
			output = v.Replace
		}
	}
	reason := ReasonFinishWith
	if winner.Name == agent.FinishTool {
		reason = ReasonFinishTool
	}
	return &Outcome{
		Status: StatusCompleted, Output: output, Structured: true, FinishReason: model.FinishToolCalls,
		CompletionReason: cmp.Or(e.completionReason(e.run.transcript), reason),
	}, ""
}

// outputMismatch says why a tool's result is not the agent's output, or returns "". A tool with a schema of its own
// validates its result itself.
func (e *ends) outputMismatch(winner *task) string {
	tool := e.run.tools.tools[winner.Name]
	if !e.run.hasOutput() || tool == nil || len(tool.OutputSchema) > 0 {
		return ""
	}
	s := e.run.tools.input(agent.FinishTool)
	if s == nil {
		return ""
	}
	if err := s.Check(winner.result().Result); err != nil {
		return "The result of " + winner.Name + " is not the output that is asked for: " + err.Error()
	}
	return ""
}
