package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func (h *harness) createOf(key session.Key) session.Create {
	return session.Create{Key: key, AgentType: agent, State: `{}`, Now: h.now}
}

func (h *harness) tryCreate(c session.Create) (made session.Session, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturingWide(&made, c.Decide))
	return made, err
}

func (h *harness) create(c session.Create) session.Session {
	h.Helper()
	made, err := h.tryCreate(c)
	h.must(err)
	return made
}

func (h *harness) update(c session.UpdateSession) (version int64, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&version, c.Decide))
	return version, err
}

func (h *harness) setStatus(c session.SetStatus) (set session.StatusSet, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&set, c.Decide))
	return set, err
}

func (h *harness) saveState(c session.SaveState) (version int64, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&version, c.Decide))
	return version, err
}

func (h *harness) mergeState(c session.MergeState) (merged session.Merged, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&merged, c.Decide))
	return merged, err
}

func (h *harness) tryAppend(key session.Key, ids ...string) (count int64, err error) {
	c := session.AppendMessages{Key: key, Now: h.now}
	for _, id := range ids {
		c.Messages = append(c.Messages, session.Message{ID: id, Role: "user", CreatedAt: h.now, Body: []byte(id)})
	}
	err = h.sendWidened(c.Key, c.Need(), capturing(&count, c.Decide))
	return count, err
}

func (h *harness) append(key session.Key, ids ...string) {
	h.Helper()
	_, err := h.tryAppend(key, ids...)
	h.must(err)
}

func (h *harness) truncate(key session.Key, messages int64) (count int64, err error) {
	c := session.Truncate{Key: key, Messages: messages, Now: h.now}
	err = h.sendWidened(c.Key, c.Need(), capturing(&count, c.Decide))
	return count, err
}

func (h *harness) rewind(key session.Key, checkpointID string) (rewound session.Session, err error) {
	c := session.RewindTo{Key: key, CheckpointID: checkpointID, Now: h.now}
	err = h.sendWidened(c.Key, c.Need(), capturing(&rewound, c.Decide))
	return rewound, err
}

func (h *harness) branch(from session.Key, checkpointID string, key session.Key) (made session.Session, err error) {
	c := session.Branch{From: from, CheckpointID: checkpointID, Key: key, Now: h.now}
	err = h.Store.Update(h.Context(), c.Targets(), weight, func(views []*session.View) (changes []*session.Change, err error) {
		changes, made, err = c.Decide(views...)
		return changes, err
	})
	return made, err
}

func (h *harness) delete(key session.Key) error {
	c := session.DeleteSession{Key: key}
	return h.send(c.Key, c.Need(), c.Decide)
}

func (h *harness) submitOf(key session.Key, callID string) session.Submit {
	return session.Submit{Key: key, CallID: callID, Kind: session.ClientTool, Response: []byte("answer to " + callID), NewRunID: h.id("run"), Now: h.now}
}

func (h *harness) trySubmit(c session.Submit) (answer session.Submitted, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&answer, c.Decide))
	return answer, err
}

func (h *harness) submit(c session.Submit) session.Submitted {
	h.Helper()
	answer, err := h.trySubmit(c)
	h.must(err)
	return answer
}

// timeout answers the calls that are overdue.
func (h *harness) timeout(key session.Key) []session.Call {
	h.Helper()
	var late []session.Call
	c := session.Timeout{Key: key, Response: func(session.Call) []byte { return []byte("timeout") }, NewRunID: h.id("run"), Now: h.now}
	h.must(h.sendWidened(c.Key, c.Need(), capturing(&late, c.Decide)))
	return late
}

func (h *harness) tryStop(c session.RequestStop) (stopped session.Stopped, err error) {
	c.Now = h.now
	err = h.sendWidened(c.Key, c.Need(), capturing(&stopped, c.Decide))
	return stopped, err
}

func (h *harness) stop(key session.Key, kind session.StopKind, reason string) session.Stopped {
	h.Helper()
	stopped, err := h.tryStop(session.RequestStop{Key: key, Kind: kind, Reason: reason})
	h.must(err)
	return stopped
}

func (h *harness) expire(key session.Key) (expired session.Expired, err error) {
	c := session.Expire{Key: key, Now: h.now}
	err = h.sendWidened(c.Key, c.Need(), capturing(&expired, c.Decide))
	return expired, err
}

func (h *harness) recordUsage(key session.Key, runID string, usage ...session.Usage) {
	h.Helper()
	c := session.RecordUsage{Key: key, RunID: runID, Usage: usage, Now: h.now}
	h.must(h.send(c.Key, c.Need(), c.Decide))
}

func (h *harness) putChild(key session.Key, child session.Child) error {
	c := session.PutChild{Key: key, Child: child, Now: h.now}
	return h.send(c.Key, c.Need(), c.Decide)
}

// suspendingCommit is the commit of a step that leaves calls open and ends its run.
func (h *harness) suspendingCommit(ref session.Ref, step int32, callIDs ...string) session.Commit {
	c := h.commitOf(ref, step)
	for _, id := range callIDs {
		c.Calls = append(c.Calls, session.Call{CallID: id, StepID: "step", ToolName: "ask", Kind: session.ClientTool, Input: `{"q":1}`})
	}
	c.Outcome = &session.Outcome{Status: session.RunSuspendedClientTool}
	c.Suspension = &session.Suspension{StepID: "step"}
	return c
}

// startSuspended starts a session whose first step suspends on the calls.
func (h *harness) startSuspended(key session.Key, callIDs ...string) session.Ref {
	h.Helper()
	h.start(h.startOf(key))
	ref := h.claimOf(key)
	h.commit(h.suspendingCommit(ref, 1, callIDs...))
	return ref
}

// claimOf claims the run of a session, and on the way what is due before it.
func (h *harness) claimOf(key session.Key) session.Ref {
	h.Helper()
	for {
		if ref, held := h.held[key]; held {
			delete(h.held, key)
			return ref
		}
		ref, _ := h.claim(executor)
		if h.held == nil {
			h.held = map[session.Key]session.Ref{}
		}
		h.held[ref.Key] = ref
	}
}

// waitingOf is a start that waits when the session is busy.
func (h *harness) waitingOf(key session.Key) session.Send {
	c := h.startOf(key)
	c.OnBusy, c.Limits = session.BusyEnqueue, limits
	return c
}

// expectWaiting fails the test unless these runs wait, in their order.
func (h *harness) expectWaiting(key session.Key, want ...string) {
	h.Helper()
	list, err := h.Store.Waiting(h.Context(), key)
	h.must(err)
	shot := h.snapshot(key)
	same(h, "those that wait, in a snapshot", shot.Waiting, list)
	var got []string
	for _, r := range list {
		got = append(got, r.RunID)
	}
	same(h, "those that wait", got, want)
	same(h, "how many", int(shot.Session.Waiting), len(want))
	same(h, "what is kept of them", h.Rows(h.T, key)["held_runs"], len(want))
}

// expectMessageCount fails the test unless the message is so many times in the
// conversation.
func (h *harness) expectMessageCount(key session.Key, id string, want int) {
	h.Helper()
	n := 0
	for _, m := range h.messages(key) {
		if m.ID == id {
			n++
		}
	}
	if n != want {
		h.Errorf("message %q is there %d times, want %d", id, n, want)
	}
}

// forceStatus sets the session's status from outside.
func (h *harness) forceStatus(key session.Key, status session.Status) {
	h.Helper()
	set, err := h.setStatus(session.SetStatus{Key: key, Status: status, Failure: &session.Failure{Error: "no"}, Now: h.now})
	h.must(err)
	same(h, "set", set.OK, true)
}
