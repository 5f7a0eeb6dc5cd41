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
			{Status: session.RunFailed, Failure: &session.Failure{Error: "no \x00 luck", Detail: "why", Code: "provider_rate_limited",
				Retryable: true}},
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
