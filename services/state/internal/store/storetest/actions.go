package storetest

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// action is a drawn command. predict and send share only values, so a burst can
// send an action without a prediction.
//
// The zero value stands for no command.
type action struct {
	name    string
	key     session.Key
	message string // the id of the message it appends when it succeeds
	run     string // the message's run, which may wait or be rolled back
	repeats bool   // the store may treat it as a repetition and append nothing
	removes bool   // it may remove messages of other commands
	deletes bool
	predict func(map[session.Key]*modelSession) (reason string)
	send    func() error
}

// drawAction draws a command on one of the sessions. Most of the drawn commands can succeed.
func (h *history) drawAction() action {
	key := rapid.SampledFrom(h.keys).Draw(h.T, "session")
	fitting := h.fittingActions(h.sessions[key])
	if rapid.IntRange(0, 4).Draw(h.T, "anything") == 0 {
		fitting = slices.Concat(h.fittingActions(nil), h.idleActions(), h.suspendedActions(), h.executorActions())
	}
	i := rapid.IntRange(0, len(fitting)-1).Draw(h.T, "command")
	if a := fitting[i](key); a.send != nil {
		return a
	}
	return h.start(key)
}

type actionMaker = func(session.Key) action

// fittingActions returns the commands that fit the session's status.
func (h *history) fittingActions(p *modelSession) []actionMaker {
	switch {
	case p == nil:
		return []actionMaker{h.create, h.start, h.start}
	case p.Status == session.Active && p.liveRun().Status == session.RunRunning:
		return append(h.executorActions(), h.append, h.merge, h.stop, h.setStatus, h.submit, h.submitAll, h.start, h.start, h.start, h.sendTwice,
			h.stopWaiting, h.edit, h.regenerate)
	case p.Status == session.Active:
		return []actionMaker{
			h.claim, h.claim, h.claim, h.claim, h.stop, h.append, h.delete, h.setStatus, h.start, h.sendTwice, h.stopWaiting, h.regenerate, h.retry,
		}
	case p.Status.Suspended():
		return append(h.suspendedActions(), h.stop, h.append, h.rewind, h.resumeAt, h.edit, h.regenerate, h.sendTwice, h.stopWaiting)
	case p.Status == session.Failed:
		return append(h.idleActions(), h.submit, h.submitAll, h.retry, h.retry, h.retry, h.retry)
	default:
		return append(h.idleActions(), h.submit, h.submitAll)
	}
}

func (h *history) executorActions() []actionMaker {
	return []actionMaker{h.plan, h.plan, h.result, h.result, h.commit, h.commit, h.commit, h.commit, h.finish, h.release, h.silence}
}

func (h *history) suspendedActions() []actionMaker {
	return []actionMaker{h.submit, h.submit, h.submit, h.submitAll, h.submitAll, h.timeout, h.timeout, h.expire, h.abandon, h.resume}
}

func (h *history) idleActions() []actionMaker {
	return []actionMaker{
		h.start, h.start, h.start, h.start, h.resume, h.resumeAt, h.edit, h.regenerate, h.sendTwice, h.retry, h.abandon, h.append, h.stop,
		h.setStatus, h.truncate, h.rewind, h.rewind, h.branch, h.delete, h.merge,
	}
}

// newAction makes an action on one session.
func newAction[A any](
	h *history, name string, key session.Key, need session.Need, decide func(...*session.View) (*session.Change, A, error),
	predict func(p *modelSession, all map[session.Key]*modelSession) string,
) action {
	return newActionWith(h, name, key, need, decide, nil, predict)
}

// newActionWith is newAction with a function to extend the session's change; nil for none.
func newActionWith[A any](
	h *history, name string, key session.Key, need session.Need, decide func(...*session.View) (*session.Change, A, error),
	then func(*session.View, *session.Change) error, predict func(p *modelSession, all map[session.Key]*modelSession) string,
) action {
	next := h.id("next")
	f := session.Family{Now: h.now, NewID: func() string { return next }, Abandon: abandonedResponse}
	return action{
		name: fmt.Sprint(name, " ", key.SessionID), key: key,
		predict: func(all map[session.Key]*modelSession) string { return predict(all[key], all) },
		send: func() error {
			return sendThen(h.t, h.store, f, key, need, capturingWide(new(A), decide), then)
		},
	}
}

// ofOneView adapts a Decide with one view.
func ofOneView[A any](decide func(*session.View) (*session.Change, A, error)) func(...*session.View) (*session.Change, A, error) {
	return func(views ...*session.View) (*session.Change, A, error) { return decide(views[0]) }
}

// withoutAnswer adapts a Decide with one view and no answer.
func withoutAnswer(decide func(*session.View) (*session.Change, error)) func(...*session.View) (*session.Change, any, error) {
	return func(views ...*session.View) (*session.Change, any, error) {
		change, err := decide(views[0])
		return change, nil, err
	}
}

