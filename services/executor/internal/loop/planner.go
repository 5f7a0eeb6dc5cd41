package loop

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Run names the run that is planned.
type Run struct{ Tenant, SessionID, RunID string }

// Start is what a planner begins with.
type Start struct {
	Run   Run
	Agent agent.Agent
	// Transcript is the whole conversation of the session.
	Transcript []agent.Message
	// SessionSteps and RunSteps count the committed steps.
	SessionSteps, RunSteps int
	// Journal is nil when the step in flight has left no plan behind.
	Journal *Journal
	// Jitter gives numbers in [0, 1) that spread retries; nil spreads nothing.
	Jitter func() float64
}

// Journal is what a former owner of the run has recorded for the step in flight.
type Journal struct {
	Plan    agent.Message
	Results []agent.ToolResult
}

// Planner decides what a run does next. It is for one goroutine.
type Planner struct {
	start      Start
	transcript []agent.Message
	taken      map[string]bool // call ids of the session
	step       int
	runSteps   int
	attempt    int
	plan       agent.Message
	next       Effect
}

// New plans a run from where its journal and transcript stand.
func New(s Start) *Planner {
	p := &Planner{
		start:      s,
		transcript: s.Transcript[:len(s.Transcript):len(s.Transcript)],
		taken:      callIDs(s.Transcript),
		step:       s.SessionSteps + 1,
		runSteps:   s.RunSteps,
	}
	switch {
	case s.Journal != nil:
		p.plan = s.Journal.Plan
		p.next = p.recover(*s.Journal)
	case p.runSteps >= p.maxSteps():
		p.next = Finish{p.maxStepsOutcome()}
	default:
		p.next = p.callModel()
	}
	return p
}

// Next gives the effect to perform now. It gives the same until it is answered.
func (p *Planner) Next() Effect { return p.next }

// NewReply begins the reply to the effect CallModel.
func (p *Planner) NewReply() *Reply { return newReply(p.taken) }

// Replied answers CallModel with a whole reply.
func (p *Planner) Replied(r *Reply) {
	expect[CallModel](p)
	if r.finish == model.FinishError {
		p.Failed(invalidReply("the provider ended the reply with an error"))
		return
	}
	message := agent.Message{ID: messageID(p.start.Run, p.step, "assistant", 0), Role: agent.RoleAssistant, Parts: r.Parts()}
	if len(message.Calls()) == 0 {
		p.next = p.commitText(message, r.finish)
		return
	}
	p.plan = message
	if p.anyRuns() {
		p.next = RecordPlan{Step: p.step, Plan: message}
		return
	}
	p.next = p.runCalls(false)
}

// Failed answers CallModel with the error that ended it. A retryable one is
// waited out and tried again, three times.
func (p *Planner) Failed(err error) {
	expect[CallModel](p)
	failure := modelFailure(err)
	if !failure.Retryable || p.attempt > maxRetries {
		p.next = Finish{Outcome{FinishReason: model.FinishError, Failure: &failure}}
		return
	}
	jitter := 0.0
	if p.start.Jitter != nil {
		jitter = p.start.Jitter()
	}
	p.next = Wait{Step: p.step, For: backoff(p.attempt, err, jitter), Cause: failure}
}

// Waited answers Wait.
func (p *Planner) Waited() {
	expect[Wait](p)
	p.next = p.callModel()
}

// Recorded answers RecordPlan.
func (p *Planner) Recorded() {
	expect[RecordPlan](p)
	p.next = p.runCalls(true)
}

// Ended answers RunCalls with the result of every call, in the order of the calls.
func (p *Planner) Ended(results []agent.ToolResult) {
	calls := expect[RunCalls](p)
	if len(results) != len(calls.Calls) {
		panic(fmt.Sprintf("loop: %d results for %d calls", len(results), len(calls.Calls)))
	}
	commit := Commit{Step: p.step, Messages: []agent.Message{p.plan}}
	for n, result := range results {
		commit.Messages = append(commit.Messages, agent.Message{
			ID: messageID(p.start.Run, p.step, "tool", n), Role: agent.RoleTool, Parts: []agent.Part{result},
		})
	}
	if p.runSteps+1 >= p.maxSteps() {
		outcome := p.maxStepsOutcome()
		commit.Outcome = &outcome
	}
	p.next = commit
}

