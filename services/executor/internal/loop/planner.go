package loop

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Planner decides what a run does next. It is for one goroutine. Answering another effect than the one from Next
// is a programming error and panics.
type Planner struct {
	run        run
	answers    answers
	compaction compaction
	model      modelCalls
	calls      calls
	ends       ends
	next       Effect
}

// New returns a planner that continues from the journal and the transcript.
func New(s Start) *Planner {
	s.Begin = max(0, min(s.Begin, len(s.Transcript)))
	s.Agent.Tools = s.Caller.addTo(s.Agent.Tools)
	p := newPlanner(s)
	p.run.tools = newToolbox(s.Agent)
	p.run.transcript = s.Transcript[:len(s.Transcript):len(s.Transcript)]
	p.run.callIDs = callIDs(s.Transcript)
	p.run.state = s.State
	p.answers.collect(s.Calls)
	if s.Journal != nil {
		p.next = p.recover(*s.Journal)
	} else {
		p.next = p.begin()
	}
	return p
}

func newPlanner(s Start) *Planner {
	p := &Planner{run: run{start: s, step: s.SessionSteps + 1}}
	p.answers.run = &p.run
	p.compaction.run = &p.run
	p.model = modelCalls{run: &p.run, answers: &p.answers, compaction: &p.compaction}
	p.calls.run = &p.run
	p.ends = ends{run: &p.run, answers: &p.answers, calls: &p.calls}
	return p
}

// recover continues a former owner's plan.
func (p *Planner) recover(j Journal) Effect {
	if IsAnswering(p.run.start.Run, p.run.step, j.Plan) {
		if e := p.applyAnswers(&j); e != nil {
			return e
		}
		return p.begin() // the plan has no pending call any more
	}
	plan, asks, disabled := splitPlan(j.Plan)
	p.calls = newCalls(&p.run, plan, func(id string) bool { return slices.Contains(disabled, id) })
	p.calls.planned = true
	for _, t := range p.calls.tasks { // the plan's questions remain, whatever the agent's rules are now
		t.waits = slices.Contains(asks, t.ID)
		if t.waits && t.Tool != nil {
			t.class = classOpen
		}
	}
	p.calls.restore(j.Results)
	return p.proceed()
}

// begin returns the first effect of a step without records.
func (p *Planner) begin() Effect {
	if p.ends.stop != nil {
		return Finish{p.ends.stop.Outcome()}
	}
	if e := p.applyAnswers(nil); e != nil {
		return e
	}
	if outcome, _ := p.ends.checkLimits(p.run.transcript); outcome != nil {
		return Finish{*outcome}
	}
	return pendingRequest{}
}

// applyAnswers begins a step that applies answers to calls of an earlier step, or continues such a step from a former
// owner's plan. If only open calls remain, the run suspends again. It returns nil without any calls for clients.
func (p *Planner) applyAnswers(j *Journal) Effect {
	answered, open := p.answers.answered(p.run.transcript, p.answers.pending, j)
	switch {
	case len(answered.tasks) > 0:
		p.calls = answered
		return p.proceed()
	case len(open) > 0:
		return Commit{Step: p.run.step, Answering: true, Outcome: stillSuspended(p.run.transcript, open)}
	}
	return nil
}

// proceed returns the next effect for the calls of the step in flight.
func (p *Planner) proceed() Effect {
	if e := p.calls.next(); e != nil {
		return e
	}
	if len(p.calls.open()) > 0 {
		return p.ends.suspend()
	}
	if last := p.calls.unfinished(classLast); len(last) > 0 {
		return p.ends.runFinishing(last)
	}
	return p.ends.settle()
}

// pendingRequest stands for the next model call until its request is built. Hooks run first, and may change the
// request.
type pendingRequest struct{}

func (pendingRequest) isEffect() {}

// Next returns the effect to perform, the same one until it is answered. The request of a CallModel is built at
// the first call, from the state at that time. If a function of the agent was abandoned, the effect must not be
// performed: see ErrAbandoned.
func (p *Planner) Next() Effect {
	if _, ok := p.next.(pendingRequest); ok {
		if e := p.model.next(); !p.run.awaitsStop {
			p.next = e
		}
	}
	return p.next
}