// newModelSession returns a session without a run.
func newModelSession() *modelSession {
	return &modelSession{
		Status: session.Paused, Version: 1, State: map[string]string{}, StateVersion: 1, Calls: map[string]modelCall{},
		RunByMessage: map[string]string{}, StartStates: map[string]map[string]string{},
	}
}

func (h *history) create(key session.Key) action {
	c := session.Create{Key: key, AgentType: h.name, State: `{}`, Now: h.now}
	return newAction(h, "create", key, c.Need(), c.Decide, func(p *modelSession, all map[session.Key]*modelSession) string {
		if p != nil {
			return "SESSION_EXISTS"
		}
		all[key] = newModelSession()
		return ""
	})
}

func (h *history) append(key session.Key) action {
	c := session.AppendMessages{Key: key, Messages: []session.Message{{ID: h.id("m"), Role: "user"}}, Now: h.now}
	a := newAction(h, "append", key, c.Need(), ofOneView(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
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

func (h *history) truncate(key session.Key) action {
	if h.sessions[key] == nil {
		return action{}
	}
	c := session.Truncate{Key: key, Messages: int64(rapid.IntRange(0, len(h.sessions[key].Messages)+1).Draw(h.T, "messages")), Now: h.now}
	a := newAction(h, "truncate", key, c.Need(), ofOneView(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
		switch {
		case p == nil:
			return "SESSION_NOT_FOUND"
		case p.Status == session.Active:
			return "SESSION_BUSY"
		case int(c.Messages) > len(p.Messages):
			return "COUNT_INVALID"
		case int(c.Messages) < len(p.Messages):
			p.truncate(int(c.Messages))
		}
		return ""
	})
	a.removes = true
	return a
}

// drawCheckpoint draws the id of one of the session's checkpoints, or an unknown id.
func (h *history) drawCheckpoint(key session.Key) string {
	ids := []string{"none"}
	for _, c := range h.sessions[key].Checkpoints {
		ids = append(ids, c.ID)
	}
	return rapid.SampledFrom(ids).Draw(h.T, "checkpoint")
}

func (p *modelSession) checkpoint(id string) *modelCheckpoint {
	for i := range p.Checkpoints {
		if p.Checkpoints[i].ID == id {
			c := p.Checkpoints[i]
			return &c
		}
	}
	return nil
}

func (h *history) rewind(key session.Key) action {
	if p := h.sessions[key]; p == nil || h.bursting && p.Status == session.Failed { // see retry
		return action{}
	}
	c := session.RewindTo{Key: key, CheckpointID: h.drawCheckpoint(key), Now: h.now}
	a := newAction(h, "rewind", key, c.Need(), ofOneView(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
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
		p.rewindTo(to)
		p.beginNext(nil, h.starts)
		return ""
	})
	a.removes = true
	return a
}

func (h *history) branch(from session.Key) action {
	if h.sessions[from] == nil {
		return action{}
	}
	key := from
	key.SessionID = rapid.SampledFrom([]string{"one", "two"}).Draw(h.T, "branch")
	c := session.Branch{From: from, CheckpointID: h.drawCheckpoint(from), Key: key, Now: h.now}
	return action{
		name: "branch", key: key,
		predict: func(all map[session.Key]*modelSession) string {
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
			all[key] = newModelSession()
			all[key].Messages, all[key].State, all[key].RunByMessage = slices.Clone(p.Messages[:to.Messages]), maps.Clone(to.State),
				maps.Clone(p.RunByMessage)
			return ""
		},
		send: func() error {
			return h.store.Update(h.t.Context(), c.Targets(), weight, func(views []*session.View) ([]*session.Change, error) {
				change, _, err := c.Decide(views...)
				return []*session.Change{change, nil}, err
			})
		},
	}
}

func (h *history) delete(key session.Key) action {
	c := session.DeleteSession{Key: key}
	a := newAction(h, "delete", key, c.Need(), withoutAnswer(c.Decide), func(p *modelSession, all map[session.Key]*modelSession) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		delete(all, key)
		return ""
	})
	a.removes, a.deletes = true, true
	return a
}

func (h *history) merge(key session.Key) action {
	op := h.drawWrite()
	c := session.MergeState{Key: key, Ops: []session.StateOp{op}, Limits: limits, Now: h.now}
	return newAction(h, "merge", key, c.Need(), ofOneView(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
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

// drawWrite draws a write to the state. Some values are long: the store then keeps later
// small writes separately.
func (h *history) drawWrite() session.StateOp {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(h.T, "key")
	value := fmt.Sprintf("%*d", rapid.SampledFrom([]int{1, 1, 1, 250}).Draw(h.T, "size"), rapid.IntRange(1, 4).Draw(h.T, "value"))
	return session.StateOp{Key: key, Kind: session.OpReplace, Value: `"` + value + `"`}
}

func (h *history) stop(key session.Key) action {
	kind := rapid.SampledFrom([]session.StopKind{session.StopInterrupt, session.StopAbort}).Draw(h.T, "kind")
	c := session.RequestStop{Key: key, Kind: kind, Now: h.now}
	return newAction(h, "stop by "+string(kind), key, c.Need(), ofOneView(c.Decide),
		func(p *modelSession, _ map[session.Key]*modelSession) string {
			if p == nil {
				return "SESSION_NOT_FOUND"
			}
			if r := p.liveRun(); r != nil {
				r.requestStop(kind, false, c.Now)
				return ""
			}
			switch {
			case p.Status == session.Completed, p.Status == session.Failed, p.Status == session.Interrupted && kind == session.StopInterrupt:
			case kind == session.StopAbort:
				p.forceStatus(session.Failed, "") // no live run
				p.Aborted = true
				p.beginNext(nil, h.starts)
			default:
				p.forceStatus(session.Interrupted, "")
				p.beginNext(nil, h.starts)
			}
			return ""
		})
}

func (h *history) setStatus(key session.Key) action {
	if h.sessions[key] == nil {
		return action{}
	}
	status := rapid.SampledFrom([]session.Status{session.Completed, session.Failed, session.Interrupted, session.Paused}).Draw(h.T, "status")
	c := session.SetStatus{Key: key, Status: status, Failure: &session.Failure{Error: "no"}, Now: h.now}
	if rapid.IntRange(0, 3).Draw(h.T, "too many steps") == 0 {
		c.Failure.Code = mostSteps
	}
	c.ExpectedVersion = rapid.SampledFrom([]int64{0, h.sessions[key].Version, h.sessions[key].Version, 1}).Draw(h.T, "expected version")
	c.Expected = rapid.SampledFrom([][]session.Status{nil, {h.sessions[key].Status}, {session.Paused, session.Failed}}).Draw(h.T, "expected")
	return newAction(h, "set "+string(status), key, c.Need(), ofOneView(c.Decide),
		func(p *modelSession, _ map[session.Key]*modelSession) string {
			switch {
			case p == nil:
				return "SESSION_NOT_FOUND"
			case c.ExpectedVersion != 0 && c.ExpectedVersion != p.Version, c.Expected != nil && !slices.Contains(c.Expected, p.Status):
				return ""
			}
			ended := p.forceStatus(status, "no")
			if status == session.Failed {
				p.MaxSteps = c.Failure.Code == mostSteps
				p.failWaiting("no")
			}
			p.beginNext(ended, h.starts)
			return ""
		})
}

func (h *history) expire(key session.Key) action {
	h.now += 60
	c := session.Expire{Key: key, Now: h.now}
	return newAction(h, "expire", key, c.Need(), ofOneView(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
		switch {
		case p == nil:
			return "SESSION_NOT_FOUND"
		case p.Expires != 0 && p.Expires <= c.Now && p.Status != session.Completed && p.Status != session.Failed:
			p.forceStatus(session.Failed, "The session has expired.")
			p.failWaiting("The session has expired.")
		}
		return ""
	})
}

func (h *history) timeout(key session.Key) action {
	h.now += 20
	c := session.TimeoutCalls{Key: key, Response: func(session.Call) []byte { return nil }, NewRunID: h.id("run"), Now: h.now}
	return newAction(h, "timeout", key, c.Need(), ofOneView(c.Decide), func(p *modelSession, _ map[session.Key]*modelSession) string {
		if p == nil {
			return "SESSION_NOT_FOUND"
		}
		var late []string
		for _, id := range p.openCalls() {
			if d := p.Calls[id].Deadline; d != 0 && d <= c.Now {
				late = append(late, id)
			}
		}
		p.setAnswers(late, session.AnswerTimeout)
		if len(late) > 0 && p.continueIfAnswered(c.NewRunID, c.Now) {
			p.Version++
		}
		return ""
	})
}

func (h *history) submit(key session.Key) action {
	if h.sessions[key] == nil {
		return action{}
	}
	ids := append([]string{"none"}, slices.Sorted(maps.Keys(h.sessions[key].Calls))...)
	c := session.Submit{
		Key: key, CallID: rapid.SampledFrom(ids).Draw(h.T, "call"), Kind: session.ClientTool, Response: []byte("r"), NewRunID: h.id("run"),
		Now: h.now,
	}
	return startingAction(h, "submit "+c.CallID, key, c.Need(), ofOneView(c.Decide),
		func(p *modelSession, _ map[session.Key]*modelSession) string {
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
			case p.hasEnded(c.Now):
				return "OWNER_NOT_CONTINUABLE"
			}
			p.setAnswers([]string{c.CallID}, session.AnswerClient)
			if p.continueIfAnswered(c.NewRunID, c.Now) {
				p.Version++
			}
			return ""
		})
}
