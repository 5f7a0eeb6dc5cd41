package session

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// mayWait gives Conflict (SESSION_BUSY) when the run does not wait for the one that is live:
// its client has decided by what the session was, or nobody has said that it may.
func (c Send) mayWait(v *View) error {
	s := v.Session
	if c.Expect.given() || c.Seen != "" {
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

// wait returns the change after which the run waits, behind those that wait already. The
// answers that it brings are taken now. Of a suspended session the other calls are
// abandoned, and so the first of those that wait begins.
func (c Send) wait(v *View) (*Change, Started, error) {
	change := next(v)
	s := change.Session
	policy := cmp.Or(c.OnBusy, v.OnBusy, BusyEnqueue)
	s.Waiting++
	s.UpdatedAt = c.Now
	change.Held = &Held{Messages: c.Messages}
	change.NewRun = c.run(s, EntryStart)
	change.NewRun.Turn, change.NewRun.Status, change.NewRun.StartPosition = 0, RunWaiting, 0
	change.NewRun.StartStateVersion, change.NewRun.StartStateBase, change.NewRun.StartMessageCount, change.NewRun.TurnMessageCount = 0, 0, 0, 0
	change.NewRun.OnBusy, change.NewRun.Place = policy, s.Version
	if policy == BusyEnqueue && s.Status == Active {
		if err := c.early(v); err != nil {
			return nil, Started{}, err
		}
	}
	c.answer(change, v)
	switch {
	case s.Status.Suspended():
		c.abandon(change, v)
		s.Status, s.Suspension, s.ExpiresAt = Paused, nil, 0
	case policy != BusyEnqueue && v.Live == nil:
		return nil, Started{}, &Wider{[]Target{{c.Key, Need{Open: true}}}}
	case policy != BusyEnqueue:
		live := *v.Live
		live.asked(Stop{Kind: StopInterrupt, Reason: fmt.Sprintf("superseded by run %s", c.RunID), At: c.Now, Undo: policy == BusyRollback})
		change.Runs = []Run{live}
	}
	started := change.started()
	started.Waiting = true
	return change, started, nil
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
func (s *spreading) next(k *kin) (seen bool) {
	after := k.after()
	if after == nil || after.Waiting == 0 || after.Status == Active || after.Status.Suspended() {
		return true
	}
	undone := k.undone()
	need := Need{Waiting: true, Calls: true, Undo: undone != nil}
	if len(k.view.Waiting) == 0 || !k.target.Need.Calls || need.Undo && !k.target.Need.Undo {
		s.missing.add(Target{k.target.Key, need})
		return false
	}
	after = k.touch(s.Now)
	if k.change.forsakes {
		k.forsake(s.Now)
		return true
	}
	after.Version++ // of its own: what the ended run has left is the version before
	if undone != nil && slices.ContainsFunc(k.view.Waiting, func(w Waiting) bool { return w.OnBusy == BusyRollback }) {
		before := k.view.Session.StepCount - undone.StepCount
		if undone.FinishStep > 0 {
			before++ // the step that ends the run counts in undone alone
		}
		k.change.undo(k.view, undone, before)
	}
	k.abandon(s.Abandon, s.Now)
	k.begin(s.Now)
	return true
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
func (k *kin) begin(now Millis) {
	change, s := k.change, k.change.Session
	r := k.view.Waiting[0].Run
	s.Waiting--
	s.begin(now)
	r.StartMessageCount, r.TurnMessageCount = s.MessageCount, s.MessageCount
	change.append(k.view.Held.Messages)
	r.Status, r.Turn, r.StartPosition = RunQueued, s.Turn, s.Position
	r.StartStateVersion, r.StartStateBase = s.StateVersion, s.StateBase
	s.CurrentRunID = r.RunID
	change.Begun = &r
	change.Unheld = append(change.Unheld, r.RunID)
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

// undo takes back what the ended run has appended and written; Run.Spares says
// which messages stay, in their order. So do the numbers of its steps and its usage,
// and the answers that it has consumed: a call that was approved has run, and does not
// run again. Late answers that it has told of are to be told once more, since nothing
// in the conversation does.
//
// before is the last step of former runs.
func (change *Change) undo(v *View, r *Run, before int32) {
	s := change.Session
	kept := slices.Clone(v.Kept)
	var calls []Call
	took := map[int32]bool{}
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
