package session

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// mayWait says whether the run waits for the one that is live, and gives
// Conflict (SESSION_BUSY) when it does not: its caller has decided by what the
// session was, or nobody has said that it may.
func (c Start) mayWait(v *View) error {
	s := v.Session
	if c.Resume || c.goesBack() || c.Expect.given() {
		return busy(s)
	}
	policy := cmp.Or(c.OnBusy, v.OnBusy)
	if policy == "" && s.Status == Active {
		return &Wider{[]Target{{c.Key, Need{Busy: true}}}}
	}
	if policy == BusyReject {
		return busy(s)
	}
	if most := int32(c.Limits.Waiting); s.Waiting >= most {
		return fault.New(fault.Exhausted, "TOO_MANY_WAITING",
			"%d runs of session %q wait already, which is the limit; send the message again when one has begun", s.Waiting, c.SessionID)
	}
	return nil
}

// wait returns the change after which the run waits, behind those that wait
// already. Its writes have to fit the custom state as it is; see kin.begin. The answers
// that it brings are taken now. Of a suspended session the other calls are abandoned,
// and so the first of those that wait begins.
func (c Start) wait(v *View) (*Change, Started, error) {
	s := *v.Session
	policy := cmp.Or(c.OnBusy, v.OnBusy, BusyEnqueue)
	if _, err := merge(s.State, c.Ops, c.Limits.State); err != nil {
		return nil, Started{}, err
	}
	change := &Change{Session: &s, Held: c.held()}
	s.Version++
	s.Waiting++
	s.UpdatedAt = c.Now
	change.NewRun = c.run(&s)
	change.NewRun.Turn, change.NewRun.Status, change.NewRun.StartSequence, change.NewRun.StartPosition = 0, RunWaiting, 0, 0
	change.NewRun.StartStateVersion, change.NewRun.StartStateBase, change.NewRun.StartMessageCount, change.NewRun.TurnMessageCount = 0, 0, 0, 0
	change.NewRun.OnBusy, change.NewRun.Place = policy, s.Version
	if policy == BusyEnqueue && s.Status == Active {
		if err := c.early(v); err != nil {
			return nil, Started{}, err
		}
	}
	c.answer(change, v)
	if s.Status.Suspended() {
		c.abandon(change, v)
	}
	switch {
	case s.Status.Suspended():
		s.Status, s.Suspension, s.ExpiresAt = Paused, nil, 0
	case policy != BusyEnqueue && v.Live == nil:
		return nil, Started{}, &Wider{[]Target{{c.Key, Need{Open: true}}}}
	case policy != BusyEnqueue:
		live := *v.Live
		live.asked(Stop{Kind: StopInterrupt, Reason: fmt.Sprintf("superseded by run %s", c.RunID), At: c.Now, Undo: policy == BusyRollback})
		change.Runs = []Run{live}
	}
	return change, Started{Session: s, Run: *change.NewRun, Waiting: true, Abandoned: change.abandoned()}, nil
}

func (c Start) held() *Held {
	return &Held{Appended: c.Append, Ops: c.Ops, Messages: c.Messages}
}

// giveUp ends a run that waits: its messages are never appended. The session's position
// stays: the run has shown nothing, and another one may be at work.
func (change *Change) giveUp(r Run, o Outcome, now Millis) {
	change.Session.Waiting--
	r.Status, r.Outcome = o.Status, o
	r.CompletedAt = now
	r.FinishVersion = change.Session.Version
	r.StartPosition, r.EndPosition = change.Session.Position, change.Session.Position
	change.Runs = append(change.Runs, r)
	change.Unheld = append(change.Unheld, r.RunID)
}

