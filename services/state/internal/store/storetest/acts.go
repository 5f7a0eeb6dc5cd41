package storetest

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// act is a command that was drawn. Its two halves share nothing but values, so
// that a burst may send it whatever the model says.
//
// The zero value is a command that cannot be drawn now.
type act struct {
	name    string
	key     session.Key
	message string // an id that it appends, if it does anything
	run     string // of the message; it may wait, or be taken back
	repeats bool   // it may be taken for the repetition of another, and then appends nothing
	undoes  bool   // it may take messages of others away
	deletes bool
	predict func(map[session.Key]*plain) (reason string)
	send    func() error
}

// draw draws a command on one of the sessions, most of them such that they can
// succeed.
func (w *world) draw() act {
	key := rapid.SampledFrom(w.keys).Draw(w.T, "session")
	fitting := w.fitting(w.sessions[key])
	if rapid.IntRange(0, 4).Draw(w.T, "anything") == 0 {
		fitting = slices.Concat(w.fitting(nil), w.idle(), w.asked(), w.owned())
	}
	i := rapid.IntRange(0, len(fitting)-1).Draw(w.T, "command")
	if a := fitting[i](key); a.send != nil {
		return a
	}
	return w.start(key)
}

type maker = func(session.Key) act

// fitting are the commands for what the session is.
func (w *world) fitting(p *plain) []maker {
	switch {
	case p == nil:
		return []maker{w.create, w.start, w.start}
	case p.Status == session.Active && p.live().Status == session.RunRunning:
		return append(w.owned(), w.append, w.merge, w.stop, w.setStatus, w.submit, w.submitAll, w.start, w.start, w.start, w.sendTwice, w.giveUp, w.edit, w.regenerate)
	case p.Status == session.Active:
		return []maker{w.claim, w.claim, w.claim, w.claim, w.stop, w.append, w.delete, w.setStatus, w.start, w.sendTwice, w.giveUp, w.regenerate, w.retry}
	case p.Status.Suspended():
		return append(w.asked(), w.stop, w.append, w.rewind, w.resumeAt, w.edit, w.regenerate, w.sendTwice, w.giveUp)
	case p.Status == session.Failed:
		return append(w.idle(), w.submit, w.submitAll, w.retry, w.retry, w.retry, w.retry)
	default:
		return append(w.idle(), w.submit, w.submitAll)
	}
}

func (w *world) owned() []maker {
	return []maker{w.plan, w.plan, w.result, w.result, w.commit, w.commit, w.commit, w.commit, w.finish, w.release, w.silence}
}

func (w *world) asked() []maker {
	return []maker{w.submit, w.submit, w.submit, w.submitAll, w.submitAll, w.timeout, w.timeout, w.expire, w.abandon, w.resume}
}

func (w *world) idle() []maker {
	return []maker{w.start, w.start, w.start, w.start, w.resume, w.resumeAt, w.edit, w.regenerate, w.sendTwice, w.retry, w.abandon, w.append, w.stop, w.setStatus, w.truncate, w.rewind, w.rewind, w.branch, w.delete, w.merge}
}

// command completes an act on one session.
func command[A any](w *world, name string, key session.Key, need session.Need, decide func(...*session.View) (*session.Change, A, error), predict func(p *plain, all map[session.Key]*plain) string) act {
	return commandWith(w, name, key, need, decide, nil, predict)
}

// commandWith is command with more to decide of the change of its session.
func commandWith[A any](w *world, name string, key session.Key, need session.Need, decide func(...*session.View) (*session.Change, A, error), then func(*session.View, *session.Change) error, predict func(p *plain, all map[session.Key]*plain) string) act {
	next := w.id("next")
	f := session.Family{Now: w.now, NewID: func() string { return next }, Abandon: gone}
	return act{
		name: fmt.Sprint(name, " ", key.SessionID), key: key,
		predict: func(all map[session.Key]*plain) string { return predict(all[key], all) },
		send: func() error {
			return sendThen(w.t, w.store, f, key, need, keeping(new(A), decide), then)
		},
	}
}

// onOne widens a Decide of one view, and quiet one without an answer.
func onOne[A any](decide func(*session.View) (*session.Change, A, error)) func(...*session.View) (*session.Change, A, error) {
	return func(views ...*session.View) (*session.Change, A, error) { return decide(views[0]) }
}

func quiet(decide func(*session.View) (*session.Change, error)) func(...*session.View) (*session.Change, any, error) {
	return func(views ...*session.View) (*session.Change, any, error) {
		change, err := decide(views[0])
		return change, nil, err
	}
}

// newPlain is a session without a run.
func newPlain() *plain {
	return &plain{
		Status: session.Paused, Version: 1, State: map[string]string{}, StateVersion: 1, Calls: map[string]plainCall{},
		Runner: map[string]string{}, Origins: map[string]map[string]string{},
	}
}

