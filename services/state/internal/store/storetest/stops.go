package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var stops = []test{
	{"a stop stays with the run that it is meant for", func(b *bench) {
		first := b.start(b.startOf(home)).Run
		same(b, "answer before the claim", b.stop(home, session.StopInterrupt, "enough"), session.Stopped{RunID: first.RunID, Effect: session.StopRequested})
		ref, d := b.claim(executor)
		want := &session.Stop{Kind: session.StopInterrupt, Reason: "enough", At: b.now}
		same(b, "stop that a claim hands over", d.Change.Runs[0].Stop, want)
		b.now++
		b.stop(home, session.StopInterrupt, "again")
		s, run := b.session(home)
		same(b, "first stop", run.Stop, want)
		b.stop(home, session.StopAbort, "now")
		b.stop(home, session.StopInterrupt, "once more")
		_, run = b.session(home)
		same(b, "stop that outranks", run.Stop, &session.Stop{Kind: session.StopAbort, Reason: "now", At: b.now})
		same(b, "version", b.snapshot(home).Session.Version, s.Version)
		b.must(b.tryRelease(ref))
		ref, _ = b.claim(executor)
		b.finish(ref)
		next := b.start(b.startOf(home)).Run
		if _, run := b.session(home); run.Stop != nil || run.RunID != next.RunID {
			b.Errorf("the next run has the stop of the former: %+v", run)
		}
		stopped, err := b.tryStop(session.RequestStop{Key: home, RunID: first.RunID, Kind: session.StopAbort})
		b.must(err)
		same(b, "answer of a run that is over", stopped, session.Stopped{RunID: first.RunID, Effect: session.StopNone})
		_, err = b.tryStop(session.RequestStop{Key: home, RunID: "nobody", Kind: session.StopAbort})
		b.refuses(err, fault.NotFound, "RUN_NOT_FOUND")
	}},
	{"an executor is told of the stops of its runs", func(b *bench) {
		b.announce("executor-2")
		var want []store.StoppedRun
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			b.start(b.startOf(at(id)))
			owner := executor
			if id == "d" {
				owner = "executor-2"
			}
			ref, _ := b.claim(owner)
			if id == "b" {
				continue // nobody wants it to stop
			}
			b.stop(at(id), session.StopInterrupt, id)
			if id == "e" {
				b.finish(ref) // it has stopped
				continue
			}
			if owner == executor {
				want = append(want, store.StoppedRun{ExecutorID: executor, RunID: ref.RunID, Stop: session.Stop{Kind: session.StopInterrupt, Reason: id, At: b.now}})
			}
		}
		got, err := b.Store.Stops(b.Context(), executor)
		b.must(err)
		same(b, "stops", got, want)
		none, err := b.Store.Stops(b.Context(), "nobody")
		if err != nil || len(none) != 0 {
			b.Errorf("got %d stops of nobody, %v", len(none), err)
		}
	}},
	{"an interrupted run says why", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.stop(home, session.StopInterrupt, "lunch")
		commit := b.commitOf(ref, 1)
		commit.Outcome = &session.Outcome{Status: session.RunInterrupted}
		b.commit(commit)
		s, _ := b.session(home)
		same(b, "interruption", s.Interruption, &session.Interruption{RunID: ref.RunID, Reason: "lunch", At: b.now})
		b.start(b.startOf(home))
		if s, _ := b.session(home); s.Interruption != nil {
			b.Error("an active session is interrupted")
		}
	}},
	{"a session that waits is stopped at once", func(b *bench) {
		ref := b.suspended(home, "c1")
		same(b, "answer", b.stop(home, session.StopInterrupt, "why"), session.Stopped{RunID: ref.RunID, Effect: session.StopDone})
		s, run := b.session(home)
		if s.Status != session.Interrupted || s.Suspension != nil || s.Interruption.Reason != "why" || run.Status != session.RunSuspendedClientTool {
			b.Errorf("got %+v,\n%+v", s, run)
		}
		same(b, "calls after an interrupt", len(b.snapshot(home).Calls), 1)
		answer := b.submit(b.submitOf(home, "c1"))
		same(b, "answer", answer.Status, session.Accepted)
		same(b, "continuation", answer.Continuation, session.CallerResumes)
		other := b.suspended(at("s2"), "c1")
		same(b, "answer", b.stop(at("s2"), session.StopAbort, "why"), session.Stopped{RunID: other.RunID, Effect: session.StopDone})
		s, _ = b.session(at("s2"))
		if s.Status != session.Failed || s.Failure == nil || s.Failure.Code != "framework_cancelled" || len(b.snapshot(at("s2")).Calls) != 0 {
			b.Errorf("got %+v", s)
		}
		same(b, "answer once more", b.stop(at("s2"), session.StopAbort, "why").Effect, session.StopDone)
		same(b, "answer of what is over", b.stop(at("s2"), session.StopInterrupt, "why").Effect, session.StopNone)
	}},
	{"a released run waits for its time", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		c := session.Release{Ref: ref, Delay: 500, Now: b.now}
		b.must(b.send(c.Key, c.Need(), c.Decide))
		for range 2 {
			if got := b.claimAll(executor, 1); len(got) != 0 {
				b.Fatalf("a run was claimed %d ms before its time", 500)
			}
			b.now += 499
			if _, run := b.session(home); run.DueAt != b.now+1 {
				break
			}
		}
		b.now = c.Now + 500
		again, _ := b.claim(executor)
		same(b, "epoch", again.Epoch, ref.Epoch+1)
		c = session.Release{Ref: again, Delay: 1 << 40, Now: b.now}
		b.must(b.send(c.Key, c.Need(), c.Decide))
		b.stop(home, session.StopInterrupt, "a stop does not wait")
		b.now++
		again, _ = b.claim(executor)
		c = session.Release{Ref: again, Delay: 500, Now: b.now} // who has claimed it knows of the stop
		b.must(b.send(c.Key, c.Need(), c.Decide))
		same(b, "claims before its time", len(b.claimAll(executor, 1)), 0)
		b.now += 500
		again, _ = b.claim(executor)
		b.stop(home, session.StopAbort, "and this one came since")
		c = session.Release{Ref: again, Delay: 500, Now: b.now}
		b.must(b.send(c.Key, c.Need(), c.Decide))
		b.claim(executor)
	}},
	{"losses in a row are counted until a step is committed", func(b *bench) {
		b.start(b.startOf(home))
		for losses := int32(0); losses < 3; losses++ {
			ref, d := b.claim(executor)
			same(b, "losses that a claim shows", d.View.Run.Losses, losses)
			if losses == 2 {
				b.commit(b.commitOf(ref, 1))
			}
			b.now += 2000
			if n := b.silence(); n != 1 {
				b.Fatalf("got %d runs of silent executors, want 1", n)
			}
			b.announce(executor)
		}
		_, run := b.session(home)
		same(b, "losses since the step", run.Losses, int32(1))
		ref, _ := b.claim(executor)
		b.must(b.tryRelease(ref)) // given back, not lost
		_, run = b.session(home)
		same(b, "losses after a release", run.Losses, int32(1))
		b.claim(executor)
		same(b, "runs that are not held", len(b.lose(executor, nil, b.now+1)), 1)
		_, run = b.session(home)
		same(b, "losses after that", run.Losses, int32(2))
	}},
}
