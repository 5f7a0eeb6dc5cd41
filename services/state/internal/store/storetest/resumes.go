package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// resumes prove the effects of a resume's checkpoint, additions and writes.
var resumes = []suiteCase{
	{"a resume at a checkpoint appends messages and writes", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		for step := int32(1); step <= 3; step++ {
			c := h.commitOf(ref, step)
			c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: fmt.Sprint(step)}}
			h.commit(c)
		}
		h.finish(ref)
		all, list := h.messages(home), h.checkpoints(home)
		c := h.resumeAt(home, list[2].ID)
		c.DeadlineAt = 77
		c.Append = []session.Message{{ID: "appended", Role: "system", CreatedAt: h.now, Body: []byte("x")}}
		c.Ops = []session.StateOp{{Key: "m", Kind: session.OpReplace, Value: "9"}}
		c.Messages[0].ID = all[3].ID // the rewind removes it
		got := h.start(c)
		if got.Session.Status != session.Active || got.Session.MessageCount != 4 || got.Session.StepCount != 3 || got.Session.Turn != 2 {
			h.Errorf("got %+v", got.Session)
		}
		var ids []string
		for i, m := range h.messages(home) {
			same(h, "ordinal", m.Ordinal, int64(i))
			ids = append(ids, m.ID)
		}
		same(h, "messages", ids, []string{all[0].ID, all[1].ID, "appended", all[3].ID})
		s, run := h.session(home)
		same(h, "state", s.State, `{"n":1,"m":9}`)
		same(h, "where it began", run.StartMessageCount, int64(3))
		same(h, "deadline", run.DeadlineAt, session.Millis(77))
		same(h, "checkpoints", len(h.checkpoints(home)), 1)
		taken := h.resumeAt(home, list[2].ID)
		ref, _ = h.claim(executor)
		h.commit(h.commitOf(ref, 4))
		h.finish(ref)
		taken.Messages[0].ID = all[1].ID // it remains
		_, err := h.tryStart(taken)
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
	}},
	{"a resume rewinds a suspended session", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.commitOf(ref, 1))
		h.commit(h.suspendingCommit(ref, 2, "c1"))
		c := h.resumeOf(home)
		c.CheckpointID = h.checkpoints(home)[1].ID
		h.start(c)
		s, run := h.session(home)
		if s.Status != session.Active || s.Suspension != nil || run.Entry != session.EntryResume || len(h.snapshot(home).Calls) != 0 || s.MessageCount != 2 {
			h.Errorf("got %+v,\n%+v", s, run)
		}
	}},
	{"a resume's writes have the limit of a merge", func(h *harness) {
		h.create(h.createOf(home))
		c := h.resumeOf(home)
		c.Limits = session.Limits{State: 19}
		c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: `"012345678901"`}}
		_, err := h.tryStart(c)
		h.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		c.Limits.State = 20
		h.start(c)
		same(h, "state", h.snapshot(home).Session.State, `{"n":"012345678901"}`)
	}},
	{"a step suspends on open calls of an earlier step", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.suspendingCommit(ref, 1, "c1", "c2"))
		h.must(onlyError(h.stopWaiting(home)))
		h.submit(h.submitOf(home, "c1"))
		c := h.resumeOf(home)
		h.start(c)
		drain, _ := h.claim(executor)
		h.must(h.tryPlan(drain, 2, "drain of c1", "c1"))
		ops := []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "1"}}
		_, err := h.tryResult(drain, 2, session.Result{CallID: "c1", Body: []byte("r"), Ops: ops})
		h.must(err)
		commit := h.suspendingCommit(drain, 2)
		commit.Calls, commit.Consume = nil, []session.Consume{{CallID: "c1", Revision: 1}}
		h.commit(commit)
		shot := h.snapshot(home)
		if shot.Session.Status != session.SuspendedClientTool || len(shot.Calls) != 1 || shot.Calls[0].CallID != "c2" {
			h.Errorf("got %+v, want it to wait for c2", shot)
		}
		same(h, "state", shot.Session.State, `{"n":1}`)
		answer := h.submit(h.submitOf(home, "c2"))
		same(h, "continuation", answer.Continuation, session.ContinueNewRun)
		last, d := h.claim(executor)
		same(h, "claimed run", last.RunID, answer.RunID)
		same(h, "calls of the claim", len(d.View.Calls), 1)
		nothing := h.suspendingCommit(last, 3)
		nothing.Calls, nothing.Consume = nil, []session.Consume{{CallID: "c2", Revision: 1}}
		_, err = h.tryCommit(nothing)
		h.refuses(err, fault.Invalid, "OUTCOME_INVALID")
	}},
	{"a plan without a message applies the writes of its calls in order", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.must(h.tryPlan(ref, 1, "drain", "x", "y"))
		for _, id := range []string{"y", "x"} {
			ops := []session.StateOp{{Key: "log", Kind: session.OpAppend, Value: fmt.Sprintf("[%q]", id)}}
			_, err := h.tryResult(ref, 1, session.Result{CallID: id, Body: []byte(id), Ops: ops})
			h.must(err)
		}
		c := h.commitOf(ref, 1)
		c.Messages[0].Role = "tool"
		h.commit(c)
		same(h, "state", h.snapshot(home).Session.State, `{"log":["x","y"]}`)
		same(h, "messages", len(h.messages(home)), 2)
		if v := h.readView(home, session.Need{Journal: true}); v.Journal != nil {
			h.Error("the plan has outlived its step")
		}
	}},
}

// stopWaiting interrupts a suspended session.
func (h *harness) stopWaiting(key session.Key) (session.Stopped, error) {
	return h.tryStop(session.RequestStop{Key: key, Kind: session.StopInterrupt, Now: h.now})
}

func onlyError[A any](_ A, err error) error { return err }
