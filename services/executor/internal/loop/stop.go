package loop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Stopped ends the run early, whatever the effect is. For a CallModel, reply is the partial reply; nil
// otherwise. A Commit, Finish or Done remains, and the stop applies after it. An unanswered RunCalls counts as
// not executed. The first stop counts, but an abort overrides an interrupt.
func (p *Planner) Stopped(s Stop, reply *Reply) {
	if p.stop == nil || p.stop.Kind == StopInterrupt && s.Kind == StopAbort {
		p.stop = &s
	}
	cut := p.cut
	p.cut = false
	switch p.next.(type) {
	case CallModel, pendingRequest:
		p.next = p.cutReply(reply, agent.MetadataInterrupted, string(p.stop.Kind), errStopped, p.stop.Outcome())
		return
	case Commit, Finish, Done:
		if !cut {
			return
		}
	}
	p.next = p.stopWork(*p.stop)
}

// cutReply ends the run in the middle of a reply and commits the partial reply, marked with a key and a value in
// its metadata. No call of the reply is executed, for the reason unmade. Without anything to keep it returns a
// Finish.
func (p *Planner) cutReply(reply *Reply, key, value, unmade string, o Outcome) Effect {
	message := agent.Message{ID: p.messageID("assistant", 0), Role: agent.RoleAssistant, Metadata: map[string]string{key: value}}
	if reply != nil {
		if call, ok := p.next.(CallModel); ok && call.Request.Output != nil {
			reply.forgetTexts() // half of a JSON output is not text of the agent
		}
		message.Parts = reply.keptParts()
	}
	if len(message.Calls()) == 0 && strings.TrimSpace(message.Text()) == "" {
		return Finish{o}
	}
	p.work = work{message: message}
	for _, call := range message.Calls() {
		p.work.tasks = append(p.work.tasks, p.knownTask(call, unmade))
	}
	c := p.commit(p.work.tasks)
	c.Cut, c.Outcome = true, &o
	return c
}

// stopWork ends the run with the step's work so far. Every call of the model then has a result. Answered calls
// of an earlier step that have not begun are kept for the continuation.
func (p *Planner) stopWork(s Stop) Effect {
	w := &p.work
	if w.drain {
		w.tasks = p.processedCalls()
	}
	outcome := s.Outcome()
	switch {
	case w.drain && len(w.tasks) == 0 && w.planned:
		// An end outside of a step would count planned calls as begun.
		return Commit{Step: p.step, Drain: true, Cut: true, Outcome: &outcome}
	case w.drain && len(w.tasks) == 0, !w.drain && !hasContent(w.message):
		return Finish{outcome}
	}
	for _, t := range w.tasks {
		switch {
		case t.end != nil || t.Recorded:
		case t.class == classKnown || t.Tool == nil && t.begun: // unchanged
		case t.begun:
			t.fail(errStoppedUnderway)
		default:
			t.fail(errStopped)
		}
	}
	c := p.commit(w.tasks)
	c.Cut, c.Outcome = true, &outcome
	return c
}

// Quit returns a planner that only ends a run: with a Finish or, for a plan in the journal, with a Commit of the known
// state of its calls. So neither a later run nor its model repeats them unaware. A call that may have begun without a
// result has an unknown outcome. Answers that need no tool stay for the continuation. Quit uses neither the agent,
// which may be unknown, nor the transcript.
func Quit(s Start, o Outcome) *Planner {
	p := &Planner{start: s, step: s.SessionSteps + 1, next: Finish{o}}
	if s.Journal == nil {
		return p
	}
	drain := IsDrain(s.Run, p.step, s.Journal.Plan)
	plan, asks := splitPlan(s.Journal.Plan)
	p.work = work{message: plan, drain: drain, planned: true}
	for _, call := range plan.Calls() {
		reason := errUnknown
		if !drain && (call.Name == agent.FinishTool || slices.Contains(asks, call.ID)) {
			reason = errStopped // no tool ran for it
		}
		t := p.knownTask(call, reason)
		if t.asked = findClientCall(s.Calls, call.ID); t.asked != nil {
			t.Decision = t.asked.decision()
		}
		p.work.tasks = append(p.work.tasks, t)
	}
	p.work.restore(s.Journal.Results)
	c := p.commit(slices.DeleteFunc(p.work.tasks, func(t *task) bool {
		return !t.Recorded && t.asked != nil && (t.Decision == nil || !t.Decision.Approved)
	}))
	c.Cut, c.Outcome = true, &o
	p.next = c
	return p
}

// processedCalls returns the processed calls of an earlier step. With the last of them, it abandons the calls of
// finishing tools.
func (p *Planner) processedCalls() []*task {
	kept, left := 0, len(p.pending)
	happened := func(t *task) bool { return t.end != nil || t.Recorded || t.begun }
	for _, t := range p.work.tasks {
		if happened(t) {
			kept++
			if t.asked != nil {
				left--
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(p.work.tasks), func(t *task) bool {
		return !happened(t) && (t.asked != nil || kept == 0 || left > 0)
	})
}

// Outcome returns the outcome of a stopped run.
func (s Stop) Outcome() Outcome {
	o := Outcome{Status: StatusFailed, FinishReason: model.FinishError}
	switch s.Kind {
	case StopAbort:
		o.Failure = &Failure{Error: "The run was cancelled.", Detail: reasoned("the run was aborted", s.Reason), Code: CodeCancelled}
	case StopDeadline:
		o.Failure = &Failure{Error: "The run took longer than it may.", Detail: reasoned("the deadline of the run has passed", s.Reason), Code: CodeDeadlineExceeded}
	case StopAgentGone:
		o.Failure = &Failure{Error: "The agent of this conversation is not available any more.", Detail: reasoned("the agent is gone", s.Reason), Code: CodeAgentGone}
	default:
		o = Outcome{Status: StatusInterrupted, FinishReason: model.FinishOther, Reason: s.Reason}
	}
	return o
}

func reasoned(what, reason string) string {
	if reason == "" {
		return what
	}
	return fmt.Sprintf("%s: %s", what, reason)
}
