package worker

import (
	"context"

	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// giveUp ends the run in any state. If the journal has a plan, its calls may have had effects, so the step is
// committed with their known results.
func (r *runner) giveUp(ctx context.Context, o loop.Outcome) error {
	journal := r.currentJournal(ctx)
	r.planner = loop.Quit(loop.Start{
		Run: r.claimed.plannerRun(), SessionSteps: int(r.step), Calls: toAsked(r.claim.GetCalls()), Journal: journal,
	}, o)
	shown := r.view.begun
	if err := r.view.showBegin(ctx, r.step); err != nil {
		return err
	}
	if journal != nil {
		if shown { // readers may have seen more than the journal has, or something else
			r.view.voidStep(r.writes.stored)
			r.writes.restart(journal)
		}
		if err := r.view.showPlan(ctx, r.step+1, journal.Plan, r.planner); err != nil {
			return err
		}
	}
	commit, ok := r.planner.Next().(loop.Commit)
	if !ok {
		return r.finish(ctx, o)
	}
	err := r.commit(ctx, commit)
	if err == nil || mustLeave(ctx, err) {
		return err
	}
	r.log.ErrorContext(ctx, "the results of the step in flight cannot be committed; the run ends without them", "error", err)
	return r.finish(ctx, o)
}

// currentJournal returns the journal of the step in flight; nil without a plan. If the run was not prepared, it
// loads the session's state for the commit.
func (r *runner) currentJournal(ctx context.Context) *loop.Journal {
	if r.claim.GetJournal().GetPlan() != nil { // not loaded yet
		err := r.loadState()
		if err == nil {
			_, err = r.loadJournal()
		}
		if err != nil {
			r.log.ErrorContext(ctx, "the journal cannot be read; the run ends without it", "error", err)
		}
		r.claim.Journal = nil
	}
	return r.recorder.journal.current()
}
