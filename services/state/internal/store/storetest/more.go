package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func (b *bench) createOf(key session.Key) session.Create {
	return session.Create{Key: key, AgentType: agent, State: `{}`, Now: b.now}
}

func (b *bench) tryCreate(c session.Create) (made session.Session, err error) {
	err = b.all(c.Key, c.Need(), keeping(&made, c.Decide))
	return made, err
}

func (b *bench) create(c session.Create) session.Session {
	b.Helper()
	made, err := b.tryCreate(c)
	b.must(err)
	return made
}

func (b *bench) update(c session.UpdateSession) (version int64, err error) {
	err = b.all(c.Key, c.Need(), answered(&version, c.Decide))
	return version, err
}

func (b *bench) setStatus(c session.SetStatus) (set session.StatusSet, err error) {
	err = b.all(c.Key, c.Need(), answered(&set, c.Decide))
	return set, err
}

func (b *bench) saveState(c session.SaveState) (version int64, err error) {
	err = b.all(c.Key, c.Need(), answered(&version, c.Decide))
	return version, err
}

func (b *bench) mergeState(c session.MergeState) (merged session.Merged, err error) {
	err = b.all(c.Key, c.Need(), answered(&merged, c.Decide))
	return merged, err
}

func (b *bench) tryAppend(key session.Key, ids ...string) (count int64, err error) {
	c := session.AppendMessages{Key: key, Now: b.now}
	for _, id := range ids {
		c.Messages = append(c.Messages, session.Message{ID: id, Role: "user", CreatedAt: b.now, Body: []byte(id)})
	}
	err = b.all(c.Key, c.Need(), answered(&count, c.Decide))
	return count, err
}

func (b *bench) append(key session.Key, ids ...string) {
	b.Helper()
	_, err := b.tryAppend(key, ids...)
	b.must(err)
}

func (b *bench) truncate(key session.Key, messages int64) (count int64, err error) {
	c := session.Truncate{Key: key, Messages: messages, Now: b.now}
	err = b.all(c.Key, c.Need(), answered(&count, c.Decide))
	return count, err
}

func (b *bench) rewind(key session.Key, checkpointID string) (rewound session.Session, err error) {
	c := session.RewindTo{Key: key, CheckpointID: checkpointID, Now: b.now}
	err = b.all(c.Key, c.Need(), answered(&rewound, c.Decide))
	return rewound, err
}

func (b *bench) branch(from session.Key, checkpointID string, key session.Key) (made session.Session, err error) {
	c := session.Branch{From: from, CheckpointID: checkpointID, Key: key, Now: b.now}
	err = b.Store.Update(b.Context(), c.Targets(), weight, func(views []*session.View) (changes []*session.Change, err error) {
		changes, made, err = c.Decide(views...)
		return changes, err
	})
	return made, err
}

func (b *bench) delete(key session.Key) error {
	c := session.DeleteSession{Key: key}
	return b.send(c.Key, c.Need(), c.Decide)
}

func (b *bench) submitOf(key session.Key, callID string) session.Submit {
	return session.Submit{Key: key, CallID: callID, Kind: session.ClientTool, Response: []byte("answer to " + callID), NewRunID: b.id("run"), Now: b.now}
}

func (b *bench) trySubmit(c session.Submit) (answer session.Submitted, err error) {
	err = b.all(c.Key, c.Need(), answered(&answer, c.Decide))
	return answer, err
}

func (b *bench) submit(c session.Submit) session.Submitted {
	b.Helper()
	answer, err := b.trySubmit(c)
	b.must(err)
	return answer
}

// timeout answers the calls that are overdue.
func (b *bench) timeout(key session.Key) []session.Call {
	b.Helper()
	var late []session.Call
	c := session.Timeout{Key: key, Response: func(session.Call) []byte { return []byte("timeout") }, NewRunID: b.id("run"), Now: b.now}
	b.must(b.all(c.Key, c.Need(), answered(&late, c.Decide)))
	return late
}

