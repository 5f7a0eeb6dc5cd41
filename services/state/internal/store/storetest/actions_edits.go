package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// drawMessage draws the id of a message of the session, usually a user's, or an unknown id.
func (h *history) drawMessage(key session.Key) string {
	p := h.sessions[key]
	ids := append([]string{"none"}, p.Messages...)
	for _, id := range p.Messages {
		if isUserMessage(id) {
			ids = append(ids, id, id, id)
		}
	}
	return rapid.SampledFrom(ids).Draw(h.T, "message")
}

// edit replaces a message. Sometimes the new message has the same id.
func (h *history) edit(key session.Key) action {
	if h.sessions[key] == nil {
		return action{}
	}
	c := session.Edit{Send: sendOf(h.drawPost(key)), Target: h.drawMessage(key)}
	same := isUserMessage(c.Target) && rapid.IntRange(0, 3).Draw(h.T, "same id") == 0
	if same {
		c.Messages[0].ID = c.Target
	}
	if rapid.Bool().Draw(h.T, "abandon") {
		c.Abandon = abandonedResponse
	}
	a := h.rewindingAction("edit "+c.Target, c, func(p *modelSession, all map[session.Key]*modelSession) string {
		if !p.hasUserMessage(c.Target) {
			return h.send(p, all, c.RunRequest)
		}
		if r := p.run(p.RunByMessage[c.Target]); same && p.wroteNewestAnswer(r) && p.newestSucceeded() {
			return ""
		}
		return p.rewindToMessage(c.RunRequest, c.Target, false)
	})
	return h.completeStart(a, c.RunRequest)
}

// regenerate answers a message again.
func (h *history) regenerate(key session.Key) action {
	if h.sessions[key] == nil {
		return action{}
	}
	c := session.Regenerate{Send: sendOf(h.drawPost(key)), Target: h.drawMessage(key)}
	if rapid.Bool().Draw(h.T, "nothing new") {
		c.Messages = nil
	}
	if rapid.Bool().Draw(h.T, "abandon") {
		c.Abandon = abandonedResponse
	}
	a := h.rewindingAction("regenerate "+c.Target, c, func(p *modelSession, all map[session.Key]*modelSession) string {
		there, post := p.hasUserMessage(c.Target), c.RunRequest
		switch r := p.runOfMessage(c.Target); {
		case !there && len(c.Messages) > 0:
			return h.send(p, all, post)
		case !there:
			return "MESSAGE_NOT_FOUND"
		case p.Status == session.Active && p.wroteNewestAnswer(r) && c.OnBusy != session.BusyInterrupt && c.OnBusy != session.BusyRollback:
			return ""
		}
		post.Messages = nil // the user's message stays
		return p.rewindToMessage(post, c.Target, true)
	})
	return h.completeStart(a, c.RunRequest)
}

// runOfMessage returns the run of a message in the conversation; nil for none.
func (p *modelSession) runOfMessage(id string) *modelRun {
	if !slices.Contains(p.Messages, id) {
		return nil
	}
	_, of, _ := strings.Cut(id, "@")
	run, _, _ := strings.Cut(of, "#")
	return p.run(cmp.Or(p.RunByMessage[id], run))
}

// hasUserMessage reports whether the id is of a user's message in the conversation.
func (p *modelSession) hasUserMessage(id string) bool {
	return isUserMessage(id) && slices.Contains(p.Messages, id)
}

// newestSucceeded reports whether the newest run neither failed nor was interrupted.
func (p *modelSession) newestSucceeded() bool {
	status := p.Runs[len(p.Runs)-1].Status
	return status != session.RunFailed && status != session.RunInterrupted
}

// isUserMessage reports whether the id is of a user's message.
func isUserMessage(id string) bool { return strings.HasPrefix(id, "m") && !strings.Contains(id, "@") }

// stepBefore returns the step of the last message of a step before index at; 0 for none.
func (p *modelSession) stepBefore(at int) (step int32) {
	for _, id := range slices.Backward(p.Messages[:at]) {
		if i := strings.LastIndexAny(id, "~#"); i >= 0 {
			if _, err := fmt.Sscanf(id[i+1:], "%d", &step); err == nil {
				return step
			}
		}
	}
	return 0
}

// stateBefore returns the state before the user's message at an index, and its version; nil
// for an unknown state.
func (p *modelSession) stateBefore(at int) (state map[string]string, version int64) {
	if r := p.run(p.RunByMessage[p.Messages[at]]); r != nil {
		return p.StartStates[r.ID], r.FromState
	}
	for _, k := range p.Checkpoints {
		if k.Messages <= at {
			state, version = k.State, k.StateVersion
		}
	}
	return state, version
}

// resultsFor returns the messages with results of calls up to the step.
func (p *modelSession) resultsFor(before int32, messages []string) (results []string) {
	for _, id := range messages {
		_, step, result := strings.Cut(id, "#")
		for _, call := range p.Calls {
			if result && call.Consumed && call.Step <= before && fmt.Sprint(call.Taken) == step {
				results = append(results, id)
				break
			}
		}
	}
	return results
}

// endWork interrupts the live run and the waiting ones.
func (p *modelSession) endWork() {
	if p.Status == session.Active {
		p.forceStatus(session.Interrupted, "")
		p.Version--
	}
	for _, r := range p.Queue {
		p.endWaiting(r, session.RunInterrupted, "")
	}
	p.Queue = nil
}

// rewindToMessage rewinds to a user's message and begins a run. keep keeps the message.
func (p *modelSession) rewindToMessage(c session.RunRequest, target string, keep bool) string {
	at := slices.Index(p.Messages, target)
	if (p.Status == session.Active || len(p.Queue) > 0) && (c.OnBusy == "" || c.OnBusy == session.BusyReject) {
		return "SESSION_BUSY"
	}
	before := p.stepBefore(at)
	state, version := p.stateBefore(at)
	if state == nil {
		return "CHECKPOINT_NOT_FOUND"
	}
	p.endWork()
	kept := []string{}
	if keep {
		kept = append(kept, target)
		p.RunByMessage[target] = c.RunID
	}
	kept = append(kept, p.resultsFor(before, p.Messages[at+1:])...)
	p.truncate(at)
	p.Messages = append(p.Messages, kept...)
	p.Checkpoints = slices.DeleteFunc(p.Checkpoints, func(k modelCheckpoint) bool { return k.StateVersion > version })
	p.State, p.StateVersion = maps.Clone(state), version
	for id, call := range p.Calls {
		switch {
		case call.Step > before:
			delete(p.Calls, id)
		case call.LateReportedAt > before:
			call.LateReported, call.LateReportedAt = false, 0
			p.Calls[id] = call
		}
	}
	if c.Abandon != nil {
		p.setAnswers(p.openCalls(), session.AnswerAbandoned)
	}
	p.dropOpenCalls("")
	p.Interrupted = false
	p.beginWithMessages(c, session.EntryStart)
	if keep {
		p.Runs[len(p.Runs)-1].From, p.Runs[len(p.Runs)-1].FromTurn = at, at
	}
	return ""
}
