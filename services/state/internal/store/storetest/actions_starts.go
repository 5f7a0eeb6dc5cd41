package storetest

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func (h *history) drawPost(key session.Key) session.RunRequest {
	run := h.id("run")
	return session.RunRequest{
		Key: key, AgentType: h.name, RunID: run, MessageID: h.id("ui"), RequestHash: []byte("h"),
		Messages: []session.Message{{ID: h.id("m"), Role: "user", RunID: run}}, Now: h.now, Limits: limits,
		By: session.Caller{Actor: rapid.SampledFrom([]string{"", "user:a", "key:b"}).Draw(h.T, "actor")},
		OnBusy: rapid.SampledFrom([]session.BusyPolicy{"", session.BusyReject, session.BusyEnqueue, session.BusyEnqueue, session.BusyInterrupt,
			session.BusyRollback, session.BusyRollback}).Draw(h.T, "policy"),
		Bodies: bodies, Priority: rapid.Int32Range(-1, 1).Draw(h.T, "priority"),
	}
}

// sendOf returns a Send of the post.
func sendOf(c session.RunRequest) session.Send {
	return session.Send{RunRequest: c, NewSession: session.Create{State: `{}`}}
}

// drawAddition draws messages and writes for a continuing run; often none.
func (h *history) drawAddition() (a session.Addition) {
	if rapid.IntRange(0, 2).Draw(h.T, "brings more") == 0 {
		a.Append = []session.Message{{ID: h.id("sys"), Role: "system"}}
		a.Ops = []session.StateOp{h.drawWrite()}
	}
	return a
}

// completeStart records the start of an intent and its message.
func (h *history) completeStart(a action, c session.RunRequest) action {
	h.starts[c.RunID] = c
	if c.RequestKey == "" && len(c.Messages) > 0 { // a repetition succeeds without a write
		a.message, a.run = c.Messages[0].ID, c.RunID
	}
	return a
}

// intentAction makes the action of an intent.
func (h *history) intentAction(name string, c intent, predict func(p *modelSession, all map[session.Key]*modelSession) string) action {
	return startingAction(h, name, keyOf(c), c.Need(), c.Decide, predict)
}

// rewindingAction is intentAction for a rewinding intent. Its run is not handed over.
func (h *history) rewindingAction(name string, c intent, predict func(p *modelSession, all map[session.Key]*modelSession) string) action {
	a := newAction(h, name, keyOf(c), c.Need(), c.Decide, predict)
	a.removes = true
	return a
}

func (h *history) start(key session.Key) action {
	c := h.drawPost(key)
	c.RequestKey = rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(h.T, "request key")
	a := h.intentAction("start "+c.RequestKey, sendOf(c), func(p *modelSession, all map[session.Key]*modelSession) string {
		if p != nil && p.knowsRequest(c.RequestKey) {
			return ""
		}
		return h.send(p, all, c)
	})
	return h.completeStart(a, c)
}

// send predicts a Send of new messages.
func (h *history) send(p *modelSession, all map[session.Key]*modelSession, c session.RunRequest) string {
	switch {
	case p == nil:
		p = newModelSession()
		p.Version = 0
		all[c.Key] = p
	case p.Status == session.Active:
		return p.waitWithAnswers(c, p.enqueue)
	case p.Status.Suspended() && c.Abandon == nil:
		return "SESSION_SUSPENDED"
	case len(p.Queue) > 0: // the session is suspended
		if reason := p.waitWithAnswers(c, p.enqueue); reason != "" {
			return reason
		}
		p.setAnswers(p.openCalls(), session.AnswerAbandoned)
		p.Status = session.Paused
		p.beginNext(nil, h.starts)
		return ""
	}
	p.applyAnswers(c.Answers)
	p.Version++
	if c.Abandon != nil {
		p.setAnswers(p.openCalls(), session.AnswerAbandoned)
	}
	p.beginWithMessages(c, session.EntryStart)
	return ""
}

// sendTwice resends a message of the conversation or of a waiting run. Outside a burst, its
// content sometimes differs.
func (h *history) sendTwice(key session.Key) action {
	p := h.sessions[key]
	if p == nil {
		return action{}
	}
	ids := append([]string{}, p.Messages...)
	for _, r := range p.Queue {
		ids = append(ids, h.starts[r.ID].Messages[0].ID)
	}
	// In a burst, another command may remove the message first. This one then stores it as a user's message, and the
	// model tells the author by the id.
	if h.bursting {
		ids = slices.DeleteFunc(ids, func(id string) bool { return !isUserMessage(id) })
	}
	if len(ids) == 0 {
		return action{}
	}
	c := h.drawPost(key)
	c.Messages[0].ID = rapid.SampledFrom(ids).Draw(h.T, "message")
	if !h.bursting && rapid.IntRange(0, 3).Draw(h.T, "another content") == 0 {
		c.Messages[0].Body, c.RequestHash = []byte("another"), []byte("another")
	}
	h.starts[c.RunID] = c // it may wait
	return h.intentAction("send twice "+c.Messages[0].ID, sendOf(c), func(p *modelSession, _ map[session.Key]*modelSession) string {
		same := c.Messages[0].Body == nil && isUserMessage(c.Messages[0].ID)
		queued := slices.ContainsFunc(p.Queue, func(r modelRun) bool { return h.starts[r.ID].Messages[0].ID == c.Messages[0].ID })
		r := p.run(p.RunByMessage[c.Messages[0].ID])
		switch {
		case queued && same:
			return ""
		case !queued && same && r != nil && !p.wroteNewestAnswer(r):
			return "RUN_STALE"
		case !queued && same && r != nil:
			return ""
		case p.Status == session.Active, p.Status.Suspended() && c.Abandon == nil:
			if reason := p.clone().enqueue(c); p.Status == session.Active && reason != "" {
				return reason
			} else if p.Status.Suspended() {
				return "SESSION_SUSPENDED"
			}
		}
		return "MESSAGE_EXISTS"
	})
}

