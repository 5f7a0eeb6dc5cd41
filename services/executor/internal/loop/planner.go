package loop

import (
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Planner decides what a run does next. It is for one goroutine. Answering another effect than the one from Next
// is a programming error and panics.
type Planner struct {
	start      Start
	tools      *toolbox
	transcript []agent.Message
	taken      map[string]bool // call ids of the session
	state      agent.State     // after the committed steps
	pending    []ClientCall    // calls without an applied answer
	late       []ClientCall    // calls with a late answer unknown to the model

	conversation conversationCache // of the transcript
	step         int               // the step in flight
	trial        trial
	shortening   shortening
	work         work
	stop         *Stop
	cut          bool // calls or a function were cut: Stopped with the reason replaces any effect
	uncounted    bool // the agent's Count is no longer called
	next         Effect
}

// New returns a planner that continues from the journal and the transcript.
func New(s Start) *Planner {
	p := &Planner{
		start:      s,
		tools:      newToolbox(s.Agent),
		transcript: s.Transcript[:len(s.Transcript):len(s.Transcript)],
		taken:      callIDs(s.Transcript),
		state:      s.State,
		step:       s.SessionSteps + 1,
	}
	p.start.Begin = max(0, min(s.Begin, len(s.Transcript)))
	p.collectClientCalls(s.Calls)
	if s.Journal != nil {
		p.next = p.recover(*s.Journal)
	} else {
		p.next = p.begin()
	}
	return p
}

// Next returns the effect to perform, the same one until it is answered. The request of a CallModel is built at
// the first call, from the state at that time. If a function of the agent was cut, the effect must not be
// performed: see ErrCut.
func (p *Planner) Next() Effect {
	if _, ok := p.next.(pendingRequest); ok {
		if e := p.modelCall(); !p.cut {
			p.next = e
		}
	}
	return p.next
}

// NewReply begins the reply to a CallModel.
func (p *Planner) NewReply() *Reply { return newReply(p.tools, p.taken, salt(p.start, p.step)) }

// Replied answers CallModel with a complete reply. A completion in the JSON output format is converted to the
// equivalent call.
func (p *Planner) Replied(r *Reply) {
	asked := expect[CallModel](p)
	if r.finish == model.FinishError {
		p.failed(r, invalidReply("the provider ended the reply with an error"))
		return
	}
	if asked.Request.Output != nil {
		p.unwrap(r)
	}
	message := agent.Message{ID: p.messageID("assistant", 0), Role: agent.RoleAssistant, Parts: r.Parts()}
	message.Metadata = p.replyMetadata()
	switch {
	case len(message.Calls()) > 0:
		p.work = p.newWork(message)
		p.next = p.proceed()
	case r.finish == model.FinishContentFilter && message.Text() == "":
		p.next = p.refused(asked, nil, contentFilteredFailure(), model.Refusal{Part: model.RefusedContent})
	default:
		p.work = work{message: message, finish: r.finish}
		p.next = p.endText()
	}
}

// replyMetadata returns the metadata of a complete reply; nil for none.
func (p *Planner) replyMetadata() map[string]string {
	metadata := map[string]string{}
	if p.outputOwed() {
		metadata[metadataCompletion] = completionForced
	}
	if p.guesses() {
		metadata[metadataLesson] = lessonKept
	}
	if len(metadata) == 0 {
		return nil
	}
	return metadata
}

// AwaitsClient reports whether the step in flight leaves this call to a client.
func (p *Planner) AwaitsClient(callID string) bool {
	return slices.ContainsFunc(p.work.open(), func(t *task) bool { return t.ID == callID && t.Tool != nil && t.Tool.Client })
}

// IsRefused reports whether this call of the step in flight is never executed.
func (p *Planner) IsRefused(callID string) bool {
	return slices.ContainsFunc(p.work.tasks, func(t *task) bool {
		return t.ID == callID && t.Result != nil && IsRefused(p.work.message, *t.Result)
	})
}

// Recorded answers RecordPlan.
func (p *Planner) Recorded() {
	expect[RecordPlan](p)
	p.work.planned = true
	p.next = p.proceed()
}

// Ended answers RunCalls with the end of every call, in the order of the calls.
func (p *Planner) Ended(ends []Ended) {
	calls := expect[RunCalls](p).Calls
	if len(ends) != len(calls) {
		panic(fmt.Sprintf("loop: %d results for %d calls", len(ends), len(calls)))
	}
	for i, end := range ends {
		if p.work.task(calls[i].ID).setEnd(end) {
			p.cut = true
		}
	}
	switch {
	case !p.cut:
		p.next = p.proceed()
	case p.stop != nil:
		p.next = p.stopWork(*p.stop)
	default:
		p.next = p.stopWork(Stop{Kind: StopInterrupt})
	}
}

// Committed answers Commit.
func (p *Planner) Committed() {
	commit := expect[Commit](p)
	if commit.Outcome != nil {
		p.next = Done{*commit.Outcome}
		return
	}
	p.transcript = p.with(commit.Messages)
	for _, m := range commit.Messages {
		for _, call := range m.Calls() {
			p.taken[call.ID] = true
		}
	}
	p.state = p.State()
	p.pending = slices.DeleteFunc(p.pending, func(a ClientCall) bool {
		return slices.ContainsFunc(commit.Consumed, func(c Consumed) bool { return c.CallID == a.CallID })
	})
	p.late = slices.DeleteFunc(p.late, func(a ClientCall) bool { return slices.Contains(commit.Reported, a.CallID) })
	p.step++
	p.work = work{}
	if commit.Notes { // the next step calls the same model
		p.trial = trial{model: p.trial.model}
	} else {
		p.trial = trial{}
		p.shortening = shortening{}
	}
	p.next = p.begin()
}

// with returns the transcript followed by messages. It is valid until the next call.
func (p *Planner) with(messages []agent.Message) []agent.Message {
	p.transcript = slices.Grow(p.transcript, len(messages))
	return append(p.transcript, messages...)
}

// Finished answers Finish.
func (p *Planner) Finished() { p.next = Done{expect[Finish](p).Outcome} }

// expect returns the effect being answered.
func expect[E Effect](p *Planner) E {
	e, ok := p.Next().(E)
	if !ok {
		panic(fmt.Sprintf("loop: %T is answered, but the effect is %T", e, p.next))
	}
	return e
}

// begin returns the first effect of a step without records.
func (p *Planner) begin() Effect {
	if p.stop != nil {
		return Finish{p.stop.Outcome()}
	}
	if e := p.drain(nil); e != nil {
		return e
	}
	if outcome, _ := p.checkLimits(p.transcript); outcome != nil {
		return Finish{*outcome}
	}
	return p.callModel()
}

// recover continues a former owner's plan.
func (p *Planner) recover(j Journal) Effect {
	if IsDrain(p.start.Run, p.step, j.Plan) {
		if e := p.drain(&j); e != nil {
			return e
		}
		return p.begin() // the plan has no pending call any more
	}
	plan, asks := splitPlan(j.Plan)
	p.work = p.newWork(plan)
	p.work.planned = true
	p.work.restoreAsks(asks)
	p.work.restore(j.Results)
	return p.proceed()
}

func (p *Planner) messageID(kind string, n int) string {
	return MessageID(p.start.Run, p.step, kind, n)
}
