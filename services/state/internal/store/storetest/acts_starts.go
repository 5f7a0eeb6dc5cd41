package storetest

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func (w *world) post(key session.Key) session.Post {
	run := w.id("run")
	return session.Post{
		Key: key, AgentType: w.name, RunID: run, MessageID: w.id("ui"), RequestHash: []byte("h"), Messages: []session.Message{{ID: w.id("m"), Role: "user", RunID: run}}, Now: w.now, Limits: limits,
		OnBusy: rapid.SampledFrom([]session.BusyPolicy{"", session.BusyReject, session.BusyEnqueue, session.BusyEnqueue, session.BusyInterrupt, session.BusyRollback, session.BusyRollback}).Draw(w.T, "policy"),
		Bodies: bodies,
	}
}

// sending is a Send of the post.
func sending(c session.Post) session.Send {
	return session.Send{Post: c, New: session.Create{State: `{}`}}
}

// addition draws what a run that goes on may bring.
func (w *world) addition() (a session.Addition) {
	if rapid.IntRange(0, 2).Draw(w.T, "brings more") == 0 {
		a.Append = []session.Message{{ID: w.id("sys"), Role: "system"}}
		a.Ops = []session.StateOp{w.op()}
	}
	return a
}

// starting completes the act of an intent.
func (w *world) starting(a act, c session.Post) act {
	w.starts[c.RunID] = c
	if c.RequestKey == "" && len(c.Messages) > 0 { // a repetition is acknowledged, and writes nothing
		a.message, a.run = c.Messages[0].ID, c.RunID
	}
	return a
}

// intended makes the act of an intent.
func (w *world) intended(name string, c intent, predict func(p *plain, all map[session.Key]*plain) string) act {
	return beginning(w, name, keyOf(c), c.Need(), c.Decide, predict)
}

// goingBack is intended for an intent that may go back. Such a run is not handed over.
func (w *world) goingBack(name string, c intent, predict func(p *plain, all map[session.Key]*plain) string) act {
	a := command(w, name, keyOf(c), c.Need(), c.Decide, predict)
	a.undoes = true
	return a
}

func (w *world) start(key session.Key) act {
	c := w.post(key)
	c.RequestKey = rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(w.T, "request key")
	a := w.intended("start "+c.RequestKey, sending(c), func(p *plain, all map[session.Key]*plain) string {
		if p != nil && p.knows(c.RequestKey) {
			return ""
		}
		return w.send(p, all, c)
	})
	return w.starting(a, c)
}

// send is what messages do that were not sent before.
func (w *world) send(p *plain, all map[session.Key]*plain, c session.Post) string {
	switch {
	case p == nil:
		p = newPlain()
		p.Version = 0
		all[c.Key] = p
	case p.Status == session.Active:
		return p.bringing(c, p.wait)
	case p.Status.Suspended() && c.Abandon == nil:
		return "SESSION_SUSPENDED"
	case len(p.Queue) > 0: // it is suspended
		if reason := p.bringing(c, p.wait); reason != "" {
			return reason
		}
		p.answer(p.open(), session.AnswerAbandoned)
		p.Status = session.Paused
		p.next(nil, w.starts)
		return ""
	}
	p.given(c.Answers)
	p.Version++
	if c.Abandon != nil {
		p.answer(p.open(), session.AnswerAbandoned)
	}
	p.bring(c, session.EntryStart)
	return ""
}

// sendTwice sends a message that the conversation has, or that waits. Now and then its
// content is another one.
func (w *world) sendTwice(key session.Key) act {
	p := w.sessions[key]
	if p == nil {
		return act{}
	}
	ids := append([]string{}, p.Messages...)
	for _, r := range p.Queue {
		ids = append(ids, w.starts[r.ID].Messages[0].ID)
	}
	if len(ids) == 0 {
		return act{}
	}
	c := w.post(key)
	c.Messages[0].ID = rapid.SampledFrom(ids).Draw(w.T, "message")
	if rapid.IntRange(0, 3).Draw(w.T, "another content") == 0 {
		c.Messages[0].Body, c.RequestHash = []byte("another"), []byte("another")
	}
	w.starts[c.RunID] = c // in a burst, the message may have gone, and this one waits
	return w.intended("send twice "+c.Messages[0].ID, sending(c), func(p *plain, _ map[session.Key]*plain) string {
		same := c.Messages[0].Body == nil && ofUser(c.Messages[0].ID)
		queued := slices.ContainsFunc(p.Queue, func(r plainRun) bool { return w.starts[r.ID].Messages[0].ID == c.Messages[0].ID })
		r := p.run(p.Runner[c.Messages[0].ID])
		switch {
		case queued && same:
			return ""
		case !queued && same && r != nil && !p.newest(r):
			return "RUN_STALE"
		case !queued && same && r != nil:
			return ""
		case p.Status == session.Active, p.Status.Suspended() && c.Abandon == nil:
			if reason := p.clone().wait(c); p.Status == session.Active && reason != "" {
				return reason
			} else if p.Status.Suspended() {
				return "SESSION_SUSPENDED"
			}
		}
		return "MESSAGE_EXISTS"
	})
}

