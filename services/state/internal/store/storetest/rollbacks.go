package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// rollbacks prove what a rollback removes and keeps.
var rollbacks = []suiteCase{
	{"a rollback removes the live run's work and keeps the messages sent to it", func(h *harness) {
		r := h.rollBackRun()
		repeat := h.commit(r.last)
		same(h, "step of the repetition's answer", repeat.Step, int32(4))

		var ids []string
		for i, m := range h.messages(home) {
			same(h, "ordinal", m.Ordinal, int64(i))
			ids = append(ids, m.ID)
		}
		same(h, "messages", ids[2:], []string{r.sent.Messages[0].ID, "aside", r.rolling.Messages[0].ID})
		s, run := h.session(home)
		same(h, "state", s.State, `{"n":1}`)
		if s.StepCount != 4 || s.Turn != 3 || run.RunID != r.rolling.RunID || s.MessageCount != 5 || s.StateVersion != r.before.StateVersion {
			h.Errorf("got %+v,\n%+v", s, run)
		}
		same(h, "where the next one began", run.StartMessageCount, int64(4))
		if list := h.checkpoints(home); len(list) != 1 || list[0].ID != r.kept.CheckpointID {
			h.Errorf("got the checkpoints %+v, want the one before", list)
		}
		same(h, "usage", len(h.usage(home)), 2)
		ended, err := h.Store.Run(h.Context(), home, r.last.RunID)
		h.must(err)
		same(h, "status of the run", ended.Status, session.RunInterrupted)
		same(h, "its steps", ended.StepCount, int32(3))

		next, d := h.claim(executor)
		same(h, "state that the next one has", d.View.Session.State, `{"n":1}`)
		c := h.commitOf(next, 5)
		c.Ops = []session.StateOp{{Key: "o", Kind: session.OpReplace, Value: "5"}}
		h.commit(c)
		same(h, "state after its step", h.snapshot(home).Session.State, `{"n":1,"o":5}`)
		_, state, err := h.Store.Checkpoint(h.Context(), home, r.kept.CheckpointID)
		h.must(err)
		same(h, "state of the checkpoint before", state, `{"n":1}`)
	}},
	{"a rollback applies after every end of the live run", func(h *harness) {
		for name, end := range map[string]func(session.ClaimRef){
			"completed":        func(ref session.ClaimRef) { h.finish(ref) },
			"failed":           func(ref session.ClaimRef) { h.fail(ref) },
			"suspended":        func(ref session.ClaimRef) { h.commit(h.suspendingCommit(ref, 2, "call of "+ref.SessionID)) },
			"paused by a host": func(ref session.ClaimRef) { h.forceStatus(ref.Key, session.Paused) },
			"abort requested": func(ref session.ClaimRef) {
				h.stop(ref.Key, session.StopAbort, "now")
				h.commit(h.suspendingCommit(ref, 2, "call of "+ref.SessionID))
			},
		} {
			key := at(name)
			sent := h.startOf(key)
			h.start(sent)
			ref, _ := h.claim(executor)
			c := h.commitOf(ref, 1)
			c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "1"}}
			h.commit(c)
			rolling := h.rollbackOf(key)
			h.start(rolling)
			end(ref)
			shot := h.snapshot(key)
			var ids []string
			for _, m := range h.messages(key) {
				ids = append(ids, m.ID)
			}
			same(h, name+": messages", ids, []string{sent.Messages[0].ID, rolling.Messages[0].ID})
			same(h, name+": state", shot.Session.State, `{}`)
			same(h, name+": status", shot.Session.Status, session.Active)
			same(h, name+": next run", shot.Current.RunID, rolling.RunID)
			same(h, name+": calls", len(shot.Calls), 0)
			same(h, name+": checkpoints", len(h.checkpoints(key)), 0)
			next, _ := h.claim(executor)
			h.finish(next)
		}
	}},
	{"answers that a rolled-back run has consumed stay consumed with their results", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.suspendingCommit(ref, 1, "c1", "c2", "c3"))
		for _, id := range []string{"c1", "c2", "c3"} {
			h.submit(h.submitOf(home, id))
		}
		drain, _ := h.claim(executor)
		before := len(h.messages(home))
		c := h.consumingCommit(drain, 2, "c1")
		note := session.Message{ID: h.id("note"), Role: "user", RunID: drain.RunID, Step: 2, CreatedAt: h.now, Body: []byte("go on")}
		c.Messages = append(c.Messages, note)
		h.commit(c)
		plain := h.consumingCommit(drain, 3)
		h.commit(plain) // results of the run's own calls, removed with them
		h.start(h.rollbackOf(home))
		last := h.consumingCommit(drain, 4, "c2")
		last.Outcome = &completed
		h.commit(last)
		var kept []string
		for _, m := range h.messages(home)[before:] {
			kept = append(kept, m.ID)
		}
		_, run := h.session(home)
		same(h, "messages that stay", kept[:len(kept)-1], []string{c.Messages[1].ID, last.Messages[1].ID})
		same(h, "where the next one began", run.StartMessageCount, int64(before+2))
		if list := h.checkpoints(home); len(list) != 1 || list[0].Step != 1 {
			h.Errorf("got the checkpoints %+v, want that of the step before", list)
		}
		next, d := h.claim(executor)
		var ids string
		for _, call := range d.View.Calls {
			if call.ConsumedAt == 0 && call.Answer == session.AnswerClient {
				ids += call.CallID
			}
		}
		same(h, "answers of the next claim", ids, "c3")
		_, err := h.tryCommit(h.consumingCommit(next, 5, "c1"))
		h.refuses(err, fault.Conflict, "CALL_CONSUMED")
		h.commit(h.consumingCommit(next, 5, "c3"))
		same(h, "calls in the end", len(h.snapshot(home).Calls), 0)
	}},
	{"late answers that a rolled-back run has reported are reported again", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		c := h.suspendingCommit(ref, 1, "c1")
		c.Calls[0].DeadlineAt = h.now + 10
		h.commit(c)
		h.now += 20
		h.timeout(home)
		next, _ := h.claim(executor)
		h.commit(h.consumingCommit(next, 2, "c1"))
		same(h, "answer", h.submit(h.submitOf(home, "c1")).Status, session.LateAnswer)
		h.finish(next)
		h.start(h.startOf(home))
		tells, _ := h.claim(executor)
		tell := h.commitOf(tells, 3)
		tell.LateReported = []string{"c1"}
		h.commit(tell)
		h.start(h.rollbackOf(home))
		h.finish(tells)
		repeat, d := h.claim(executor)
		if len(d.View.Calls) != 1 || d.View.Calls[0].CallID != "c1" || d.View.Calls[0].LateReported || d.View.Calls[0].ConsumedStep != 2 {
			h.Errorf("got the calls %+v, want the late one", d.View.Calls)
		}
		tell = h.commitOf(repeat, 4)
		tell.LateReported = []string{"c1"}
		h.commit(tell)
		h.finish(repeat)
		h.start(h.startOf(home))
		_, d = h.claim(executor)
		same(h, "calls to report", len(d.View.Calls), 0)
	}},
	{"a withdrawn rollback removes nothing", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.commitOf(ref, 1))
		rolling := h.rollbackOf(home)
		h.start(rolling)
		waits := h.waitingOf(home)
		h.start(waits)
		_, err := h.tryStop(session.RequestStop{Key: home, RunID: rolling.RunID, Kind: session.StopInterrupt, Now: h.now})
		h.must(err)
		h.finish(ref)
		_, run := h.session(home)
		same(h, "next run", run.RunID, waits.RunID)
		same(h, "messages", len(h.messages(home)), 3)
		same(h, "checkpoints", len(h.checkpoints(home)), 1)
	}},
	{"a rollback applies to the run that was live at its request", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.commitOf(ref, 1))
		first, rolling := h.waitingOf(home), h.rollbackOf(home)
		h.start(first)
		h.start(rolling)
		h.finish(ref)
		same(h, "messages once it has ended", len(h.messages(home)), 2) // only the user's
		next, _ := h.claim(executor)
		same(h, "next run", next.RunID, first.RunID)
		h.commit(h.commitOf(next, 2))
		h.finish(next)
		same(h, "messages of the run between", len(h.messages(home)), 4)
		_, run := h.session(home)
		same(h, "last run", run.RunID, rolling.RunID)
	}},
}

