package worker

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
)

// recordPlan makes the plan durable.
func (r *runner) recordPlan(ctx context.Context, e loop.RecordPlan) error {
	cuttable, end := r.halt.within(ctx)
	defer end()
	if !r.drains(e.Plan) {
		r.onMessages(cuttable, e.Step, loop.Said(e.Plan))
	}
	if cuttable.Err() != nil {
		return context.Cause(cuttable)
	}
	request := &statev1.RecordPlanRequest{
		Run: r.ref, Step: int32(e.Step), Plan: fromMessage(e.Plan, r.ref.GetRunId(), e.Step), Usage: r.report(ctx),
		Ops: fromOps(r.writes.ofPlan()),
	}
	record := func(ctx context.Context) (*statev1.RecordPlanResponse, error) {
		return r.worker.peers.Work.RecordPlan(ctx, request)
	}
	_, err := carry(ctx, r, record)
	if unwritable(err) && len(request.GetOps()) > 0 {
		r.log.WarnContext(ctx, "what hooks have written before the reply is dropped: it cannot be kept", "step", e.Step, "error", err)
		r.writes.asked, request.Ops = nil, nil
		_, err = carry(ctx, r, record)
	}
	if err != nil {
		return fmt.Errorf("record the plan of step %d: %w", e.Step, err)
	}
	r.writes.planned = true
	r.kept.begin(e.Plan)
	r.worker.passed(ctx, PointPlanRecorded)
	r.planner.Recorded()
	return nil
}

// unwritable reports whether the state service refuses writes to the state.
func unwritable(err error) bool {
	reason := fault.ReasonOf(err)
	return reason == reasonStateSizeExceeded || reason == reasonStateInvalid
}

// commit makes the step durable and shows it; with an outcome it ends the run.
func (r *runner) commit(ctx context.Context, e loop.Commit) error {
	if err := r.commitBounded(ctx, e); err != nil {
		return err
	}
	r.planner.Committed()
	return nil
}

// commitBounded shows what is left of the step and commits it. After a stop, neither hooks
// nor the stream tier hold that up for long. In a step that was cut those
// writes of hooks count that were recorded with the plan. Where the state would be too large
// with them, none counts, and readers are shown the state without them.
func (r *runner) commitBounded(ctx context.Context, e loop.Commit) error {
	bounded, end := r.halt.outlasting(ctx)
	defer end()
	for _, found := range r.writes.take(e.Messages) {
		if err := r.showDecided(bounded, e, found.Result.CallID); err != nil {
			return err
		}
		if err := r.showEnd(bounded, int32(e.Step), loop.Ended{Result: found.Result, Ops: found.Ops}); err != nil {
			return err
		}
	}
	r.onMessages(bounded, e.Step, e.Messages...)
	if e.Cut {
		r.writes.cut()
	}
	if err := r.showStep(bounded, e); err != nil {
		return err
	}
	err := r.commitStep(ctx, e)
	if fault.ReasonOf(err) != reasonStateSizeExceeded || !r.writes.drop() {
		return err
	}
	r.log.WarnContext(ctx, "the writes of hooks are dropped: the custom state is too large with them", "step", e.Step, "error", err)
	if err := r.showMerged(bounded, int32(e.Step)); err != nil {
		return err
	}
	return r.commitStep(ctx, e)
}

// showStep shows what of the step was not shown yet: a reply that was taken back, calls and
// ends that come from the runtime, what the state becomes, what is asked of a human, and the
// output.
func (r *runner) showStep(ctx context.Context, e loop.Commit) error {
	step := int32(e.Step)
	for _, m := range e.Messages {
		if err := r.showReplied(ctx, m); err != nil {
			return err
		}
		for _, c := range m.Calls() {
			if err := r.showStart(ctx, step, c); err != nil {
				return err
			}
		}
		for _, result := range m.Results() {
			if err := r.showDecided(ctx, e, result.CallID); err != nil {
				return err
			}
			if !r.once.first(ended, result.CallID) {
				continue
			}
			if err := r.show(ctx, step, toolEnd(result)); err != nil {
				return err
			}
		}
	}
	if err := r.showMerged(ctx, step); err != nil {
		return err
	}
	for _, c := range e.Suspend {
		if !c.Approval || !r.once.first(asked, c.ID) {
			continue
		}
		if err := r.show(ctx, step, approvalRequest(c)); err != nil {
			return err
		}
	}
	if e.Outcome != nil && e.Outcome.Structured {
		return r.show(ctx, step, output(*e.Outcome))
	}
	return nil
}

// showReplied shows the message of a reply that readers have not seen. Where they have seen
// another one, the commit sends them to the state service.
func (r *runner) showReplied(ctx context.Context, m agent.Message) error {
	switch {
	case m.Role != agent.RoleAssistant, r.drains(m):
		return nil
	case !r.reply.begun:
		return r.showPlan(ctx, m)
	case !r.reply.matches(m):
		r.publisher.Differs()
	}
	return nil
}