// next lets the first of the runs that wait begin, when the session has come
// to an end that is no suspension, whatever ended it. When the session was failed
// or given up from outside, all of them end with it.
//
// It reports false when it has to see more first.
func (s *spreading) next(k *kin) (seen bool, err error) {
	after := k.after()
	if after == nil || after.Waiting == 0 || after.Status == Active || after.Status.Suspended() {
		return true, nil
	}
	undone := k.undone()
	need := Need{Waiting: true, Calls: true, Undo: undone != nil}
	if len(k.view.Waiting) == 0 || !k.target.Need.Calls || need.Undo && !k.target.Need.Undo {
		s.missing.add(Target{k.target.Key, need})
		return false, nil
	}
	after = k.touch(s.Now)
	if k.change.forsakes {
		k.forsake(s.Now)
		return true, nil
	}
	if len(k.view.Held.Ops) > 0 && after.State == "" && !k.target.Need.State {
		s.missing.add(Target{k.target.Key, Need{State: true}})
		return false, nil
	}
	after.Version++ // of its own: what the ended run has left is the version before
	if undone != nil && slices.ContainsFunc(k.view.Waiting, func(w Waiting) bool { return w.OnBusy == BusyRollback }) {
		k.undo(undone)
	}
	k.abandon(s.Abandon, s.Now)
	return true, k.begin(cmp.Or(s.Limits.State, math.MaxInt), s.Now)
}

// undone returns the run that ends with what is to be written and is to be
// taken back; nil for none.
func (k *kin) undone() *Run {
	if k.change == nil || k.view.Session == nil {
		return nil
	}
	for i := range k.change.Runs {
		r := &k.change.Runs[i]
		if r.RunID == k.view.Session.CurrentRunID && r.Status.Over() && r.Stop != nil && r.Stop.Undo {
			return r
		}
	}
	return nil
}

func (k *kin) forsake(now Millis) {
	s := k.touch(now)
	for _, w := range k.view.Waiting {
		k.change.giveUp(w.Run, Outcome{Status: RunFailed, Failure: s.Failure}, now)
	}
}

// abandon answers the calls of the session that are open. A run that begins with
// open calls would be suspended again before it has read its messages.
func (k *kin) abandon(answer func(Call) []byte, now Millis) {
	if answer == nil {
		return
	}
	for _, call := range k.change.callsOf(k.view) {
		if call.open() {
			k.change.call(call.answered(AnswerAbandoned, answer(call), now))
		}
	}
}

// call writes a call of the session, in the place of what the change has of it.
func (change *Change) call(call Call) {
	for _, calls := range [][]Call{change.NewCalls, change.Calls} {
		if i := slices.IndexFunc(calls, func(c Call) bool { return c.CallID == call.CallID }); i >= 0 {
			calls[i] = call
			return
		}
	}
	change.Calls = append(change.Calls, call)
}

// begin makes the first of the runs that wait the session's newest.
//
// Its writes were bounded when it came, but the custom state may have grown since.
// Where it would have more than limit bytes now, they are left out, and the run begins
// with an abort that says so: it fails before it has done anything without them.
func (k *kin) begin(limit int, now Millis) error {
	change, s := k.change, k.change.Session
	r, held := k.view.Waiting[0].Run, k.view.Held
	s.Waiting--
	s.begin(now)
	change.append(held.Appended)
	r.StartMessageCount, r.TurnMessageCount = s.MessageCount, s.MessageCount
	switch err := change.then(held.Ops, limit); {
	case errors.Is(err, fault.TooLarge):
		r.Stop = &Stop{Kind: StopAbort, Reason: err.Error(), At: now}
	case err != nil:
		return err
	}
	change.append(held.Messages)
	r.Status, r.Turn, r.StartSequence, r.StartPosition = RunQueued, s.Turn, s.StreamSequence, s.Position
	r.StartStateVersion, r.StartStateBase = s.StateVersion, s.StateBase
	s.CurrentRunID = r.RunID
	change.Begun = &r
	change.Unheld = append(change.Unheld, r.RunID)
	return nil
}