// Committed answers Commit.
func (p *Planner) Committed() {
	commit := expect[Commit](p)
	if commit.Outcome != nil {
		p.next = Done{*commit.Outcome}
		return
	}
	p.transcript = append(p.transcript, commit.Messages...)
	for _, call := range p.plan.Calls() {
		p.taken[call.ID] = true
	}
	p.step++
	p.runSteps++
	p.attempt = 0
	p.next = p.callModel()
}

// Finished answers Finish.
func (p *Planner) Finished() { p.next = Done{expect[Finish](p).Outcome} }

// expect is the effect that is being answered. An answer to another one is a
// mistake of the caller, and a panic.
func expect[E Effect](p *Planner) E {
	e, ok := p.next.(E)
	if !ok {
		panic(fmt.Sprintf("loop: %T is answered, but the effect is %T", e, p.next))
	}
	return e
}

func (p *Planner) maxSteps() int {
	if p.start.Agent.MaxSteps > 0 {
		return p.start.Agent.MaxSteps
	}
	return agent.DefaultMaxSteps
}

func (p *Planner) maxStepsOutcome() Outcome {
	failure := maxStepsFailure(p.maxSteps())
	return Outcome{FinishReason: model.FinishToolCalls, Failure: &failure, CompletionReason: ReasonMaxSteps}
}

func (p *Planner) callModel() Effect {
	p.attempt++
	a := p.start.Agent
	_, name, _ := strings.Cut(a.Model, "/")
	request := model.Request{
		Model:           name,
		System:          a.SystemPrompt,
		Messages:        conversation(p.transcript),
		MaxOutputTokens: a.MaxOutputTokens,
		Temperature:     a.Temperature,
	}
	for _, t := range a.Tools {
		request.Tools = append(request.Tools, model.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema})
	}
	return CallModel{Step: p.step, Attempt: p.attempt, Request: request}
}

// commitText ends the run. A reply without any content leaves no message, since
// providers refuse to read an empty one.
func (p *Planner) commitText(message agent.Message, reason model.FinishReason) Commit {
	outcome := Outcome{Output: quote(message.Text()), FinishReason: reason}
	commit := Commit{Step: p.step, Outcome: &outcome}
	if len(message.Parts) > 0 {
		commit.Messages = []agent.Message{message}
	}
	return commit
}

func (p *Planner) tool(name string) *agent.Tool {
	for i := range p.start.Agent.Tools {
		if p.start.Agent.Tools[i].Name == name {
			return &p.start.Agent.Tools[i]
		}
	}
	return nil
}

func (p *Planner) anyRuns() bool {
	for _, call := range p.plan.Calls() {
		if p.judge(call).Tool != nil {
			return true
		}
	}
	return false
}

func (p *Planner) runCalls(planned bool) RunCalls {
	e := RunCalls{Step: p.step, Plan: p.plan, Planned: planned}
	for _, call := range p.plan.Calls() {
		e.Calls = append(e.Calls, p.judge(call))
	}
	return e
}

// judge decides whether a call can run. What cannot is told to the model.
func (p *Planner) judge(call agent.ToolCall) Call {
	c := Call{ToolCall: call, Key: idempotencyKey(p.start.Run, p.step, call.ID)}
	tool := p.tool(call.Name)
	var problem string
	if tool == nil {
		problem = fmt.Sprintf("there is no tool %q", call.Name)
	} else {
		problem = checkArguments(tool.InputSchema, call.Arguments)
	}
	if problem != "" {
		result := failedResult(call, problem)
		c.Result = &result
		return c
	}
	c.Tool = tool
	return c
}

// recover is the calls of a plan that a former owner has left behind.
func (p *Planner) recover(j Journal) RunCalls {
	recorded := map[string]agent.ToolResult{}
	for _, r := range j.Results {
		if _, repeated := recorded[r.CallID]; !repeated {
			recorded[r.CallID] = r
		}
	}
	e := p.runCalls(true)
	for i, call := range e.Calls {
		if result, ok := recorded[call.ID]; ok {
			e.Calls[i].Tool, e.Calls[i].Result, e.Calls[i].Recorded = nil, &result, true
			continue
		}
		if call.Tool != nil && call.Tool.Retry != agent.RetrySafe {
			result := failedResult(call.ToolCall, errUnknown)
			e.Calls[i].Tool, e.Calls[i].Result = nil, &result
		}
	}
	return e
}
