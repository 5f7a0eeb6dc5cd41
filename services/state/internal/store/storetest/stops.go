package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var stops = []suiteCase{
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
				want = append(want, store.StoppedRun{ExecutorID: executor, RunID: ref.RunID,
					Stop: session.Stop{Kind: session.StopInterrupt, Reason: id, At: h.now}})
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
