package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// kept is what the journal has of the step in flight. The zero value has no plan. Safe for
// concurrent use.
type kept struct {
	mu      sync.Mutex
	planned bool
	plan    agent.Message
	results []loop.Recorded
}

func (k *kept) begin(plan agent.Message, results ...loop.Recorded) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.planned, k.plan, k.results = true, plan, slices.Clone(results)
}

func (k *kept) record(result loop.Recorded) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.planned {
		k.results = append(k.results, result)
	}
}

// end is for a step that is committed.
func (k *kept) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.planned, k.plan, k.results = false, agent.Message{}, nil
}

// journal gives what there is; nil without a plan.
func (k *kept) journal() *loop.Journal {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.planned {
		return nil
	}
	return &loop.Journal{Plan: k.plan, Results: slices.Clone(k.results)}
}

// quit ends the run, whatever it is at. Where the journal has a plan, what is known of its calls
// is committed with the end: it may have taken effect, and nobody would know.
func (r *runner) quit(ctx context.Context, o loop.Outcome) error {
	journal := r.journaled(ctx)
	r.planner = loop.Quit(loop.Start{
		Run: r.named(), SessionSteps: int(r.step), Calls: toAsked(r.claim.GetCalls()), Journal: journal,
	}, o)
	shown := r.opened
	if err := r.open(ctx); err != nil {
		return err
	}
	if journal != nil {
		if shown { // maybe more, or other things, than the journal has
			r.takeBack()
			r.writes.again(journal)
		}
		if err := r.showPlan(ctx, journal.Plan); err != nil {
			return err
		}
	}
	commit, ok := r.planner.Next().(loop.Commit)
	if !ok {
		return r.finish(ctx, o)
	}
	err := r.commitBounded(ctx, commit)
	if err == nil || r.over(ctx, err) {
		return err
	}
	r.log.ErrorContext(ctx, "what is known of the calls of the step cannot be kept, and the run ends without", "error", err)
	return r.finish(ctx, o)
}

// journaled gives what the journal has of the step in flight; nil where that is no plan. Where
// the run was not begun here, it takes the state of the session up, which the commit needs.
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
	return r.kept.journal()
}