// begin makes the session active in its next turn.
func (s *Session) begin(now Millis) {
	s.Status = Active
	s.Turn++
	s.Output, s.Failure = "", nil
	s.Suspension, s.Interruption = nil, nil
	s.UpdatedAt = now
	s.ExpiresAt = 0
}

// append puts messages behind the conversation as it is after the change.
func (change *Change) append(messages []Message) {
	s := change.Session
	change.Messages = append(change.Messages, place(messages, s.MessageCount)...)
	s.MessageCount += int64(len(messages))
}

// then merges writes into the custom state as it is after the change, under a
// version of their own: the version before is what the ended run has left.
//
// TooLarge (STATE_SIZE_EXCEEDED), and the change is as it was.
func (change *Change) then(ops []StateOp, limit int) error {
	s := change.Session
	merged, err := merge(s.State, ops, limit)
	if err != nil || merged.state == s.State {
		return err
	}
	if change.NewState || len(change.StateWrite) > 0 {
		change.Between = &KeptState{Version: s.StateVersion, Base: s.StateBase, Writes: change.StateWrite}
		if change.NewState {
			change.Between.Whole = s.State
		}
		change.NewState, change.StateWrite = false, nil
	}
	s.keep(change, ops, merged.state)
	return nil
}

// undo takes back what the ended run has appended and written; Run.Spares says
// which messages stay, in their order. So do the numbers of its steps and its usage,
// and the answers that it has consumed: a call that was approved has run, and does not
// run again. Late answers that it has told of are to be told once more, since nothing
// in the conversation does.
func (k *kin) undo(r *Run) {
	change, v := k.change, k.view
	s := change.Session
	kept := slices.Clone(v.Kept)
	var calls []Call
	took := map[int32]bool{}
	before := v.Session.StepCount - r.StepCount // the last step of former runs
	if r.FinishStep > 0 {
		before++ // the step that ends the run counts in r alone
	}
	for _, call := range change.Calls {
		switch {
		case call.ConsumedStep > v.Session.StepCount: // the step that ends the run has consumed it
			calls = append(calls, call)
			took[call.ConsumedStep] = took[call.ConsumedStep] || call.Step <= before
		case call.ConsumedAt != 0 && call.ConsumedStep == 0 && !call.Told: // the end of the run has
			calls = append(calls, call)
		}
	}
	for _, m := range change.Messages {
		if r.Spares(m, func(step int32) bool { return took[step] }) {
			kept = append(kept, m)
		}
	}
	from := min(r.StartMessageCount, v.Session.MessageCount)
	change.Rewind = &Rewind{Messages: from, StateVersion: r.StartStateVersion, RunID: r.RunID}
	change.Messages = place(kept, from)
	s.MessageCount = from + int64(len(kept))
	change.Checkpoint = nil
	s.goBackTo(v.Former)
	if r.StartStateVersion != 0 {
		change.NewState, change.StateWrite = false, nil
		s.State, s.StateVersion, s.StateBase = v.StartState, r.StartStateVersion, r.StartStateBase
		s.StateWrites, s.StateBytes = longestFold, 0 // as after a rewind
	}
	change.Calls = calls
	change.drop(v, r.RunID)
	for _, call := range v.Told {
		if call.Step <= before {
			call.Told, call.ToldStep = false, 0
			change.Calls = append(change.Calls, call)
		}
	}
}

// The roles of the messages that may stay when their run is taken back.
const (
	userRole = "user"
	toolRole = "tool"
)

// Spares reports whether the message stays in the conversation when the run is
// taken back: it came from elsewhere, or it was sent to the run, or it is the result of
// a call of a former run, which stands. took says whether the step has consumed the
// answer to such a call; its other messages of the runtime's own go.
func (r *Run) Spares(m Message, took func(step int32) bool) bool {
	switch {
	case m.RunID != r.RunID, m.Role == userRole && m.Step == 0:
		return true
	default:
		return m.Role == toolRole && took(m.Step)
	}
}
