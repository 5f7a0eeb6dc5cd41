package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// draining is what the journal has of a step that runs calls of an earlier one. The zero value
// has no plan. Safe for concurrent use.
type draining struct {
	mu      sync.Mutex
	planned bool
	plan    agent.Message
	results []loop.Recorded
}

func (d *draining) begin(plan agent.Message, results ...loop.Recorded) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.planned, d.plan, d.results = true, plan, slices.Clone(results)
}

func (d *draining) record(result loop.Recorded) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.planned {
		d.results = append(d.results, result)
	}
}

// end is for a step that is committed.
func (d *draining) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.planned, d.plan, d.results = false, agent.Message{}, nil
}

// journal gives what there is; nil without a plan.
func (d *draining) journal() *loop.Journal {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.planned {
		return nil
	}
	return &loop.Journal{Plan: d.plan, Results: slices.Clone(d.results)}
}

// quit ends the run outside of a step, whatever it is at. Where it runs calls of an earlier
// step, what is known of them is committed with the end: no later run makes them again.
func (r *runner) quit(ctx context.Context, o loop.Outcome) error {
	journal := r.journaled(ctx)
	switch {
	case !r.opened:
		if err := r.open(ctx, journal); err != nil {
			r.log.WarnContext(ctx, "readers may miss steps of the run", "error", err)
		}
	case journal != nil: // what was told of the step may not be what is known
		r.said.forget()
		r.retell(true)
		r.writes.again(journal)
	}
	commit, ok := loop.Quit(loop.Start{
		Run: r.named(), SessionSteps: int(r.step), Calls: toAsked(r.claim.GetCalls()), Journal: journal,
	}, o).(loop.Commit)
	if !ok {
		return r.finish(ctx, o)
	}
	err := r.commitHurried(ctx, commit)
	switch {
	case err == nil:
		return r.endWith(ctx, o)
	case r.over(ctx, err):
		return err
	}
	r.log.ErrorContext(ctx, "what is known of approved calls cannot be kept, and the run ends without", "error", err)
	return r.finish(ctx, o)
}

// journaled gives what the journal has, where the step in flight is one that runs calls of an
// earlier one; nil where it is not. Where the run was not begun here, it takes the state of
// the session up, which the commit of such a step needs.
func (r *runner) journaled(ctx context.Context) *loop.Journal {
	if found := r.claim.GetJournal(); found.GetPlan() != nil { // nobody has looked at it
		_, err := r.begunState()
		if err == nil {
			_, err = r.journal()
		}
		if err != nil {
			r.log.ErrorContext(ctx, "the journal cannot be read, and the run ends without", "error", err)
		}
		r.claim.Journal = nil
	}
	return r.drain.journal()
}
