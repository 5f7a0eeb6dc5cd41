package worker

import (
	"context"

	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// giveUp ends the run, whatever it is doing. Where the journal has a plan, its calls may have taken
// effect. So what is known of them is committed with the end.
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
		if shown { // readers may have seen more than the journal has, or other things
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
	r.log.ErrorContext(ctx, "what is known of the calls of the step cannot be kept, and the run ends without", "error", err)
	return r.finish(ctx, o)
}

// currentJournal gives what the journal has of the step in flight; nil without a plan. Where the run
// was not begun here, it takes up the state of the session, which the commit needs.
func (r *runner) currentJournal(ctx context.Context) *loop.Journal {
	if r.claim.GetJournal().GetPlan() != nil { // not taken up yet
		err := r.loadState()
		if err == nil {
			_, err = r.loadJournal()
		}
		if err != nil {
			r.log.ErrorContext(ctx, "the journal cannot be read, and the run ends without", "error", err)
		}
		r.claim.Journal = nil
	}
	return r.recorder.journal.current()
}