// rolledBack is a session with two runs. The second was rolled back.
type rolledBack struct {
	kept    session.Commit  // of the first run
	before  session.Session // after the first run
	sent    session.Send    // the second run
	rolling session.Send    // the start with the rollback
	last    session.Commit  // of the second run
}

// rollBackRun runs home with three steps in its second run, and rolls that run back.
func (h *harness) rollBackRun() rolledBack {
	h.Helper()
	h.start(h.startOf(home))
	first, _ := h.claim(executor)
	kept := h.commitOf(first, 1)
	kept.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "1"}}
	h.commit(kept)
	h.finish(first)
	before := h.snapshot(home).Session

	second := h.startOf(home)
	h.start(second)
	ref, _ := h.claim(executor)
	for step := int32(2); step <= 3; step++ {
		c := h.commitOf(ref, step)
		c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: fmt.Sprint(step)}}
		c.Usage = []session.Usage{modelUsage(1)}
		h.commit(c)
	}
	h.append(home, "aside")
	rolling := h.rollbackOf(home)
	h.start(rolling)
	_, run := h.session(home)
	same(h, "stop", run.Stop, &session.Stop{Kind: session.StopInterrupt, Reason: "superseded by run " + rolling.RunID, At: h.now, Undo: true})
	last := h.commitOf(ref, 4)
	last.Ops = []session.StateOp{{Key: "m", Kind: session.OpReplace, Value: "4"}}
	last.Outcome = &session.Outcome{Status: session.RunInterrupted}
	h.commit(last)
	return rolledBack{kept: kept, before: before, sent: second, rolling: rolling, last: last}
}

// consumingCommit returns a commit to consume the answers to the calls. It has a model's message
// and a result.
func (h *harness) consumingCommit(ref session.ClaimRef, step int32, calls ...string) session.Commit {
	c := h.commitOf(ref, step)
	c.Messages = append(c.Messages, session.Message{ID: h.id("result"), Role: "tool", RunID: ref.RunID, Step: step, CreatedAt: h.now, Body: []byte("done")})
	for _, id := range calls {
		c.Consume = append(c.Consume, session.Consume{CallID: id, Revision: 1})
	}
	return c
}

func (h *harness) rollbackOf(key session.Key) session.Send {
	c := h.waitingOf(key)
	c.OnBusy = session.BusyRollback
	return c
}
