package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var ends = []test{
	{"a step with an outcome ends the run", func(b *bench) {
		for _, o := range []session.Outcome{
			completed,
			{Status: session.RunInterrupted},
			{Status: session.RunFailed, Failure: &session.Failure{Error: "no \x00 luck", Detail: "why", Code: "provider_rate_limited", Retryable: true}},
		} {
			b.start(b.startOf(home))
			ref, d := b.claim(executor)
			commit := b.commitOf(ref, d.View.Session.StepCount+1)
			commit.Outcome = &o
			b.now++
			commit.Now = b.now
			want := b.commit(commit)
			s, run := b.session(home)
			same(b, "outcome", run.Outcome, o)
			if run.Status != o.Status || run.CompletedAt != b.now || s.Status != session.Status(o.Status) || s.Output != o.Output {
				b.Errorf("got run %+v\nof session %+v", run, s)
			}
			same(b, "failure", s.Failure, o.Failure)
			same(b, "answer to the repetition", b.commit(commit), want)
			b.over(ref, commit)
		}
	}},
	{"a run ends between steps", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.commitOf(ref, 1))
		b.must(b.tryPlan(ref, 2, "plan", "c1"))
		outcome := session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}}
		version, err := b.tryFinish(ref, outcome)
		b.must(err)
		s, run := b.session(home)
		if s.Version != version || s.Status != session.Failed || s.StepCount != 1 || run.StepCount != 1 {
			b.Errorf("got version %d, session %+v", version, s)
		}
		same(b, "usage of the journal", b.usage(home), []session.UsageEntry{
			{RunID: ref.RunID, Step: 2, At: b.now, Usage: tokens(5)},
		})
		b.start(b.startOf(home)) // the repetition answers the same even then
		again, err := b.tryFinish(ref, outcome)
		if err != nil || again != version {
			b.Errorf("got version %d, %v; want %d as before", again, err, version)
		}
		_, err = b.tryFinish(ref, completed)
		b.refuses(err, fault.Stale, "RUN_FINISHED")
		next, d := b.claim(executor)
		if d.View.Journal != nil {
			b.Errorf("the journal of the ended run was handed to the next: %+v", d.View.Journal)
		}
		b.must(b.tryPlan(next, 2, "another plan"))
	}},
	{"a run that is not there is not found", func(b *bench) {
		ref := session.Ref{Key: home, RunID: "nobody", Epoch: 1}
		b.refuses(b.tryPlan(ref, 1, ""), fault.NotFound, "SESSION_NOT_FOUND")
		b.start(b.startOf(home))
		_, err := b.tryFinish(ref, completed)
		b.refuses(err, fault.NotFound, "RUN_NOT_FOUND")
		b.refuses(b.tryRelease(ref), fault.NotFound, "RUN_NOT_FOUND")
	}},
	{"a former run of the session takes no writes under the epoch of the next", func(b *bench) {
		b.start(b.startOf(home))
		first, _ := b.claim(executor)
		b.finish(first)
		b.start(b.startOf(home))
		second, _ := b.claim(executor)
		mixed := session.Ref{Key: home, RunID: first.RunID, Epoch: second.Epoch}
		_, err := b.tryCommit(b.commitOf(mixed, 1))
		b.refuses(err, fault.Stale, "EPOCH_STALE")
	}},
}

// over fails the test unless every write but the repetition is refused.
func (b *bench) over(ref session.Ref, last session.Commit) {
	b.Helper()
	b.refuses(b.tryPlan(ref, last.Step+1, "plan"), fault.Stale, "RUN_FINISHED")
	_, err := b.tryResult(ref, last.Step+1, session.Result{CallID: "c1"})
	b.refuses(err, fault.Stale, "RUN_FINISHED")
	_, err = b.tryCommit(b.commitOf(ref, last.Step+1))
	b.refuses(err, fault.Stale, "RUN_FINISHED")
	last.Outcome = nil
	_, err = b.tryCommit(last)
	b.refuses(err, fault.Stale, "RUN_FINISHED")
	_, err = b.tryFinish(ref, completed)
	b.refuses(err, fault.Stale, "RUN_FINISHED")
}
