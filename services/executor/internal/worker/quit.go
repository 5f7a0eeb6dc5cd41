package worker

import (
	"context"

	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// quit ends the run, whatever it is doing. Where the journal has a plan, its calls may have taken
// effect. So what is known of them is committed with the end.
func (r *runner) quit(ctx context.Context, o loop.Outcome) error {
	journal := r.journaled(ctx)
	r.planner = loop.Quit(loop.Start{
		Run: r.claimed.named(), SessionSteps: int(r.step), Calls: toAsked(r.claim.GetCalls()), Journal: journal,
	}, o)
	shown := r.view.opened
	if err := r.view.open(ctx, r.step); err != nil {
		return err
	}
	if journal != nil {
		if shown { // readers may have seen more than the journal has, or other things
			r.view.takeBack(r.writes.kept)
			r.writes.restart(journal)
		}
		if err := r.view.plan(ctx, r.step+1, journal.Plan, r.planner); err != nil {
			return err
		}
	}
	commit, ok := r.planner.Next().(loop.Commit)
	if !ok {
		return r.finish(ctx, o)
	}
	err := r.commit(ctx, commit)
	if err == nil || gone(ctx, err) {
		return err
	}
	r.log.ErrorContext(ctx, "what is known of the calls of the step cannot be kept, and the run ends without", "error", err)
	return r.finish(ctx, o)
}

// journaled gives what the journal has of the step in flight; nil without a plan. Where the run
// was not begun here, it takes up the state of the session, which the commit needs.
func (r *runner) journaled(ctx context.Context) *loop.Journal {
	if r.claim.GetJournal().GetPlan() != nil { // not taken up yet
		err := r.takeState()
		if err == nil {
			_, err = r.takeJournal()
		}
		if err != nil {
			r.log.ErrorContext(ctx, "the journal cannot be read, and the run ends without", "error", err)
		}
		r.claim.Journal = nil
	}
	return r.recorder.journal.found()
}
