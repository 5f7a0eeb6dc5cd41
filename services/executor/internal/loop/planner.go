package loop

import (
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Planner decides what a run does next. It is for one goroutine. An answer to another
// effect than that of Next is a mistake of the caller, and a panic.
type Planner struct {
	start      Start
	tools      *toolbox
	transcript []agent.Message
	taken      map[string]bool // call ids of the session
	state      agent.State     // behind the committed steps
	pending    []Asked         // the calls whose answers no step has taken
	late       []Asked         // those of whose late answers the model was not told

	conversation conversationCache // of the transcript
	step         int               // the step in flight
	trial        trial
	shortening   shortening
	work         work
	stop         *Stop
	cut          bool // calls or a function were cut: Stopped, which says why, takes the place of any effect
	uncounted    bool // the agent's Count is not asked any more
	next         Effect
}

// New plans a run from where its journal and transcript stand.
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
	p.sort(s.Calls)
	if s.Journal != nil {
		p.next = p.recover(*s.Journal)
	} else {
		p.next = p.begin()
	}
	return p
}

// Next gives the effect to perform now. It gives the same until it is answered. The
// request of a CallModel is made when it is given first, from the state as it is then. Where
// a function of the agent was cut, the effect is not to be performed, see ErrCut.
func (p *Planner) Next() Effect {
	if _, ok := p.next.(due); ok {
		if e := p.modelCall(); !p.cut {
			p.next = e
		}
	}
	return p.next
}

// NewReply begins the reply to the effect CallModel.
func (p *Planner) NewReply() *Reply { return newReply(p.tools, p.taken, salt(p.start, p.step)) }

// Replied answers CallModel with a whole reply. Where a completion was asked for as
// JSON, the reply has the call that it stands for from then on.
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
	if p.owes() {
		message.Metadata = map[string]string{metadataCompletion: completionForced}
	}
	switch {
	case len(message.Calls()) > 0:
		p.work = p.newWork(message)
		p.next = p.proceed()
	case r.finish == model.FinishContentFilter && message.Text() == "":
		p.next = failed(contentFilteredFailure())
	default:
		p.work = work{message: message, finish: r.finish}
		p.next = p.endText()
	}
}

// AwaitsClient reports whether the step in flight leaves a call of its message to a client.
func (p *Planner) AwaitsClient(callID string) bool {
	return slices.ContainsFunc(p.work.open(), func(t *task) bool { return t.ID == callID && t.Tool != nil && t.Tool.Client })
}

// Refused reports whether a call of the step in flight is one that nobody runs.
func (p *Planner) Refused(callID string) bool {
	return slices.ContainsFunc(p.work.tasks, func(t *task) bool {
		return t.ID == callID && t.Result != nil && Refused(p.work.message, *t.Result)
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
		if p.work.task(calls[i].ID).ends(end) {
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
	p.pending = slices.DeleteFunc(p.pending, func(a Asked) bool {
		return slices.ContainsFunc(commit.Consumed, func(c Consumed) bool { return c.CallID == a.CallID })
	})
	p.late = slices.DeleteFunc(p.late, func(a Asked) bool { return slices.Contains(commit.Told, a.CallID) })
	p.step++
	p.work, p.trial, p.shortening = work{}, trial{}, shortening{}
	p.next = p.begin()
}

// with gives the transcript with messages behind it, until the next call.
func (p *Planner) with(messages []agent.Message) []agent.Message {
	p.transcript = slices.Grow(p.transcript, len(messages))
	return append(p.transcript, messages...)
}

// Finished answers Finish.
func (p *Planner) Finished() { p.next = Done{expect[Finish](p).Outcome} }

// expect is the effect that is being answered.
func expect[E Effect](p *Planner) E {
	e, ok := p.Next().(E)
	if !ok {
		panic(fmt.Sprintf("loop: %T is answered, but the effect is %T", e, p.next))
	}
	return e
}

// begin is what comes first in a step of which nothing is there yet.
func (p *Planner) begin() Effect {
	if p.stop != nil {
		return Finish{p.stop.Outcome()}
	}
	if e := p.drain(nil); e != nil {
		return e
	}
	if outcome, _ := p.limits(p.transcript); outcome != nil {
		return Finish{*outcome}
	}
	return p.callModel()
}

// recover goes on with the plan that a former owner has left behind.
func (p *Planner) recover(j Journal) Effect {
	if IsDrain(p.start.Run, p.step, j.Plan) {
		if e := p.drain(&j); e != nil {
			return e
		}
		return p.begin() // nothing waits for what was planned
	}
	plan, asks := asked(j.Plan)
	p.work = p.newWork(plan)
	p.work.planned = true
	p.work.ask(asks)
	p.work.restore(j.Results)
	return p.proceed()
}

func (p *Planner) messageID(kind string, n int) string {
	return messageID(p.start.Run, p.step, kind, n)
}