// wroteNewestAnswer reports whether the run wrote the newest answer.
func (p *modelSession) wroteNewestAnswer(r *modelRun) bool {
	return r != nil && r.Message == p.Runs[len(p.Runs)-1].Message
}

// resumeAt resumes the session at a checkpoint.
func (h *history) resumeAt(key session.Key) action {
	if h.sessions[key] == nil {
		return action{}
	}
	c := session.Resume{RunRequest: h.drawPost(key), CheckpointID: h.drawCheckpoint(key), Addition: h.drawAddition()}
	a := h.rewindingAction("resume at a checkpoint", c, func(p *modelSession, _ map[session.Key]*modelSession) string {
		to := p.checkpoint(c.CheckpointID)
		switch {
		case to == nil:
			return "CHECKPOINT_NOT_FOUND"
		case p.Status == session.Active, len(p.Queue) > 0:
			return "SESSION_BUSY"
		}
		p.rewindTo(to)
		p.applyAddition(c.Addition)
		p.beginWithMessages(c.RunRequest, session.EntryResume)
		return ""
	})
	return h.completeStart(a, c.RunRequest)
}

// rewindTo rewinds the session to one of its checkpoints.
func (p *modelSession) rewindTo(to *modelCheckpoint) {
	p.truncate(to.Messages)
	p.Checkpoints = slices.DeleteFunc(p.Checkpoints, func(k modelCheckpoint) bool { return k.Step > to.Step })
	p.Status, p.Interrupted, p.Failed, p.Aborted, p.MaxSteps, p.State, p.StateVersion = session.Paused, false, false, false, false,
		maps.Clone(to.State), to.StateVersion
	p.dropOpenCalls("")
	for id, call := range p.Calls {
		if call.Step > to.Step {
			delete(p.Calls, id)
		}
	}
}

// stopWaiting stops a waiting run by its id.
func (h *history) stopWaiting(key session.Key) action {
	p := h.sessions[key]
	if p == nil {
		return action{}
	}
	ids := append([]string{"unknown"}, slices.Sorted(maps.Keys(p.EndedWaiting))...)
	for _, r := range p.Queue {
		ids = append(ids, r.ID, r.ID, r.ID)
	}
	c := session.RequestStop{Key: key, RunID: rapid.SampledFrom(ids).Draw(h.T, "run"), Kind: session.StopInterrupt, Now: h.now}
	return newAction(h, "give up", key, c.Need(), ofOneView(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		i := slices.IndexFunc(p.Queue, func(r modelRun) bool { return r.ID == c.RunID })
		if _, removed := p.EndedWaiting[c.RunID]; i < 0 && !removed {
			return "RUN_NOT_FOUND"
		}
		if i >= 0 {
			p.Version++
			r := p.Queue[i]
			r.Stop, r.StopAt = session.StopInterrupt, c.Now
			p.endWaiting(r, session.RunInterrupted, "")
			p.Queue = slices.Delete(p.Queue, i, i+1)
		}
		return ""
	})
}

func (h *history) abandon(key session.Key) action {
	c := h.drawPost(key)
	c.Abandon = abandonedResponse
	if h.sessions[key] != nil && rapid.Bool().Draw(h.T, "brings answers") {
		c.Answers = h.drawAnswers(key)
	}
	a := h.intentAction("start that abandons", sendOf(c),
		func(p *modelSession, all map[session.Key]*modelSession) string { return h.send(p, all, c) })
	return h.completeStart(a, c)
}

// waitWithAnswers enqueues a start and applies its answers when it is accepted.
func (p *modelSession) waitWithAnswers(c session.RunRequest, wait func(session.RunRequest) string) string {
	if reason := wait(c); reason != "" {
		return reason
	}
	p.applyAnswers(c.Answers)
	return ""
}

func (p *modelSession) setAnswers(ids []string, by session.AnswerKind) {
	for _, id := range ids {
		c := p.Calls[id]
		c.Answer, c.Revision = by, c.Revision+1
		p.Calls[id] = c
	}
}

func (h *history) resume(key session.Key) action {
	c := session.Resume{RunRequest: h.drawPost(key), Addition: h.drawAddition()}
	if rapid.Bool().Draw(h.T, "nothing new") {
		c.Messages = nil
	}
	a := h.intentAction("resume", c, func(p *modelSession, _ map[session.Key]*modelSession) string {
		switch {
		case p == nil:
			return "SESSION_NOT_FOUND"
		case p.Status == session.Completed:
			return "SESSION_COMPLETED"
		case p.Status == session.Active:
			return "SESSION_BUSY"
		case p.Status.Suspended() && len(p.openCalls()) > 0:
			return "SESSION_SUSPENDED"
		case p.Aborted:
			return "RUN_CANCELLED"
		}
		p.Version++
		goesOn := len(c.Append)+len(c.Messages) == 0 && len(p.Runs) > 0 && len(p.openCalls())+len(p.answeredCalls()) > 0
		p.applyAddition(c.Addition)
		p.beginWithMessages(c.RunRequest, session.EntryResume)
		if goesOn { // in the message of the previous run
			p.Runs[len(p.Runs)-1].Message = p.Runs[len(p.Runs)-2].Message
		}
		return ""
	})
	return h.completeStart(a, c.RunRequest)
}
