package worker

import (
	"cmp"
	"context"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// commit shows the rest of the step to readers and makes the step durable. With an outcome it ends the run.
// After a stop, hooks and the stream tier delay the commit only shortly.
//
// If a stop has cut the step, only the hook writes recorded with the plan count. If the state would be too large
// with the writes of hooks, none of them counts, and readers see the state without them.
func (r *runner) commit(ctx context.Context, e loop.Commit) error {
	bounded, end := r.stopper.withGrace(ctx)
	defer end()
	for _, found := range r.writes.takeRecovered(e.Messages) {
		if err := r.view.showCommittedDecision(bounded, e, found.Result.CallID); err != nil {
			return err
		}
		if err := r.view.showEnd(bounded, int32(e.Step), loop.Ended{Result: found.Result, Ops: found.Ops}); err != nil {
			return err
		}
	}
	r.hooks.onMessages(bounded, e.Step, e.Messages...)
	if e.Cut {
		r.writes.cutStep()
	}
	if err := r.view.showRest(bounded, e, r.planner, r.writes); err != nil {
		return err
	}
	err := r.commitStep(ctx, e)
	if fault.ReasonOf(err) == reasonStateSizeExceeded && r.writes.drop() {
		r.log.WarnContext(ctx, "the writes of hooks are dropped: the custom state is too large with them", "step", e.Step, "error", err)
		if err := r.view.showState(bounded, int32(e.Step), r.writes); err != nil {
			return err
		}
		err = r.commitStep(ctx, e)
	}
	if err != nil {
		return err
	}
	r.planner.Committed()
	return nil
}

// commitStep commits the step. Then it shows the commit, and the end of the run if it has ended.
func (r *runner) commitStep(ctx context.Context, e loop.Commit) error {
	if r.stopper.requested() {
		r.peers.Passed(ctx, PointStopKept)
	}
	r.peers.Passed(ctx, PointCommitBegins)
	if err := r.view.publisher.Confirm(ctx); err != nil {
		return err
	}
	answer, err := r.recorder.commit(ctx, e, r.writes.forCommit(), r.view.publisher.Record())
	if err != nil {
		return err
	}
	r.peers.Passed(ctx, PointCommitted)
	r.step = int32(e.Step)
	now := r.peers.Now()
	r.meters.stepped(ctx, r.claimed.run.GetAgentType(), now.Sub(r.stepBegan))
	r.stepBegan = now
	r.writes.commit()
	r.hooks.messaged.reset()
	if stop, ok := toStop(answer.GetStop()); ok && e.Outcome == nil {
		r.stopper.request(stop)
	}
	if e.Outcome != nil {
		r.peers.Passed(ctx, PointFinished)
	}
	r.view.showCommitted(r.step, answer.GetCheckpointId(), e.Outcome, r.usage.total, answer.GetCommittedAt())
	if e.Outcome != nil {
		r.logFailure(ctx, *e.Outcome)
		r.hooks.afterRun(ctx, *e.Outcome, r.step)
	}
	return nil
}

// finish ends the run outside of a step. It voids the step in flight for readers.
func (r *runner) finish(ctx context.Context, o loop.Outcome) error {
	if r.stopper.requested() {
		r.peers.Passed(ctx, PointStopKept)
	}
	r.peers.Passed(ctx, PointFinishing)
	if err := r.view.publisher.Confirm(ctx); err != nil {
		return err
	}
	at, err := r.recorder.finish(ctx, o)
	if err != nil {
		return err
	}
	r.peers.Passed(ctx, PointFinished)
	r.view.showFinished(r.step, o, r.usage.total, at)
	r.logFailure(ctx, o)
	r.hooks.afterRun(ctx, o, r.step)
	return nil
}

// maxLogged bounds the text of a failure in the log, in bytes. A provider may send a whole page.
const maxLogged = 2 << 10

// logFailure logs the end of a failed run, once: only the executor whose end of the run was stored calls it. The log
// has the cause, and nothing of the conversation.
func (r *runner) logFailure(ctx context.Context, o loop.Outcome) {
	if o.Failure == nil {
		return
	}
	text := cmp.Or(o.Failure.Detail, o.Failure.Error)
	r.log.WarnContext(ctx, "the run has failed", "agent", r.claimed.run.GetAgentType(), "code", o.Failure.Code,
		"error", strings.ToValidUTF8(text[:min(len(text), maxLogged)], ""))
}
