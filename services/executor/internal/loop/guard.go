package loop

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// verdict is the result of a guard, or its error.
type verdict struct {
	agent.Verdict
	err error
}

// Judged answers Guard.
func (p *Planner) Judged(v agent.Verdict) {
	asked := expect[Guard](p)
	p.work.verdict = &verdict{Verdict: v}
	if v.Replace != nil && !asked.Reply && !json.Valid(v.Replace) {
		p.work.verdict = &verdict{err: errors.New("the output that the guard has put in place of the model's is not JSON")}
	}
	p.guarded(asked)
}

// GuardFailed answers Guard with the guard's error, which fails the run.
func (p *Planner) GuardFailed(err error) {
	asked := expect[Guard](p)
	p.work.verdict = &verdict{err: err}
	p.guarded(asked)
}

func (p *Planner) guarded(asked Guard) {
	if asked.Reply {
		p.next = p.endText()
		return
	}
	p.next = p.proceed()
}

func (p *Planner) asksOutput() bool { return p.start.Agent.Guard.OnOutput != nil }

// consultGuard returns the effect that consults the guard.
func (p *Planner) consultGuard(reply bool, output json.RawMessage) Effect {
	run := p.start.Run
	steps := p.replyCountWith(p.work.message)
	return Guard{Step: p.step, Reply: reply, Ending: agent.Ending{
		SessionID: run.SessionID, RunID: run.RunID, AgentType: p.start.Agent.Name,
		Steps: steps, Output: output, Reply: p.work.message, State: p.State(),
	}}
}

// failure returns the run's failure if the guard failed it, or nil.
func (v *verdict) failure() *Failure {
	switch {
	case v == nil:
		return nil
	case v.err != nil:
		return &Failure{Error: "Something went wrong on our side.", Detail: "the completion guard failed: " + v.err.Error(), Code: CodeGuardFailed}
	case v.Fail != "":
		return &Failure{Error: v.Fail, Detail: "the completion guard has refused the end of the run", Code: CodeGuardRefused}
	}
	return nil
}

// runFinishing returns the effect for the calls that finish the run: only the first is executed. The output of
// __finish__ is judged before it becomes a result, the output of a tool afterwards.
func (p *Planner) runFinishing(last []*task) Effect {
	w := &p.work
	winner := w.finishingCall()
	for _, t := range last {
		if t != winner && t.Result == nil {
			t.fail(errSuperseded)
		}
	}
	if winner.Name == agent.FinishTool && winner.result() == nil {
		if p.asksOutput() && w.verdict == nil {
			return p.consultGuard(false, winner.Arguments)
		}
		if failure := w.verdict.failure(); failure != nil {
			winner.fail(failure.Error)
			return p.settle()
		}
		winner.Result = p.finishResult(winner.ToolCall)
	}
	return p.runCalls(last, w.planned)
}

// finishResult returns the result of __finish__: the output, or the guard's request.
func (p *Planner) finishResult(call agent.ToolCall) *agent.ToolResult {
	result := agent.ToolResult{CallID: call.ID, Name: call.Name, Success: true, Result: call.Arguments}
	if v := p.work.verdict; v != nil && v.Revise != "" {
		result = failedResult(call, v.Revise)
	} else if v != nil && v.Replace != nil {
		result.Result = v.Replace
	}
	return &result
}

// finishOutcome returns the outcome of a finishing call, or the feedback for the model. Both are empty if the call
// failed.
func (p *Planner) finishOutcome(winner *task) (o *Outcome, feedback string) {
	v, result := p.work.verdict, winner.result()
	if failure := v.failure(); failure != nil {
		return &Outcome{Status: StatusFailed, FinishReason: model.FinishError, Failure: failure}, ""
	}
	if !result.Success {
		return nil, ""
	}
	if problem := p.outputMismatch(winner); problem != "" {
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
		CompletionReason: cmp.Or(p.completionReason(p.transcript), reason),
	}, ""
}

// outputMismatch says why a tool's result is not the agent's output, or returns "". A tool with a schema of its own
// validates its result itself.
func (p *Planner) outputMismatch(winner *task) string {
	tool := p.tools.tools[winner.Name]
	if !p.hasOutput() || tool == nil || len(tool.OutputSchema) > 0 {
		return ""
	}
	s := p.tools.input(agent.FinishTool)
	if s == nil {
		return ""
	}
	if err := s.Check(winner.result().Result); err != nil {
		return "The result of " + winner.Name + " is not the output that is asked for: " + err.Error()
	}
	return ""
}