func (w *world) create(key session.Key) act {
	c := session.Create{Key: key, AgentType: w.name, State: `{}`, Now: w.now}
	return command(w, "create", key, c.Need(), c.Decide, func(p *plain, all map[session.Key]*plain) string {
		if p != nil {
			return "SESSION_EXISTS"
		}
		all[key] = newPlain()
		return ""
	})
}

func (w *world) append(key session.Key) act {
	c := session.AppendMessages{Key: key, Messages: []session.Message{{ID: w.id("m"), Role: "user"}}, Now: w.now}
	a := command(w, "append", key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		p.Version++
		p.Messages = append(p.Messages, c.Messages[0].ID)
		return ""
	})
	a.message = c.Messages[0].ID
	return a
}

func (w *world) truncate(key session.Key) act {
	if w.sessions[key] == nil {
		return act{}
	}
	c := session.Truncate{Key: key, Messages: int64(rapid.IntRange(0, len(w.sessions[key].Messages)+1).Draw(w.T, "messages")), Now: w.now}
	a := command(w, "truncate", key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		switch {
		case p == nil:
			return "SESSION_NOT_FOUND"
		case p.Status == session.Active:
			return "SESSION_BUSY"
		case int(c.Messages) > len(p.Messages):
			return "COUNT_INVALID"
		case int(c.Messages) < len(p.Messages):
			p.cut(int(c.Messages))
		}
		return ""
	})
	a.undoes = true
	return a
}

// checkpoint draws one of the session's, or one that it does not have.
func (w *world) checkpoint(key session.Key) string {
	ids := []string{"none"}
	for _, c := range w.sessions[key].Checkpoints {
		ids = append(ids, c.ID)
	}
	return rapid.SampledFrom(ids).Draw(w.T, "checkpoint")
}

func (p *plain) checkpoint(id string) *plainCheckpoint {
	for i := range p.Checkpoints {
		if p.Checkpoints[i].ID == id {
			c := p.Checkpoints[i]
			return &c
		}
	}
	return nil
}

func (w *world) rewind(key session.Key) act {
	if p := w.sessions[key]; p == nil || w.bursts && p.Status == session.Failed { // see retry
		return act{}
	}
	c := session.RewindTo{Key: key, CheckpointID: w.checkpoint(key), Now: w.now}
	a := command(w, "rewind", key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		to := p.checkpoint(c.CheckpointID)
		switch {
		case p.Status == session.Active:
			return "SESSION_BUSY"
		case to == nil:
			return "CHECKPOINT_NOT_FOUND"
		}
		p.back(to)
		p.next(nil, w.starts)
		return ""
	})
	a.undoes = true
	return a
}

func (w *world) branch(from session.Key) act {
	if w.sessions[from] == nil {
		return act{}
	}
	key := from
	key.SessionID = rapid.SampledFrom([]string{"one", "two"}).Draw(w.T, "branch")
	c := session.Branch{From: from, CheckpointID: w.checkpoint(from), Key: key, Now: w.now}
	return act{
		name: "branch", key: key,
		predict: func(all map[session.Key]*plain) string {
			p := all[from]
			switch {
			case p == nil:
				return "SESSION_NOT_FOUND"
			case all[key] != nil:
				return "SESSION_EXISTS"
			}
			to := p.checkpoint(c.CheckpointID)
			if to == nil {
				return "CHECKPOINT_NOT_FOUND"
			}
			all[key] = newPlain()
			all[key].Messages, all[key].State, all[key].Runner = slices.Clone(p.Messages[:to.Messages]), maps.Clone(to.State), maps.Clone(p.Runner)
			return ""
		},
		send: func() error {
			return w.store.Update(w.t.Context(), c.Targets(), weight, func(views []*session.View) ([]*session.Change, error) {
				changes, _, err := c.Decide(views...)
				return changes, err
			})
		},
	}
}

func (w *world) delete(key session.Key) act {
	c := session.DeleteSession{Key: key}
	a := command(w, "delete", key, c.Need(), quiet(c.Decide), func(p *plain, all map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		delete(all, key)
		return ""
	})
	a.undoes, a.deletes = true, true
	return a
}

func (w *world) merge(key session.Key) act {
	op := w.op()
	c := session.MergeState{Key: key, Ops: []session.StateOp{op}, Limits: limits, Now: w.now}
	return command(w, "merge", key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		if p.State[op.Key] != op.Value {
			p.Version++
			p.write(op.Key, op.Value)
		}
		return ""
	})
}