// newest reports whether the run has written the newest answer.
func (p *plain) newest(r *plainRun) bool {
	return r != nil && r.Message == p.Runs[len(p.Runs)-1].Message
}

// resumeAt resumes the session at a checkpoint.
func (w *world) resumeAt(key session.Key) act {
	if w.sessions[key] == nil {
		return act{}
	}
	c := resume{session.Resume{Post: w.post(key), CheckpointID: w.checkpoint(key), Addition: w.addition()}}
	a := w.goingBack("resume at a checkpoint", c, func(p *plain, _ map[session.Key]*plain) string {
		to := p.checkpoint(c.CheckpointID)
		switch {
		case to == nil:
			return "CHECKPOINT_NOT_FOUND"
		case p.Status == session.Active, len(p.Queue) > 0:
			return "SESSION_BUSY"
		}
		p.back(to)
		p.add(c.Addition)
		p.bring(c.Post, session.EntryResume)
		return ""
	})
	return w.starting(a, c.Post)
}

// back takes the session back to one of its checkpoints.
func (p *plain) back(to *plainCheckpoint) {
	p.cut(to.Messages)
	p.Checkpoints = slices.DeleteFunc(p.Checkpoints, func(k plainCheckpoint) bool { return k.Step > to.Step })
	p.Status, p.Interrupted, p.Failed, p.Aborted, p.MaxSteps, p.State, p.StateVersion = session.Paused, false, false, false, false, maps.Clone(to.State), to.StateVersion
	p.drop("")
	for id, call := range p.Calls {
		if call.Step > to.Step {
			delete(p.Calls, id)
		}
	}
}

// giveUp stops a run by the id that it waits under.
func (w *world) giveUp(key session.Key) act {
	p := w.sessions[key]
	if p == nil {
		return act{}
	}
	ids := append([]string{"nobody"}, slices.Sorted(maps.Keys(p.GivenUp))...)
	for _, r := range p.Queue {
		ids = append(ids, r.ID, r.ID, r.ID)
	}
	c := session.RequestStop{Key: key, RunID: rapid.SampledFrom(ids).Draw(w.T, "run"), Kind: session.StopInterrupt, Now: w.now}
	return command(w, "give up", key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		i := slices.IndexFunc(p.Queue, func(r plainRun) bool { return r.ID == c.RunID })
		if _, gone := p.GivenUp[c.RunID]; i < 0 && !gone {
			return "RUN_NOT_FOUND"
		}
		if i >= 0 {
			p.Version++
			r := p.Queue[i]
			r.Stop, r.StopAt = session.StopInterrupt, c.Now
			p.giveUp(r, session.RunInterrupted, "")
			p.Queue = slices.Delete(p.Queue, i, i+1)
		}
		return ""
	})
}

func (w *world) abandon(key session.Key) act {
	c := w.post(key)
	c.Abandon = gone
	if w.sessions[key] != nil && rapid.Bool().Draw(w.T, "brings answers") {
		c.Answers = w.answers(key)
	}
	a := w.intended("start that abandons", sending(c), func(p *plain, all map[session.Key]*plain) string { return w.send(p, all, c) })
	return w.starting(a, c)
}

// bringing is wait for a start that brings answers: they are taken when it is.
func (p *plain) bringing(c session.Post, wait func(session.Post) string) string {
	if reason := wait(c); reason != "" {
		return reason
	}
	p.given(c.Answers)
	return ""
}

func (p *plain) answer(ids []string, by session.AnswerKind) {
	for _, id := range ids {
		c := p.Calls[id]
		c.Answer, c.Revision = by, c.Revision+1
		p.Calls[id] = c
	}
}

func (w *world) resume(key session.Key) act {
	c := resume{session.Resume{Post: w.post(key), Addition: w.addition()}}
	if rapid.Bool().Draw(w.T, "nothing new") {
		c.Messages = nil
	}
	a := w.intended("resume", c, func(p *plain, _ map[session.Key]*plain) string {
		switch {
		case p == nil:
			return "SESSION_NOT_FOUND"
		case p.Status == session.Completed:
			return "SESSION_COMPLETED"
		case p.Status == session.Active:
			return "SESSION_BUSY"
		case p.Status.Suspended() && len(p.open()) > 0:
			return "SESSION_SUSPENDED"
		case p.Aborted:
			return "RUN_CANCELLED"
		}
		p.Version++
		goesOn := len(c.Append)+len(c.Messages) == 0 && len(p.Runs) > 0 && len(p.open())+len(p.answered()) > 0
		p.add(c.Addition)
		p.bring(c.Post, session.EntryResume)
		if goesOn { // in the message of the run before
			p.Runs[len(p.Runs)-1].Message = p.Runs[len(p.Runs)-2].Message
		}
		return ""
	})
	return w.starting(a, c.Post)
}