func (b *bench) tryStop(c session.RequestStop) (stopped session.Stopped, err error) {
	c.Now = b.now
	err = b.all(c.Key, c.Need(), answered(&stopped, c.Decide))
	return stopped, err
}

func (b *bench) stop(key session.Key, kind session.StopKind, reason string) session.Stopped {
	b.Helper()
	stopped, err := b.tryStop(session.RequestStop{Key: key, Kind: kind, Reason: reason})
	b.must(err)
	return stopped
}

func (b *bench) expire(key session.Key) (expired session.Expired, err error) {
	c := session.Expire{Key: key, Now: b.now}
	err = b.all(c.Key, c.Need(), answered(&expired, c.Decide))
	return expired, err
}

func (b *bench) recordUsage(key session.Key, runID string, usage ...session.Usage) {
	b.Helper()
	c := session.RecordUsage{Key: key, RunID: runID, Usage: usage, Now: b.now}
	b.must(b.send(c.Key, c.Need(), c.Decide))
}

func (b *bench) putChild(key session.Key, child session.Child) error {
	c := session.PutChild{Key: key, Child: child, Now: b.now}
	return b.send(c.Key, c.Need(), c.Decide)
}

// suspending is the commit of a step that leaves calls open and ends its run.
func (b *bench) suspending(ref session.Ref, step int32, callIDs ...string) session.Commit {
	c := b.commitOf(ref, step)
	for _, id := range callIDs {
		c.Calls = append(c.Calls, session.Call{CallID: id, StepID: "step", ToolName: "ask", Kind: session.ClientTool, Input: `{"q":1}`})
	}
	c.Outcome = &session.Outcome{Status: session.RunSuspendedClientTool}
	c.Suspension = &session.Suspension{StepID: "step"}
	return c
}

// suspended starts a session whose first step suspends on the calls.
func (b *bench) suspended(key session.Key, callIDs ...string) session.Ref {
	b.Helper()
	b.start(b.startOf(key))
	ref := b.claimOf(key)
	b.commit(b.suspending(ref, 1, callIDs...))
	return ref
}

// claimOf claims the run of a session, and on the way what is due before it.
func (b *bench) claimOf(key session.Key) session.Ref {
	b.Helper()
	for {
		if ref, held := b.held[key]; held {
			delete(b.held, key)
			return ref
		}
		ref, _ := b.claim(executor)
		if b.held == nil {
			b.held = map[session.Key]session.Ref{}
		}
		b.held[ref.Key] = ref
	}
}

// waitingOf is a start that waits when the session is busy.
func (b *bench) waitingOf(key session.Key) session.Send {
	c := b.startOf(key)
	c.OnBusy, c.Limits = session.BusyEnqueue, limits
	return c
}

// waiting fails the test unless these runs wait, in their order.
func (b *bench) waiting(key session.Key, want ...string) {
	b.Helper()
	list, err := b.Store.Waiting(b.Context(), key)
	b.must(err)
	shot := b.snapshot(key)
	same(b, "those that wait, in a snapshot", shot.Waiting, list)
	var got []string
	for _, r := range list {
		got = append(got, r.RunID)
	}
	same(b, "those that wait", got, want)
	same(b, "how many", int(shot.Session.Waiting), len(want))
	same(b, "what is kept of them", b.Rows(b.T, key)["held_runs"], len(want))
}

// message fails the test unless the message is so many times in the
// conversation.
func (b *bench) message(key session.Key, id string, want int) {
	b.Helper()
	n := 0
	for _, m := range b.messages(key) {
		if m.ID == id {
			n++
		}
	}
	if n != want {
		b.Errorf("message %q is there %d times, want %d", id, n, want)
	}
}

// force sets the session's status from outside.
func (b *bench) force(key session.Key, status session.Status) {
	b.Helper()
	set, err := b.setStatus(session.SetStatus{Key: key, Status: status, Failure: &session.Failure{Error: "no"}, Now: b.now})
	b.must(err)
	same(b, "set", set.OK, true)
}
