package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var ends = []suiteCase{
	{"a step with an outcome ends the run", func(h *harness) {
		for _, o := range []session.Outcome{
			completed,
			{Status: session.RunInterrupted},
			{Status: session.RunFailed, Failure: &session.Failure{Error: "no \x00 luck", Detail: "why", Code: "provider_rate_limited", Retryable: true}},
		} {
			h.start(h.startOf(home))
			ref, d := h.claim(executor)
			commit := h.commitOf(ref, d.View.Session.StepCount+1)
			commit.Outcome = &o
			h.now++
			commit.Now = h.now
			want := h.commit(commit)
			s, run := h.session(home)
			same(h, "outcome", run.Outcome, o)
			if run.Status != o.Status || run.CompletedAt != h.now || s.Status != session.Status(o.Status) || s.Output != o.Output {
				h.Errorf("got run %+v\nof session %+v", run, s)
			}
			same(h, "failure", s.Failure, o.Failure)
			same(h, "answer to the repetition", h.commit(commit), want)
			h.expectEnded(ref, commit)
		}
	}},
	{"a run ends between steps", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.commitOf(ref, 1))
		h.must(h.tryPlan(ref, 2, "plan", "c1"))
		outcome := session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}}
		finished, err := h.tryFinish(ref, outcome)
		h.must(err)
		s, run := h.session(home)
		if s.Version != finished.Version || run.CompletedAt != finished.At || s.Status != session.Failed || s.StepCount != 1 || run.StepCount != 1 {
			h.Errorf("got %+v, run %+v of session %+v", finished, run, s)
		}
		same(h, "usage of the journal", h.usage(home), []session.UsageEntry{
			{RunID: ref.RunID, Step: 2, At: h.now, Usage: modelUsage(5)},
		})
		h.start(h.startOf(home)) // the repetition still gets the same answer
		repeat, err := h.tryFinish(ref, outcome)
		if err != nil || repeat != finished {
			h.Errorf("got %+v, %v; want %+v as before", repeat, err, finished)
		}
		_, err = h.tryFinish(ref, completed)
		h.refuses(err, fault.Stale, "RUN_FINISHED")
		next, d := h.claim(executor)
		if d.View.Journal != nil {
			h.Errorf("the journal of the ended run was handed to the next: %+v", d.View.Journal)
		}
		h.must(h.tryPlan(next, 2, "another plan"))
	}},
	{"an unknown run is not found", func(h *harness) {
		ref := session.ClaimRef{Key: home, RunID: "unknown", Epoch: 1}
		h.refuses(h.tryPlan(ref, 1, ""), fault.NotFound, "SESSION_NOT_FOUND")
		h.start(h.startOf(home))
		_, err := h.tryFinish(ref, completed)
		h.refuses(err, fault.NotFound, "RUN_NOT_FOUND")
		h.refuses(h.tryRelease(ref), fault.NotFound, "RUN_NOT_FOUND")
	}},
	{"a former run rejects writes with the next run's epoch", func(h *harness) {
		h.start(h.startOf(home))
		first, _ := h.claim(executor)
		h.finish(first)
		h.start(h.startOf(home))
		second, _ := h.claim(executor)
		mixed := session.ClaimRef{Key: home, RunID: first.RunID, Epoch: second.Epoch}
		_, err := h.tryCommit(h.commitOf(mixed, 1))
		h.refuses(err, fault.Stale, "EPOCH_STALE")
	}},
}

// expectEnded fails the test unless every write but the repetition of last is refused.
func (h *harness) expectEnded(ref session.ClaimRef, last session.Commit) {
	h.Helper()
	h.refuses(h.tryPlan(ref, last.Step+1, "plan"), fault.Stale, "RUN_FINISHED")
	_, err := h.tryResult(ref, last.Step+1, session.Result{CallID: "c1"})
	h.refuses(err, fault.Stale, "RUN_FINISHED")
	_, err = h.tryCommit(h.commitOf(ref, last.Step+1))
	h.refuses(err, fault.Stale, "RUN_FINISHED")
	last.Outcome = nil
	_, err = h.tryCommit(last)
	h.refuses(err, fault.Stale, "RUN_FINISHED")
	_, err = h.tryFinish(ref, completed)
	h.refuses(err, fault.Stale, "RUN_FINISHED")
}