// showDecided shows how the approval of a call whose result the commit carries was decided.
func (r *runner) showDecided(ctx context.Context, e loop.Commit, callID string) error {
	if d, ok := e.Decisions[callID]; ok {
		return r.showDecision(ctx, int32(e.Step), callID, &d)
	}
	return nil
}

// commitStep commits the step. Readers learn of that, and of the end of the run, behind it.
func (r *runner) commitStep(ctx context.Context, e loop.Commit) error {
	request := r.commitRequest(ctx, e)
	if r.halt.requested() {
		r.worker.passed(ctx, PointStopKept)
	}
	r.worker.passed(ctx, PointCommitBegins)
	answer, err := carry(ctx, r, func(ctx context.Context) (*statev1.CommitStepResponse, error) {
		return r.worker.peers.Work.CommitStep(ctx, request)
	})
	if err != nil {
		return fmt.Errorf("commit step %d: %w", e.Step, err)
	}
	r.worker.passed(ctx, PointCommitted)
	for _, warning := range answer.GetWarnings() {
		r.log.WarnContext(ctx, "merging the state writes", "step", e.Step, "warning", warning)
	}
	r.step = int32(e.Step)
	r.kept.end()
	r.writes.commit()
	r.once.forget()
	r.emitted.reset()
	r.reply = shownReply{}
	if stop, ok := toStop(answer.GetStop()); ok && e.Outcome == nil {
		r.halt.request(stop)
	}
	var end *publisher.Ended
	if e.Outcome != nil {
		r.worker.passed(ctx, PointFinished)
		ended := r.end(*e.Outcome)
		end = &ended
	}
	r.publisher.Commit(r.stamp(r.step, stepCommitted(answer.GetCheckpointId())), end)
	if e.Outcome != nil {
		r.ended(ctx, *e.Outcome)
	}
	return nil
}

// commitRequest is the commit, with what readers saw of the step.
func (r *runner) commitRequest(ctx context.Context, e loop.Commit) *statev1.CommitStepRequest {
	request := &statev1.CommitStepRequest{
		Run: r.ref, Step: int32(e.Step), Usage: r.report(ctx), Ops: fromOps(r.writes.own()), CoversPlanOps: true, ToldCalls: e.Told,
		Record: r.publisher.Record(),
	}
	for _, m := range e.Messages {
		message := fromMessage(m, r.ref.GetRunId(), e.Step)
		decide(message, e.Decisions)
		request.Messages = append(request.Messages, message)
	}
	for _, c := range e.Consumed {
		request.ConsumedCalls = append(request.ConsumedCalls, &statev1.ConsumedCall{ToolCallId: c.CallID, Revision: int32(c.Revision)})
	}
	if e.Outcome == nil {
		return request
	}
	request.Outcome = fromOutcome(*e.Outcome, r.usage)
	if suspends(*e.Outcome) {
		r.suspend(request, e)
	}
	return request
}

// suspend adds what the session waits for from now on.
func (r *runner) suspend(request *statev1.CommitStepRequest, e loop.Commit) {
	now := r.worker.peers.Now()
	stepID := r.stepID(e)
	for _, c := range e.Suspend {
		open := &statev1.Call{
			ToolCallId: c.ID, ToolName: clean(c.Name), StepId: stepID, Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL, Input: clean(string(c.Arguments)),
		}
		if c.Approval {
			open.Kind, open.ApprovalId = statev1.CallKind_CALL_KIND_APPROVAL, c.ApprovalID
		}
		if c.AnswerWithin > 0 {
			open.DeadlineAt = now.Add(c.AnswerWithin).UnixMilli()
		}
		request.Calls = append(request.Calls, open)
	}
	request.Suspension = &statev1.Suspension{StepId: stepID, TraceId: r.traceID, RootSpanId: r.spanID}
}

// stepID names the step whose calls are open: by the message with the calls, and where
// they are of an earlier step, as that was named.
func (r *runner) stepID(e loop.Commit) string {
	if len(e.Suspend) == 0 {
		for _, c := range r.claim.GetCalls() {
			if c.GetAnswer() == nil && c.GetStepId() != "" {
				return c.GetStepId()
			}
		}
	}
	for _, m := range e.Messages {
		if m.Role == agent.RoleAssistant {
			return m.ID
		}
	}
	return fmt.Sprintf("step-%d", e.Step)
}

// finish ends the run outside of a step. Whatever readers have seen of one is void.
func (r *runner) finish(ctx context.Context, o loop.Outcome) error {
	if r.halt.requested() {
		r.worker.passed(ctx, PointStopKept)
	}
	r.worker.passed(ctx, PointFinishing)
	request := &statev1.FinishRunRequest{Run: r.ref, Outcome: fromOutcome(o, r.usage)}
	err := r.withUsage(ctx, r.report(ctx), func(usage []*statev1.UsageEntry) error {
		request.Usage = usage
		_, err := carry(ctx, r, func(ctx context.Context) (*statev1.FinishRunResponse, error) {
			return r.worker.peers.Work.FinishRun(ctx, request)
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("finish the run: %w", err)
	}
	r.worker.passed(ctx, PointFinished)
	r.publisher.End(r.end(o))
	r.ended(ctx, o)
	return nil
}