// expect returns the effect being answered.
func expect[E Effect](p *Planner) E {
	e, ok := p.Next().(E)
	if !ok {
		panic(fmt.Sprintf("loop: %T is answered, but the effect is %T", e, p.next))
	}
	return e
}

// State returns the current custom state: see Start.Now. It must not be modified.
func (p *Planner) State() agent.State { return p.run.currentState() }

// NewReply begins the reply to a CallModel.
func (p *Planner) NewReply() *Reply {
	r := &Reply{tools: p.run.tools, salt: salt(p.run.start, p.run.step), own: map[string]bool{}, calls: map[int]*block{}}
	r.taken = func(id string) bool { return p.run.callIDs[id] || r.own[id] }
	return r
}

// Replied answers CallModel with a complete reply. A completion in the JSON output format is converted to the
// equivalent call.
func (p *Planner) Replied(r *Reply) {
	asked := expect[CallModel](p)
	if r.finish == model.FinishError {
		p.Failed(r, invalidReply("the provider ended the reply with an error"))
		return
	}
	if asked.Request.Output != nil {
		r.unwrapCompletion("call_" + Digest(p.run.messageID("completion", 0)))
	}
	message := agent.Message{ID: p.run.messageID("assistant", 0), Role: agent.RoleAssistant, Parts: r.Parts()}
	metadata := map[string]string{}
	if p.run.outputOwed() {
		metadata[metadataCompletion] = completionForced
	}
	if p.compaction.guesses() {
		metadata[metadataLesson] = lessonKept
	}
	if len(metadata) > 0 {
		message.Metadata = metadata
	}
	switch {
	case len(message.Calls()) > 0:
		p.calls = newCalls(&p.run, message, func(id string) bool { return p.run.isDisabled(callName(message, id)) })
		p.next = p.proceed()
	case r.finish == model.FinishContentFilter && message.Text() == "":
		p.next = p.refused(asked, nil, contentFilteredFailure(), model.Refusal{Part: model.RefusedContent})
	default:
		p.calls = calls{run: &p.run, message: message, finish: r.finish}
		p.next = p.ends.endText()
	}
}

// Failed answers CallModel with its error and the partial reply; nil for none. A retryable error is retried
// after a delay, as often as the agent permits. Afterwards, and after other errors, the agent's next model is
// called. After the last model the run fails, and its partial reply stays in the conversation. After a refusal the model
// is called with another request: see refused.
func (p *Planner) Failed(reply *Reply, err error) {
	asked := expect[CallModel](p)
	failure := modelFailure(err)
	if e, ok := errors.AsType[*model.Error](err); ok && e.Refusal != nil {
		p.next = p.refused(asked, reply, failure, *e.Refusal)
		return
	}
	if next := p.model.afterFailure(failure, err); next != nil {
		p.next = next
		return
	}
	if failure.Code == model.CodeUnsupported && p.run.outputOwed() {
		failure = unsupportedFailure(failure)
	}
	p.next = p.failReply(reply, failure)
}

// refused returns the effect after a refusal: the commit of a lesson, after which the model is called with another
// request, or the failure of the run. Then the refused question is left out of later turns, unless the provider refused
// a part of the agent.
func (p *Planner) refused(asked CallModel, reply *Reply, f Failure, r model.Refusal) Effect {
	if note, ok := p.model.learn(asked, r); ok {
		return Commit{Step: p.run.step, Messages: []agent.Message{note}, Notes: true}
	}
	if r.Part == model.RefusedTool || r.Part == model.RefusedParameter {
		return p.failReply(reply, f)
	}
	f.Error += " Later messages are sent without this one."
	e := p.failReply(reply, f)
	note := p.run.lessonNote(lesson{Model: asked.Model, Turn: true}, "The model refused this message.")
	if c, ok := e.(Commit); ok {
		c.Messages = append(c.Messages, note)
		return c
	}
	outcome := failed(f).Outcome
	return Commit{Step: p.run.step, Messages: []agent.Message{note}, Notes: true, Incomplete: true, Outcome: &outcome}
}

