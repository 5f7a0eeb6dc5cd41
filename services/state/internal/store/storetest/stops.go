package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var stops = []suiteCase{
	{"a stop applies to its own run", func(h *harness) {
		first := h.start(h.startOf(home)).Run
		same(h, "answer before the claim", h.stop(home, session.StopInterrupt, "enough"), session.Stopped{RunID: first.RunID, Effect: session.StopRequested})
		ref, d := h.claim(executor)
		want := &session.Stop{Kind: session.StopInterrupt, Reason: "enough", At: h.now}
		same(h, "stop in a claim", d.Change.Runs[0].Stop, want)
		h.now++
		h.stop(home, session.StopInterrupt, "again")
		s, run := h.session(home)
		same(h, "first stop", run.Stop, want)
		h.stop(home, session.StopAbort, "now")
		h.stop(home, session.StopInterrupt, "once more")
		_, run = h.session(home)
		same(h, "stop that outranks", run.Stop, &session.Stop{Kind: session.StopAbort, Reason: "now", At: h.now})
		same(h, "version", h.snapshot(home).Session.Version, s.Version)
		h.must(h.tryRelease(ref))
		ref, _ = h.claim(executor)
		h.finish(ref)
		next := h.start(h.startOf(home)).Run
		if _, run := h.session(home); run.Stop != nil || run.RunID != next.RunID {
			h.Errorf("the next run has the stop of the former: %+v", run)
		}
		stopped, err := h.tryStop(session.RequestStop{Key: home, RunID: first.RunID, Kind: session.StopAbort})
		h.must(err)
		same(h, "answer of an ended run", stopped, session.Stopped{RunID: first.RunID, Effect: session.StopNone})
		_, err = h.tryStop(session.RequestStop{Key: home, RunID: "unknown", Kind: session.StopAbort})
		h.refuses(err, fault.NotFound, "RUN_NOT_FOUND")
	}},
	{"an executor receives the stops of its runs", func(h *harness) {
		h.announce("executor-2")
		var want []store.StoppedRun
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			h.start(h.startOf(at(id)))
			owner := executor
			if id == "d" {
				owner = "executor-2"
			}
			ref, _ := h.claim(owner)
			if id == "b" {
				continue // no stop requested
			}
			h.stop(at(id), session.StopInterrupt, id)
			if id == "e" {
				h.finish(ref) // the run has stopped
				continue
			}
			if owner == executor {
				want = append(want, store.StoppedRun{ExecutorID: executor, RunID: ref.RunID, Stop: session.Stop{Kind: session.StopInterrupt, Reason: id, At: h.now}})
			}
		}
		got, err := h.Store.Stops(h.Context(), executor)
		h.must(err)
		same(h, "stops", got, want)
		none, err := h.Store.Stops(h.Context(), "unknown")
		if err != nil || len(none) != 0 {
			h.Errorf("got %d stops of an unknown executor, %v", len(none), err)
		}
	}},
	{"an interrupted run stores the reason", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.stop(home, session.StopInterrupt, "lunch")
		commit := h.commitOf(ref, 1)
		commit.Outcome = &session.Outcome{Status: session.RunInterrupted}
		h.commit(commit)
		s, _ := h.session(home)
		same(h, "interruption", s.Interruption, &session.Interruption{RunID: ref.RunID, Reason: "lunch", At: h.now})
		h.start(h.startOf(home))
		if s, _ := h.session(home); s.Interruption != nil {
			h.Error("an active session is interrupted")
		}
	}},
	{"a suspended session is stopped at once", func(h *harness) {
		ref := h.startSuspended(home, "c1")
		same(h, "answer", h.stop(home, session.StopInterrupt, "why"), session.Stopped{RunID: ref.RunID, Effect: session.StopDone})
		s, run := h.session(home)
		if s.Status != session.Interrupted || s.Suspension != nil || s.Interruption.Reason != "why" || run.Status != session.RunSuspendedClientTool {
			h.Errorf("got %+v,\n%+v", s, run)
		}
		same(h, "calls after an interrupt", len(h.snapshot(home).Calls), 1)
		answer := h.submit(h.submitOf(home, "c1"))
		same(h, "answer", answer.Status, session.Accepted)
		same(h, "continuation", answer.Continuation, session.CallerResumes)
		other := h.startSuspended(at("s2"), "c1")
		same(h, "answer", h.stop(at("s2"), session.StopAbort, "why"), session.Stopped{RunID: other.RunID, Effect: session.StopDone})
		s, _ = h.session(at("s2"))
		if s.Status != session.Failed || s.Failure == nil || s.Failure.Code != "framework_cancelled" || len(h.snapshot(at("s2")).Calls) != 0 {
			h.Errorf("got %+v", s)
		}
		same(h, "repeated answer", h.stop(at("s2"), session.StopAbort, "why").Effect, session.StopDone)
		same(h, "answer of an ended session", h.stop(at("s2"), session.StopInterrupt, "why").Effect, session.StopNone)
	}},
	{"a delayed run is not due early", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		c := session.Release{ClaimRef: ref, Delay: 500, Now: h.now}
		h.must(h.send(c.Key, c.Need(), c.Decide))
		for range 2 {
			if got := h.claimAll(executor, 1); len(got) != 0 {
				h.Fatalf("a run was claimed %d ms before its time", 500)
			}
			h.now += 499
			if _, run := h.session(home); run.DueAt != h.now+1 {
				break
			}
		}
		h.now = c.Now + 500
		repeat, _ := h.claim(executor)
		same(h, "epoch", repeat.Epoch, ref.Epoch+1)
		c = session.Release{ClaimRef: repeat, Delay: 1 << 40, Now: h.now}
		h.must(h.send(c.Key, c.Need(), c.Decide))
		h.stop(home, session.StopInterrupt, "a stop does not wait")
		h.now++
		repeat, _ = h.claim(executor)
		c = session.Release{ClaimRef: repeat, Delay: 500, Now: h.now} // the claim carried the stop
		h.must(h.send(c.Key, c.Need(), c.Decide))
		same(h, "claims before its time", len(h.claimAll(executor, 1)), 0)
		h.now += 500
		repeat, _ = h.claim(executor)
		h.stop(home, session.StopAbort, "requested later")
		c = session.Release{ClaimRef: repeat, Delay: 500, Now: h.now}
		h.must(h.send(c.Key, c.Need(), c.Decide))
		h.claim(executor)
	}},
	{"consecutive losses are counted until a step is committed", func(h *harness) {
		h.start(h.startOf(home))
		for losses := int32(0); losses < 3; losses++ {
			ref, d := h.claim(executor)
			same(h, "losses that a claim shows", d.View.Run.Losses, losses)
			if losses == 2 {
				h.commit(h.commitOf(ref, 1))
			}
			h.now += 2000
			if n := h.requeueSilent(); n != 1 {
				h.Fatalf("got %d runs of silent executors, want 1", n)
			}
			h.announce(executor)
		}
		_, run := h.session(home)
		same(h, "losses since the step", run.Losses, int32(1))
		ref, _ := h.claim(executor)
		h.must(h.tryRelease(ref)) // a release is no loss
		_, run = h.session(home)
		same(h, "losses after a release", run.Losses, int32(1))
		h.claim(executor)
		same(h, "runs that are not held", len(h.requeueLost(executor, nil, h.now+1)), 1)
		_, run = h.session(home)
		same(h, "losses after that", run.Losses, int32(2))
	}},
}