// op draws a write to the state. Some are long, so that others are kept
// beside the whole.
func (w *world) op() session.StateOp {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.T, "key")
	value := fmt.Sprintf("%*d", rapid.SampledFrom([]int{1, 1, 1, 250}).Draw(w.T, "size"), rapid.IntRange(1, 4).Draw(w.T, "value"))
	return session.StateOp{Key: key, Kind: session.Replace, Value: `"` + value + `"`}
}

func (w *world) stop(key session.Key) act {
	kind := rapid.SampledFrom([]session.StopKind{session.StopInterrupt, session.StopAbort}).Draw(w.T, "kind")
	c := session.RequestStop{Key: key, Kind: kind, Now: w.now}
	return command(w, "stop by "+string(kind), key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		if r := p.live(); r != nil {
			r.ask(kind, false, c.Now)
			return ""
		}
		switch {
		case p.Status == session.Completed, p.Status == session.Failed, p.Status == session.Interrupted && kind == session.StopInterrupt:
		case kind == session.StopAbort:
			p.force(session.Failed, "") // it has no live run
			p.Aborted = true
			p.next(nil, w.starts)
		default:
			p.force(session.Interrupted, "")
			p.next(nil, w.starts)
		}
		return ""
	})
}

func (w *world) setStatus(key session.Key) act {
	if w.sessions[key] == nil {
		return act{}
	}
	status := rapid.SampledFrom([]session.Status{session.Completed, session.Failed, session.Interrupted, session.Paused}).Draw(w.T, "status")
	c := session.SetStatus{Key: key, Status: status, Failure: &session.Failure{Error: "no"}, Now: w.now}
	if rapid.IntRange(0, 3).Draw(w.T, "too many steps") == 0 {
		c.Failure.Code = mostSteps
	}
	c.ExpectedVersion = rapid.SampledFrom([]int64{0, w.sessions[key].Version, w.sessions[key].Version, 1}).Draw(w.T, "expected version")
	c.Expected = rapid.SampledFrom([][]session.Status{nil, {w.sessions[key].Status}, {session.Paused, session.Failed}}).Draw(w.T, "expected")
	return command(w, "set "+string(status), key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		switch {
		case p == nil:
			return "SESSION_NOT_FOUND"
		case c.ExpectedVersion != 0 && c.ExpectedVersion != p.Version, c.Expected != nil && !slices.Contains(c.Expected, p.Status):
			return ""
		}
		ended := p.force(status, "no")
		if status == session.Failed {
			p.MaxSteps = c.Failure.Code == mostSteps
			p.forsake("no")
		}
		p.next(ended, w.starts)
		return ""
	})
}

func (w *world) expire(key session.Key) act {
	w.now += 60
	c := session.Expire{Key: key, Now: w.now}
	return command(w, "expire", key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		switch {
		case p == nil:
			return "SESSION_NOT_FOUND"
		case p.Expires != 0 && p.Expires <= c.Now && p.Status != session.Completed && p.Status != session.Failed:
			p.force(session.Failed, "The session has expired.")
			p.forsake("The session has expired.")
		}
		return ""
	})
}

func (w *world) timeout(key session.Key) act {
	w.now += 20
	c := session.Timeout{Key: key, Response: func(session.Call) []byte { return nil }, NewRunID: w.id("run"), Now: w.now}
	return command(w, "timeout", key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		var late []string
		for _, id := range p.open() {
			if d := p.Calls[id].Deadline; d != 0 && d <= c.Now {
				late = append(late, id)
			}
		}
		p.answer(late, session.AnswerTimeout)
		if len(late) > 0 && p.wake(c.NewRunID, c.Now) {
			p.Version++
		}
		return ""
	})
}

func (w *world) submit(key session.Key) act {
	if w.sessions[key] == nil {
		return act{}
	}
	ids := append([]string{"none"}, slices.Sorted(maps.Keys(w.sessions[key].Calls))...)
	c := session.Submit{Key: key, CallID: rapid.SampledFrom(ids).Draw(w.T, "call"), Kind: session.ClientTool, Response: []byte("r"), NewRunID: w.id("run"), Now: w.now}
	return beginning(w, "submit "+c.CallID, key, c.Need(), onOne(c.Decide), func(p *plain, _ map[session.Key]*plain) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		call, known := p.Calls[c.CallID]
		switch {
		case !known:
			return "UNKNOWN_TOOL_CALL"
		case call.Consumed && call.Answer == session.AnswerTimeout:
			call.Late = true
			p.Calls[c.CallID] = call
			return ""
		case call.Consumed, call.Answer == session.AnswerClient, call.Answer == session.AnswerAbandoned:
			return ""
		case p.Status == session.Completed, p.Status == session.Failed:
			return "OWNER_NOT_CONTINUABLE"
		}
		p.answer([]string{c.CallID}, session.AnswerClient)
		if p.wake(c.NewRunID, c.Now) {
			p.Version++
		}
		return ""
	})
}