// failReply fails the run with the visible part of its last reply.
func (p *Planner) failReply(reply *Reply, f Failure) Effect {
	return p.endReply(reply, agent.MetadataFailed, cmp.Or(f.Code, failedWithoutCode), errRunFailed, failed(f).Outcome)
}

// failedWithoutCode is the value of agent.MetadataFailed for a failure without a code.
const failedWithoutCode = "error"

// endReply ends the run in the middle of a reply and commits the partial reply, marked with a key and a value in
// its metadata. No call of the reply is executed; reason is their result. Without anything to keep it returns a
// Finish.
func (p *Planner) endReply(reply *Reply, key, value, reason string, o Outcome) Effect {
	message := agent.Message{ID: p.run.messageID("assistant", 0), Role: agent.RoleAssistant, Metadata: map[string]string{key: value}}
	if reply != nil {
		if call, ok := p.next.(CallModel); ok && call.Request.Output != nil {
			reply.dropTexts() // half of a JSON output is not text of the agent
		}
		message.Parts = reply.keptParts()
	}
	if len(message.Calls()) == 0 && strings.TrimSpace(message.Text()) == "" {
		return Finish{o}
	}
	p.calls = calls{run: &p.run, message: message}
	for _, call := range message.Calls() {
		p.calls.tasks = append(p.calls.tasks, p.run.knownTask(call, reason))
	}
	c := p.ends.commit(p.calls.tasks)
	c.Incomplete = true
	c.Outcome = &o
	return c
}

// Waited answers Wait.
func (p *Planner) Waited() {
	expect[Wait](p)
	p.next = pendingRequest{}
}

// Compacted answers Compact with the summary, which is committed at once: the following call may fail. An empty summary
// counts as none.
func (p *Planner) Compacted(summary string) {
	expect[Compact](p)
	p.compaction.tried = true
	if strings.TrimSpace(summary) == "" {
		p.next = pendingRequest{}
		return
	}
	p.next = Commit{Step: p.run.step, Notes: true, Messages: []agent.Message{p.compaction.summaryMessage(summary)}}
}

// CompactFailed answers Compact with an error. If the conversation is too long for a summary, a smaller part of it is
// summarized. Otherwise the step continues with a window instead of a summary. A refused summary is not asked for again.
func (p *Planner) CompactFailed(err error) {
	asked := expect[Compact](p)
	if e, ok := errors.AsType[*model.Error](err); ok && e.Refusal != nil {
		if note, ok := p.model.learnOfSummary(asked, *e.Refusal); ok {
			p.next = Commit{Step: p.run.step, Messages: []agent.Message{note}, Notes: true}
			return
		}
	}
	p.compaction.tried = true
	p.next = pendingRequest{}
}

// Notices returns what the model has refused in this run since its last reply.
func (p *Planner) Notices() []Notice { return p.model.refusals() }

// AwaitsClient reports whether the step in flight leaves this call to a client.
func (p *Planner) AwaitsClient(callID string) bool {
	return slices.ContainsFunc(p.calls.open(), func(t *task) bool { return t.ID == callID && t.Tool != nil && t.Tool.Client })
}

// IsRefused reports whether this call of the step in flight is never executed.
func (p *Planner) IsRefused(callID string) bool {
	return slices.ContainsFunc(p.calls.tasks, func(t *task) bool {
		return t.ID == callID && t.Result != nil && IsRefused(p.calls.message, *t.Result)
	})
}

// Recorded answers RecordPlan.
func (p *Planner) Recorded() {
	expect[RecordPlan](p)
	p.calls.planned = true
	p.next = p.proceed()
}

// Ended answers RunCalls with the end of every call, in the order of the calls.
func (p *Planner) Ended(ends []Ended) {
	calls := expect[RunCalls](p).Calls
	if len(ends) != len(calls) {
		panic(fmt.Sprintf("loop: %d results for %d calls", len(ends), len(calls)))
	}
	for i, end := range ends {
		at := slices.IndexFunc(p.calls.tasks, func(t *task) bool { return t.ID == calls[i].ID })
		if p.calls.tasks[at].setEnd(end) {
			p.run.awaitsStop = true
		}
	}
	switch {
	case !p.run.awaitsStop:
		p.next = p.proceed()
	case p.ends.stop != nil:
		p.next = p.ends.stopCalls(*p.ends.stop)
	default:
		p.next = p.ends.stopCalls(Stop{Kind: StopInterrupt})
	}
}

