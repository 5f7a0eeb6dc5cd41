package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// options are about what a resume may bring beside its messages.
var options = []test{
	{"a resume at a checkpoint brings messages and writes in one", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		for step := int32(1); step <= 3; step++ {
			c := b.commitOf(ref, step)
			c.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: fmt.Sprint(step)}}
			b.commit(c)
		}
		b.finish(ref)
		all, list := b.messages(home), b.checkpoints(home)
		c := b.resumeAt(home, list[2].ID)
		c.DeadlineAt = 77
		c.Append = []session.Message{{ID: "appended", Role: "system", CreatedAt: b.now, Body: []byte("x")}}
		c.Ops = []session.StateOp{{Key: "m", Kind: session.Replace, Value: "9"}}
		c.Messages[0].ID = all[3].ID // it goes away with what is taken back
		got := b.start(c)
		if got.Session.Status != session.Active || got.Session.MessageCount != 4 || got.Session.StepCount != 3 || got.Session.Turn != 2 {
			b.Errorf("got %+v", got.Session)
		}
		var ids []string
		for i, m := range b.messages(home) {
			same(b, "ordinal", m.Ordinal, int64(i))
			ids = append(ids, m.ID)
		}
		same(b, "messages", ids, []string{all[0].ID, all[1].ID, "appended", all[3].ID})
		s, run := b.session(home)
		same(b, "state", s.State, `{"n":1,"m":9}`)
		same(b, "where it began", run.StartMessageCount, int64(3))
		same(b, "deadline", run.DeadlineAt, session.Millis(77))
		same(b, "checkpoints", len(b.checkpoints(home)), 1)
		taken := b.resumeAt(home, list[2].ID)
		ref, _ = b.claim(executor)
		b.commit(b.commitOf(ref, 4))
		b.finish(ref)
		taken.Messages[0].ID = all[1].ID // it stays
		_, err := b.try(taken)
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
	}},
	{"a suspended session is taken back by a resume", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.commitOf(ref, 1))
		b.commit(b.suspending(ref, 2, "c1"))
		c := b.resumeOf(home)
		c.CheckpointID = b.checkpoints(home)[1].ID
		b.start(c)
		s, run := b.session(home)
		if s.Status != session.Active || s.Suspension != nil || run.Entry != session.EntryResume || len(b.snapshot(home).Calls) != 0 || s.MessageCount != 2 {
			b.Errorf("got %+v,\n%+v", s, run)
		}
	}},
	{"a resume does not go back where it may not", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.commitOf(ref, 1))
		known := b.checkpoints(home)[0].ID
		_, err := b.try(b.resumeAt(home, "of nobody"))
		b.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		busy := b.resumeAt(home, known)
		busy.OnBusy = session.BusyEnqueue
		_, err = b.try(busy)
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
		_, err = b.try(b.resumeAt(at("nowhere"), known))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		writes := b.resumeOf(at("nowhere"))
		writes.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: "1"}}
		_, err = b.try(writes)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		b.start(b.waitingOf(home))
		b.commit(b.suspending(ref, 2, "c1"))
		_, err = b.try(busy) // somebody waits already
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
	}},
	{"writes of a resume are bounded as those of a merge", func(b *bench) {
		b.create(b.createOf(home))
		c := b.resumeOf(home)
		c.Limits = session.Limits{State: 19}
		c.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: `"012345678901"`}}
		_, err := b.try(c)
		b.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		c.Limits.State = 20
		b.start(c)
		same(b, "state", b.snapshot(home).Session.State, `{"n":"012345678901"}`)
	}},
	{"a step suspends on calls that an earlier one has left open", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.suspending(ref, 1, "c1", "c2"))
		b.must(onlyError(b.stopped(home)))
		b.submit(b.submitOf(home, "c1"))
		c := b.resumeOf(home)
		b.start(c)
		drain, _ := b.claim(executor)
		b.must(b.tryPlan(drain, 2, "drain of c1", "c1"))
		ops := []session.StateOp{{Key: "n", Kind: session.Replace, Value: "1"}}
		_, err := b.tryResult(drain, 2, session.Result{CallID: "c1", Body: []byte("r"), Ops: ops})
		b.must(err)
		commit := b.suspending(drain, 2)
		commit.Calls, commit.Consume = nil, []session.Consume{{CallID: "c1", Revision: 1}}
		b.commit(commit)
		shot := b.snapshot(home)
		if shot.Session.Status != session.SuspendedClientTool || len(shot.Calls) != 1 || shot.Calls[0].CallID != "c2" {
			b.Errorf("got %+v, want it to wait for c2", shot)
		}
		same(b, "state", shot.Session.State, `{"n":1}`)
		answer := b.submit(b.submitOf(home, "c2"))
		same(b, "continuation", answer.Continuation, session.NewRun)
		last, d := b.claim(executor)
		same(b, "claimed run", last.RunID, answer.RunID)
		same(b, "calls of the claim", len(d.View.Calls), 1)
		nothing := b.suspending(last, 3)
		nothing.Calls, nothing.Consume = nil, []session.Consume{{CallID: "c2", Revision: 1}}
		_, err = b.tryCommit(nothing)
		b.refuses(err, fault.Invalid, "OUTCOME_INVALID")
	}},
	{"a step whose plan is none of its messages commits the writes of its calls in the plan's order", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.must(b.tryPlan(ref, 1, "drain", "x", "y"))
		for _, id := range []string{"y", "x"} {
			ops := []session.StateOp{{Key: "log", Kind: session.Append, Value: fmt.Sprintf("[%q]", id)}}
			_, err := b.tryResult(ref, 1, session.Result{CallID: id, Body: []byte(id), Ops: ops})
			b.must(err)
		}
		c := b.commitOf(ref, 1)
		c.Messages[0].Role = "tool"
		b.commit(c)
		same(b, "state", b.snapshot(home).Session.State, `{"log":["x","y"]}`)
		same(b, "messages", len(b.messages(home)), 2)
		if v := b.view(home, session.Need{Journal: true}); v.Journal != nil {
			b.Error("the plan has outlived its step")
		}
	}},
}

// stopped interrupts a session that waits.
func (b *bench) stopped(key session.Key) (session.Stopped, error) {
	return b.tryStop(session.RequestStop{Key: key, Kind: session.StopInterrupt, Now: b.now})
}

func onlyError[A any](_ A, err error) error { return err }
