package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// takesBack are about the policy that takes back what the live run has done.
var takesBack = []test{
	{"a rollback takes back what the live run has done, and leaves what it was sent", func(b *bench) {
		b.start(b.startOf(home))
		first, _ := b.claim(executor)
		kept := b.commitOf(first, 1)
		kept.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: "1"}}
		b.commit(kept)
		b.finish(first)
		before := b.snapshot(home).Session

		second := b.startOf(home)
		b.start(second)
		ref, _ := b.claim(executor)
		for step := int32(2); step <= 3; step++ {
			c := b.commitOf(ref, step)
			c.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: fmt.Sprint(step)}}
			c.Usage = []session.Usage{tokens(1)}
			b.commit(c)
		}
		b.append(home, "aside")
		rolling := b.rollingBack(home)
		b.start(rolling)
		_, run := b.session(home)
		same(b, "stop", run.Stop, &session.Stop{Kind: session.StopInterrupt, Reason: "superseded by run " + rolling.RunID, At: b.now, Undo: true})
		last := b.commitOf(ref, 4)
		last.Ops = []session.StateOp{{Key: "m", Kind: session.Replace, Value: "4"}}
		last.Outcome = &session.Outcome{Status: session.RunInterrupted}
		b.commit(last)
		again := b.commit(last)
		same(b, "step of the repetition's answer", again.Step, int32(4))

		var ids []string
		for i, m := range b.messages(home) {
			same(b, "ordinal", m.Ordinal, int64(i))
			ids = append(ids, m.ID)
		}
		same(b, "messages", ids[2:], []string{second.Messages[0].ID, "aside", rolling.Messages[0].ID})
		s, run := b.session(home)
		same(b, "state", s.State, `{"n":1}`)
		if s.StepCount != 4 || s.Turn != 3 || run.RunID != rolling.RunID || s.MessageCount != 5 || s.StateVersion != before.StateVersion {
			b.Errorf("got %+v,\n%+v", s, run)
		}
		same(b, "where the next one began", run.StartMessageCount, int64(4))
		if list := b.checkpoints(home); len(list) != 1 || list[0].ID != kept.CheckpointID {
			b.Errorf("got the checkpoints %+v, want the one before", list)
		}
		same(b, "usage that is kept", len(b.usage(home)), 2)
		ended, err := b.Store.Run(b.Context(), home, ref.RunID)
		b.must(err)
		same(b, "status of the run", ended.Status, session.RunInterrupted)
		same(b, "its steps", ended.StepCount, int32(3))

		next, d := b.claim(executor)
		same(b, "state that the next one has", d.View.Session.State, `{"n":1}`)
		c := b.commitOf(next, 5)
		c.Ops = []session.StateOp{{Key: "o", Kind: session.Replace, Value: "5"}}
		b.commit(c)
		same(b, "state after its step", b.snapshot(home).Session.State, `{"n":1,"o":5}`)
		_, state, err := b.Store.Checkpoint(b.Context(), home, kept.CheckpointID)
		b.must(err)
		same(b, "state of the checkpoint before", state, `{"n":1}`)
	}},
	{"a rollback follows every end of the live run", func(b *bench) {
		for name, end := range map[string]func(session.Ref){
			"completed": func(ref session.Ref) { b.finish(ref) },
			"failed": func(ref session.Ref) {
				_, err := b.tryFinish(ref, session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}})
				b.must(err)
			},
			"suspended":        func(ref session.Ref) { b.commit(b.suspending(ref, 2, "call of "+ref.SessionID)) },
			"paused by a host": func(ref session.Ref) { b.force(ref.Key, session.Paused) },
			"asked to abort": func(ref session.Ref) {
				b.stop(ref.Key, session.StopAbort, "now")
				b.commit(b.suspending(ref, 2, "call of "+ref.SessionID))
			},
		} {
			key := at(name)
			sent := b.startOf(key)
			b.start(sent)
			ref, _ := b.claim(executor)
			c := b.commitOf(ref, 1)
			c.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: "1"}}
			b.commit(c)
			rolling := b.rollingBack(key)
			b.start(rolling)
			end(ref)
			shot := b.snapshot(key)
			var ids []string
			for _, m := range b.messages(key) {
				ids = append(ids, m.ID)
			}
			same(b, name+": messages", ids, []string{sent.Messages[0].ID, rolling.Messages[0].ID})
			same(b, name+": state", shot.Session.State, `{}`)
			same(b, name+": status", shot.Session.Status, session.Active)
			same(b, name+": next run", shot.Current.RunID, rolling.RunID)
			same(b, name+": calls", len(shot.Calls), 0)
			same(b, name+": checkpoints", len(b.checkpoints(key)), 0)
			next, _ := b.claim(executor)
			b.finish(next)
		}
	}},
	{"answers that were taken by a run that is taken back stay taken, and their results stay", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.suspending(ref, 1, "c1", "c2", "c3"))
		for _, id := range []string{"c1", "c2", "c3"} {
			b.submit(b.submitOf(home, id))
		}
		drain, _ := b.claim(executor)
		before := len(b.messages(home))
		c := b.takes(drain, 2, "c1")
		note := session.Message{ID: b.id("note"), Role: "user", RunID: drain.RunID, Step: 2, CreatedAt: b.now, Body: []byte("go on")}
		c.Messages = append(c.Messages, note)
		b.commit(c)
		plain := b.takes(drain, 3)
		b.commit(plain) // results of calls of its own, which go with them
		b.start(b.rollingBack(home))
		last := b.takes(drain, 4, "c2")
		last.Outcome = &completed
		b.commit(last)
		var kept []string
		for _, m := range b.messages(home)[before:] {
			kept = append(kept, m.ID)
		}
		_, run := b.session(home)
		same(b, "messages that stay", kept[:len(kept)-1], []string{c.Messages[1].ID, last.Messages[1].ID})
		same(b, "where the next one began", run.StartMessageCount, int64(before+2))
		if list := b.checkpoints(home); len(list) != 1 || list[0].Step != 1 {
			b.Errorf("got the checkpoints %+v, want that of the step before", list)
		}
		next, d := b.claim(executor)
		var ids string
		for _, call := range d.View.Calls {
			if call.ConsumedAt == 0 && call.Answer == session.AnswerClient {
				ids += call.CallID
			}
		}
		same(b, "answers of the next claim", ids, "c3")
		_, err := b.tryCommit(b.takes(next, 5, "c1"))
		b.refuses(err, fault.Conflict, "CALL_CONSUMED")
		b.commit(b.takes(next, 5, "c3"))
		same(b, "calls in the end", len(b.snapshot(home).Calls), 0)
	}},
	{"late answers that a run that is taken back has told of are told again", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		c := b.suspending(ref, 1, "c1")
		c.Calls[0].DeadlineAt = b.now + 10
		b.commit(c)
		b.now += 20
		b.timeout(home)
		next, _ := b.claim(executor)
		b.commit(b.takes(next, 2, "c1"))
		same(b, "answer", b.submit(b.submitOf(home, "c1")).Status, session.LateAnswer)
		b.finish(next)
		b.start(b.startOf(home))
		tells, _ := b.claim(executor)
		tell := b.commitOf(tells, 3)
		tell.Told = []string{"c1"}
		b.commit(tell)
		b.start(b.rollingBack(home))
		b.finish(tells)
		again, d := b.claim(executor)
		if len(d.View.Calls) != 1 || d.View.Calls[0].CallID != "c1" || d.View.Calls[0].Told || d.View.Calls[0].ConsumedStep != 2 {
			b.Errorf("got the calls %+v, want the late one", d.View.Calls)
		}
		tell = b.commitOf(again, 4)
		tell.Told = []string{"c1"}
		b.commit(tell)
		b.finish(again)
		b.start(b.startOf(home))
		_, d = b.claim(executor)
		same(b, "calls to be told of", len(d.View.Calls), 0)
	}},
	{"a rollback that was given up takes nothing back", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.commitOf(ref, 1))
		rolling := b.rollingBack(home)
		b.start(rolling)
		waits := b.waitingOf(home)
		b.start(waits)
		_, err := b.tryStop(session.RequestStop{Key: home, RunID: rolling.RunID, Kind: session.StopInterrupt, Now: b.now})
		b.must(err)
		b.finish(ref)
		_, run := b.session(home)
		same(b, "next run", run.RunID, waits.RunID)
		same(b, "messages", len(b.messages(home)), 3)
		same(b, "checkpoints", len(b.checkpoints(home)), 1)
	}},
	{"a rollback concerns the run that was live when it came", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.commitOf(ref, 1))
		first, rolling := b.waitingOf(home), b.rollingBack(home)
		b.start(first)
		b.start(rolling)
		b.finish(ref)
		same(b, "messages once it has ended", len(b.messages(home)), 2) // the user's alone
		next, _ := b.claim(executor)
		same(b, "next run", next.RunID, first.RunID)
		b.commit(b.commitOf(next, 2))
		b.finish(next)
		same(b, "messages of the run between", len(b.messages(home)), 4)
		_, run := b.session(home)
		same(b, "last run", run.RunID, rolling.RunID)
	}},
}

// takes is a command that commits a step which consumes answers: the model's
// message, and a result.
func (b *bench) takes(ref session.Ref, step int32, calls ...string) session.Commit {
	c := b.commitOf(ref, step)
	c.Messages = append(c.Messages, session.Message{ID: b.id("result"), Role: "tool", RunID: ref.RunID, Step: step, CreatedAt: b.now, Body: []byte("done")})
	for _, id := range calls {
		c.Consume = append(c.Consume, session.Consume{CallID: id, Revision: 1})
	}
	return c
}

func (b *bench) rollingBack(key session.Key) session.Send {
	c := b.waitingOf(key)
	c.OnBusy = session.BusyRollback
	return c
}
