package storetest

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func (w *world) startOf(key session.Key) session.Start {
	run := w.id("run")
	c := session.Start{
		Key: key, AgentType: w.name, State: `{}`, RunID: run, RequestHash: []byte("h"), Messages: []session.Message{{ID: w.id("m"), Role: "user", RunID: run}}, Now: w.now, Limits: limits,
		OnBusy: rapid.SampledFrom([]session.BusyPolicy{"", session.BusyReject, session.BusyEnqueue, session.BusyEnqueue, session.BusyInterrupt, session.BusyRollback, session.BusyRollback}).Draw(w.T, "policy"),
	}
	if w.sessions[key] != nil && rapid.IntRange(0, 3).Draw(w.T, "brings more") == 0 {
		c.Append = []session.Message{{ID: w.id("sys"), Role: "system"}}
		c.Ops = []session.StateOp{w.op()}
	}
	return c
}

// starting completes the act of a start.
func (w *world) starting(a act, c session.Start) act {
	w.starts[c.RunID] = c
	if c.RequestKey == "" && len(c.Messages) > 0 { // a repetition is acknowledged, and writes nothing
		a.message, a.run = c.Messages[0].ID, c.RunID
	}
	return a
}

func (w *world) start(key session.Key) act {
	c := w.startOf(key)
	c.RequestKey = rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(w.T, "request key")
	a := beginning(w, "start "+c.RequestKey, key, c.Need(), c.Decide, func(p *plain, all map[session.Key]*plain) string {
		switch {
		case p == nil:
			p = newPlain()
			p.Version = 0
			all[key] = p
		case p.knows(c.RequestKey):
			return ""
		case p.Status == session.Active:
			return p.wait(c)
		case p.Status.Suspended():
			return "SESSION_SUSPENDED"
		}
		p.Version++
		p.bring(c, session.EntryStart)
		return ""
	})
	return w.starting(a, c)
}

// goBack starts a run at a checkpoint.
func (w *world) goBack(key session.Key) act {
	if w.sessions[key] == nil {
		return act{}
	}
	c := w.startOf(key)
	c.RewindTo = w.checkpoint(key)
	a := command(w, "start at a checkpoint", key, c.Need(), c.Decide, func(p *plain, _ map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		to := p.checkpoint(c.RewindTo)
		switch {
		case to == nil:
			return "CHECKPOINT_NOT_FOUND"
		case p.Status == session.Active, len(p.Queue) > 0:
			return "SESSION_BUSY"
		}
		p.back(to)
		p.bring(c, session.EntryStart)
		return ""
	})
	a.undoes = true
	return w.starting(a, c)
}

// back takes the session back to one of its checkpoints.
func (p *plain) back(to *plainCheckpoint) {
	p.cut(to.Messages)
	p.Checkpoints = slices.DeleteFunc(p.Checkpoints, func(k plainCheckpoint) bool { return k.Step > to.Step })
	p.Status, p.Interrupted, p.Failed, p.Aborted, p.State, p.StateVersion = session.Paused, false, false, false, maps.Clone(to.State), to.StateVersion
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
	c := w.startOf(key)
	c.Abandon = gone
	if w.sessions[key] != nil && rapid.Bool().Draw(w.T, "brings answers") {
		c.Answers = w.answers(key)
	}
	a := beginning(w, "start that abandons", key, c.Need(), c.Decide, func(p *plain, all map[session.Key]*plain) string {
		switch {
		case p == nil:
			p = newPlain()
			p.Version = 0
			all[key] = p
		case p.Status == session.Active:
			return p.bringing(c, p.wait)
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
		p.answer(p.open(), session.AnswerAbandoned)
		p.bring(c, session.EntryStart)
		return ""
	})
	return w.starting(a, c)
}

// bringing is wait for a start that brings answers: they are taken when it is.
func (p *plain) bringing(c session.Start, wait func(session.Start) string) string {
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
	c := w.startOf(key)
	c.Resume, c.Messages = true, nil
	return beginning(w, "resume", key, c.Need(), c.Decide, func(p *plain, _ map[session.Key]*plain) string {
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
		p.bring(c, session.EntryResume)
		return ""
	})
}
