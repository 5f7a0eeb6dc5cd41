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

// message draws one of the session's, most of them of users, or one that it does not have.
func (w *world) message(key session.Key) string {
	p := w.sessions[key]
	ids := append([]string{"none"}, p.Messages...)
	for _, id := range p.Messages {
		if ofUser(id) {
			ids = append(ids, id, id, id)
		}
	}
	return rapid.SampledFrom(ids).Draw(w.T, "message")
}

// edit puts a message in the place of another, now and then of the same id.
func (w *world) edit(key session.Key) act {
	if w.sessions[key] == nil {
		return act{}
	}
	c := session.Edit{Send: sending(w.post(key)), Target: w.message(key)}
	same := ofUser(c.Target) && rapid.IntRange(0, 3).Draw(w.T, "same id") == 0
	if same {
		c.Messages[0].ID = c.Target
	}
	if rapid.Bool().Draw(w.T, "abandon") {
		c.Abandon = gone
	}
	a := w.goingBack("edit "+c.Target, c, func(p *plain, all map[session.Key]*plain) string {
		if !p.asks(c.Target) {
			return w.send(p, all, c.Post)
		}
		if r := p.run(p.Runner[c.Target]); same && p.newest(r) && p.good() {
			return ""
		}
		return p.takeBack(c.Post, c.Target, false)
	})
	return w.starting(a, c.Post)
}

// regenerate answers a message again.
func (w *world) regenerate(key session.Key) act {
	if w.sessions[key] == nil {
		return act{}
	}
	c := session.Regenerate{Send: sending(w.post(key)), Target: w.message(key)}
	if rapid.Bool().Draw(w.T, "nothing new") {
		c.Messages = nil
	}
	if rapid.Bool().Draw(w.T, "abandon") {
		c.Abandon = gone
	}
	a := w.goingBack("regenerate "+c.Target, c, func(p *plain, all map[session.Key]*plain) string {
		there, post := p.asks(c.Target), c.Post
		switch r := p.runOf(c.Target); {
		case !there && len(c.Messages) > 0:
			return w.send(p, all, post)
		case !there:
			return "MESSAGE_NOT_FOUND"
		case p.Status == session.Active && p.newest(r):
			return ""
		}
		post.Messages = nil // the question stands
		return p.takeBack(post, c.Target, true)
	})
	return w.starting(a, c.Post)
}

// runOf returns the run of a message of the conversation; nil for none.
func (p *plain) runOf(id string) *plainRun {
	if !slices.Contains(p.Messages, id) {
		return nil
	}
	_, of, _ := strings.Cut(id, "@")
	run, _, _ := strings.Cut(of, "#")
	return p.run(cmp.Or(p.Runner[id], run))
}

// asks reports whether the conversation has the message, of a user.
func (p *plain) asks(id string) bool { return ofUser(id) && slices.Contains(p.Messages, id) }

// good reports whether the newest run has neither failed nor was stopped.
func (p *plain) good() bool {
	status := p.Runs[len(p.Runs)-1].Status
	return status != session.RunFailed && status != session.RunInterrupted
}

// ofUser reports whether a message of that id was sent by a user.
func ofUser(id string) bool { return strings.HasPrefix(id, "m") && !strings.Contains(id, "@") }

// stepBefore is the step of the last message before the place that a step has said.
func (p *plain) stepBefore(at int) (step int32) {
	for _, id := range slices.Backward(p.Messages[:at]) {
		if i := strings.LastIndexAny(id, "~#"); i >= 0 {
			if _, err := fmt.Sscanf(id[i+1:], "%d", &step); err == nil {
				return step
			}
		}
	}
	return 0
}

// takeBack goes back to a message of a user before a run begins.
func (p *plain) takeBack(c session.Post, target string, keep bool) string {
	at := slices.Index(p.Messages, target)
	if p.Status == session.Active || len(p.Queue) > 0 {
		return "SESSION_BUSY"
	}
	before := p.stepBefore(at)
	state, version := map[string]string(nil), int64(0)
	for _, k := range p.Checkpoints {
		if k.Messages <= at {
			state, version = k.State, k.StateVersion
		}
	}
	if r := p.run(p.Runner[target]); r != nil {
		state, version = p.Origins[r.ID], r.FromState
	}
	if state == nil {
		return "CHECKPOINT_NOT_FOUND"
	}
	kept := []string{}
	if keep {
		kept = append(kept, target)
		p.Runner[target] = c.RunID
	}
	for _, id := range p.Messages[at+1:] {
		_, step, result := strings.Cut(id, "#")
		for _, call := range p.Calls {
			if result && call.Consumed && call.Step <= before && fmt.Sprint(call.Taken) == step {
				kept = append(kept, id)
				break
			}
		}
	}
	p.cut(at)
	p.Messages = append(p.Messages, kept...)
	p.Checkpoints = slices.DeleteFunc(p.Checkpoints, func(k plainCheckpoint) bool { return k.StateVersion > version })
	p.State, p.StateVersion = maps.Clone(state), version
	for id, call := range p.Calls {
		switch {
		case call.Step > before:
			delete(p.Calls, id)
		case call.ToldAt > before:
			call.Told, call.ToldAt = false, 0
			p.Calls[id] = call
		}
	}
	if c.Abandon != nil {
		p.answer(p.open(), session.AnswerAbandoned)
	}
	p.drop("")
	p.Interrupted = false
	p.bring(c, session.EntryStart)
	if keep {
		p.Runs[len(p.Runs)-1].From, p.Runs[len(p.Runs)-1].FromTurn = at, at
	}
	return ""
}
