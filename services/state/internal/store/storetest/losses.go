package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// losses prove how a session goes on when the database has lost commits that its executor or its live log has seen.
var losses = []suiteCase{
	{"a session goes on above the epochs and steps that its database has lost", func(h *harness) {
		h.runTurn(home, 1, "one")
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.must(h.tryPlan(ref, 2, "plan", "c1"))
		lost := session.LostWork{Epoch: ref.Epoch + 7, Step: 40}
		h.must(h.releaseAfter(ref, lost))
		h.must(h.releaseAfter(ref, lost)) // a repetition
		h.expectStale(ref)

		next, d := h.claim(executor)
		s := d.Change.Session
		same(h, "epoch", next.Epoch, ref.Epoch+8)
		same(h, "last step", s.StepCount, int32(40))
		same(h, "claims", s.Claims, int32(1))
		same(h, "position", s.Position, position.Ended(1))
		same(h, "plan", string(d.View.Journal.Plan), "plan")
		_, err := h.tryCommit(h.commitOf(next, 2))
		h.refuses(err, fault.Stale, "STEP_STALE")
		_, err = h.tryResult(next, 41, session.Result{CallID: "c1", Body: []byte("done")})
		h.must(err)
		same(h, "committed step", h.commit(h.commitOf(next, 41)).Step, int32(41))
		if _, run := h.session(home); run.StepCount != 1 {
			h.Errorf("the run has %d steps, want the one that it has committed", run.StepCount)
		}
		got := h.readSteps(home, store.StepPage{After: 12, Limit: 10, MaxBytes: 1000}) // a reader of the lost steps
		if len(got.Page) != 1 || got.Page[0].Follows != 1 || got.LastStep != 1 {
			h.Errorf("a reader of a lost step got %+v behind step %d; want step 41, which follows 1", got.Page, got.LastStep)
		}
	}},
	{"what was lost below the session changes no number", func(h *harness) {
		h.runTurn(home, 1, "one")
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.must(h.releaseAfter(ref, session.LostWork{Epoch: ref.Epoch - 1, Step: 1}))
		next, d := h.claim(executor)
		same(h, "epoch", next.Epoch, ref.Epoch+1)
		same(h, "last step", d.Change.Session.StepCount, int32(1))
		same(h, "claims", d.Change.Session.Claims, int32(2))
	}},
	{"only the claim in force raises the numbers of its session", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.must(h.tryRelease(ref))
		h.claim(executor)
		before, _ := h.session(home)
		h.refuses(h.releaseAfter(ref, session.LostWork{Epoch: 99, Step: 40}), fault.Stale, "EPOCH_STALE")
		after, _ := h.session(home)
		same(h, "session", after, before)
	}},
	{"a rollback knows the steps of a run that has skipped some", func(h *harness) {
		h.runTurn(home, 1, "one")
		sent := h.startOf(home)
		h.start(sent)
		ref := h.skipTo(home, 2, 40)
		rolling := h.rollbackOf(home)
		h.start(rolling)
		last := h.commitOf(ref, 41)
		last.Outcome = &session.Outcome{Status: session.RunInterrupted}
		h.commit(last)
		s, _ := h.session(home)
		same(h, "position", s.Position, position.Ended(1))
		same(h, "checkpoint", s.CheckpointID, h.checkpoints(home)[0].ID)
		same(h, "checkpoints", len(h.checkpoints(home)), 1)
		same(h, "last step", s.StepCount, int32(41))
	}},
	{"a retry knows the steps of a run that has skipped some", func(h *harness) {
		h.runTurn(home, 1, "one")
		h.start(h.startOf(home))
		ref := h.skipTo(home, 2, 40)
		valid := h.checkpoints(home)[0]
		failing := h.failingCommit(ref, 41)
		failing.Messages = failing.Messages[:1] // no tool has run
		h.commit(failing)
		h.start(h.retryOf(home))
		s, _ := h.session(home)
		same(h, "checkpoint", s.CheckpointID, valid.ID)
		same(h, "position", s.Position, position.Ended(2))
	}},
}

func (h *harness) releaseAfter(ref session.ClaimRef, lost session.LostWork) error {
	c := session.Release{ClaimRef: ref, Seen: lost, Now: h.now}
	return h.send(c.Key, c.Need(), c.Decide)
}

// skipTo commits a step of the session's queued run, and releases the run with lost work. It returns the next claim.
func (h *harness) skipTo(key session.Key, step, lost int32) session.ClaimRef {
	h.Helper()
	ref := h.claimOf(key)
	h.commit(h.commitOf(ref, step))
	h.must(h.releaseAfter(ref, session.LostWork{Step: lost}))
	return h.claimOf(key)
}
