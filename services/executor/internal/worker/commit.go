package worker

import (
	"cmp"
	"context"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// commit shows the rest of the step to readers and makes the step durable. With an outcome it ends the run.
// After a stop, hooks and the stream tier delay the commit only shortly. If a stop has interrupted the step, only the hook writes
// recorded with the plan count.
func (r *runner) commit(ctx context.Context, e loop.Commit) error {
	bounded, end := r.stopper.withGrace(ctx)
	defer end()
	r.writes.takeRecovered(e.Messages)
	r.hooks.onMessages(bounded, e.Step, e.Messages...)
	r.hooks.aroundSubAgents(bounded, e, r.recorder.subAgents)
	if e.Incomplete {
		r.writes.drop(true)
	}
	request := r.recorder.commitRequest(ctx, e)
	if err := r.view.showRest(bounded, request, e, r.planner, r.writes); err != nil {
		return err
	}
	if err := r.commitStep(ctx, request, e.Outcome); err != nil {
		return err
	}
	r.planner.Committed()
	return nil
}

// commitStep commits the step of the request, whose chunks readers have. Then it shows the commit, and the end of the
// run if it has ended: o is its outcome, nil for none. If the state would be too large with the writes of hooks, none of
// them counts, and readers see the state without them.
func (r *runner) commitStep(ctx context.Context, request *statev1.CommitStepRequest, o *loop.Outcome) error {
	var answer *statev1.CommitStepResponse
	for {
		if err := r.beforeEnd(ctx, PointCommitBegins); err != nil {
			return err
		}
		request.Ops = fromOps(r.writes.forCommit())
		request.Record = r.view.publisher.Record()
		var err error
		answer, err = r.recorder.commit(ctx, request)
		if err == nil {
			break
		}
		if fault.ReasonOf(err) != reasonStateSizeExceeded || !r.writes.drop(false) {
			return err
		}
		r.log.WarnContext(ctx, "the writes of hooks are dropped: the custom state is too large with them",
			"step", request.GetStep(), "error", err)
		bounded, end := r.stopper.withGrace(ctx)
		err = r.view.showState(bounded, request.GetStep(), r.writes)
		end()
		if err != nil {
			return err
		}
	}
	r.passed(ctx, PointCommitted)
	r.step = request.GetStep()
	now := r.worker.peers.Now()
	r.worker.meters.stepped(ctx, r.claimed.run.GetAgentType(), now.Sub(r.stepTime))
	r.stepTime = now
	r.writes.commit()
	r.hooks.messaged.reset()
	r.tools.rows.Store(0)
	if o != nil {
		showEnd(ctx, *o, len(request.GetCalls()))
		r.passed(ctx, PointFinished)
	} else if stop, ok := toStop(answer.GetStop()); ok {
		r.stopper.request(stop)
	}
	r.view.showCommitted(r.step, answer, o, r.usage.total)
	if o != nil {
		r.afterEnd(ctx, *o)
	}
	return nil
}

// finish ends the run outside of a step. It voids the step in flight for readers.
func (r *runner) finish(ctx context.Context, o loop.Outcome) error {
	if err := r.beforeEnd(ctx, PointFinishing); err != nil {
		return err
	}
	at, err := r.recorder.finish(ctx, o)
	if err != nil {
		return err
	}
	showEnd(ctx, o, 0)
	r.passed(ctx, PointFinished)
	r.view.showFinished(r.step, o, r.usage.total, at)
	r.afterEnd(ctx, o)
	return nil
}

// beforeEnd passes the point before a request that ends the step or the run, and waits until the log accepts the claim.
func (r *runner) beforeEnd(ctx context.Context, p Point) error {
	if r.stopper.requested() {
		r.passed(ctx, PointStopKept)
	}
	r.passed(ctx, p)
	return r.view.publisher.Confirm(ctx)
}

// afterEnd logs the failure of an ended run and starts AfterRun, both once: only the executor whose end of the run was
// stored calls it. The log has the cause, and nothing of the conversation.
func (r *runner) afterEnd(ctx context.Context, o loop.Outcome) {
	if o.Failure != nil {
		r.log.WarnContext(ctx, "the run has failed", "agent", r.claimed.run.GetAgentType(), "code", o.Failure.Code,
			"error", forLog(cmp.Or(o.Failure.Detail, o.Failure.Error)))
	}
	r.hooks.afterRun(ctx, o, r.step)
}

// maxLogged bounds the text of a failure in the log, in bytes. A provider may send a whole page.
const maxLogged = 2 << 10

// forLog returns the beginning of the text.
func forLog(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxLogged)], "") }

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