// Judged answers Guard.
func (p *Planner) Judged(v agent.Verdict) {
	asked := expect[Guard](p)
	p.ends.verdict = &verdict{Verdict: v}
	if v.Replace != nil && !asked.Reply && !json.Valid(v.Replace) {
		p.ends.verdict = &verdict{err: errors.New("the output that the guard has put in place of the model's is not JSON")}
	}
	p.next = p.judged(asked)
}

// GuardFailed answers Guard with the guard's error, which fails the run.
func (p *Planner) GuardFailed(err error) {
	asked := expect[Guard](p)
	p.ends.verdict = &verdict{err: err}
	p.next = p.judged(asked)
}

func (p *Planner) judged(asked Guard) Effect {
	if asked.Reply {
		return p.ends.endText()
	}
	return p.proceed()
}

// Committed answers Commit.
func (p *Planner) Committed() {
	commit := expect[Commit](p)
	if commit.Outcome != nil {
		p.next = Done{*commit.Outcome}
		return
	}
	p.run.commit(commit.Messages)
	p.answers.commit(commit)
	p.calls = calls{run: &p.run}
	p.ends.verdict = nil
	if commit.Notes { // the next step calls the same model
		p.model.trial = trial{model: p.model.trial.model, context: p.model.trial.context}
	} else {
		p.model.trial = trial{}
		p.compaction.covers = ""
		p.compaction.tried = false
	}
	p.next = p.begin()
}

// Finished answers Finish.
func (p *Planner) Finished() { p.next = Done{expect[Finish](p).Outcome} }

// Stopped ends the run early, whatever the effect is. For a CallModel, reply is the partial reply; nil
// otherwise. A Commit, Finish or Done remains, and the stop applies after it. An unanswered RunCalls counts as
// not executed. The first stop counts, but an abort overrides an interrupt.
func (p *Planner) Stopped(s Stop, reply *Reply) {
	stop := p.ends.stop
	if stop == nil || stop.Kind == StopInterrupt && s.Kind == StopAbort {
		stop = &s
		p.ends.stop = stop
	}
	awaited := p.run.awaitsStop
	p.run.awaitsStop = false
	switch p.next.(type) {
	case CallModel, pendingRequest:
		p.next = p.endReply(reply, agent.MetadataInterrupted, string(stop.Kind), errStopped, stop.Outcome())
		return
	case Commit, Finish, Done:
		if !awaited {
			return
		}
	}
	p.next = p.ends.stopCalls(*stop)
}

// Quit returns a planner that only ends a run: with a Finish or, for a plan in the journal, with a Commit of the known
// state of its calls. So neither a later run nor its model repeats them unaware. A call that may have begun without a
// result has an unknown outcome. Answers that need no tool stay for the continuation. Quit uses neither the agent,
// which may be unknown, nor the transcript.
func Quit(s Start, o Outcome) *Planner {
	p := newPlanner(s)
	p.next = Finish{o}
	if s.Journal == nil {
		return p
	}
	answering := IsAnswering(s.Run, p.run.step, s.Journal.Plan)
	plan, asks, _ := splitPlan(s.Journal.Plan)
	p.calls = calls{run: &p.run, message: plan, answering: answering, planned: true}
	for _, call := range plan.Calls() {
		reason := OutcomeUnknown
		if !answering && (call.Name == agent.FinishTool || slices.Contains(asks, call.ID)) {
			reason = errStopped // no tool ran for it
		}
		t := p.run.knownTask(call, reason)
		if t.asked = findClientCall(s.Calls, call.ID); t.asked != nil {
			t.Decision = t.asked.decision()
		}
		p.calls.tasks = append(p.calls.tasks, t)
	}
	p.calls.restore(s.Journal.Results)
	c := p.ends.commit(slices.DeleteFunc(p.calls.tasks, func(t *task) bool {
		return !t.Recorded && t.asked != nil && (t.Decision == nil || !t.Decision.Approved)
	}))
	c.Incomplete = true
	c.Outcome = &o
	p.next = c
	return p
}
