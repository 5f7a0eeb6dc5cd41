package gatewaytest

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// ending is how a run ends.
type ending struct {
	outcome  *statev1.Outcome
	calls    []*statev1.Call
	chunk    *eventv1.Chunk
	terminal *streamv2.Terminal
}

// Complete commits the step in flight, with the messages, and ends the run.
func (r *Run) Complete(messages ...*eventv1.Message) {
	r.t.Helper()
	r.end(&ending{
		outcome: &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED, Output: `"done"`},
		chunk:   Completed(), terminal: ended(streamv2.EndStatus_END_STATUS_COMPLETED, `"done"`),
	}, messages)
}

// Interrupt is Complete for an interrupted run. It requests the stop if no client has.
func (r *Run) Interrupt(messages ...*eventv1.Message) {
	r.t.Helper()
	r.requestStop()
	r.end(interrupted(), messages)
}

// InterruptOutside is Interrupt outside a step: the step in flight is not stored.
func (r *Run) InterruptOutside() {
	r.t.Helper()
	r.requestStop()
	r.Retry()
	e := interrupted()
	e.terminal.RunId = r.GetRunId()
	r.endOutside(e)
}

func interrupted() *ending {
	return &ending{
		outcome: &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_INTERRUPTED},
		chunk:   Interrupted(), terminal: ended(streamv2.EndStatus_END_STATUS_INTERRUPTED, ""),
	}
}

func (r *Run) requestStop() {
	r.t.Helper()
	if r.world.State.Newest(r.tenant, r.GetSessionId()).GetStop() == nil {
		_, err := r.world.State.runs.RequestStop(context.Background(), &statev1.RequestStopRequest{
			Tenant: r.tenant, SessionId: r.GetSessionId(), RunId: r.GetRunId(), Kind: statev1.StopKind_STOP_KIND_INTERRUPT, Reason: "enough",
		})
		r.must(err)
	}
}

// Suspend is Complete for a run that leaves calls open. If all are of sub-agents or for callbacks, the run awaits those.
func (r *Run) Suspend(calls []*statev1.Call, messages ...*eventv1.Message) {
	r.t.Helper()
	status := statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN
	for _, c := range calls {
		if c.GetKind() != statev1.CallKind_CALL_KIND_SUB_AGENT && c.GetKind() != statev1.CallKind_CALL_KIND_CALLBACK {
			status = statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL
		}
	}
	r.end(&ending{
		outcome: &statev1.Outcome{Status: status},
		calls:   calls, chunk: Suspended(), terminal: ended(streamv2.EndStatus_END_STATUS_PAUSED, ""),
	}, messages)
}

// Fail commits the messages and ends the run with a failure. Without messages it ends outside a
// step: the step in flight is not stored.
func (r *Run) Fail(sentence, code string, messages ...*eventv1.Message) {
	r.t.Helper()
	r.end(&ending{
		outcome: &statev1.Outcome{
			Status: statev1.RunStatus_RUN_STATUS_FAILED, Failure: &statev1.Failure{Error: sentence, Code: code, Detail: "internals"},
		},
		chunk:    &eventv1.Chunk{Event: &eventv1.Chunk_Error{Error: &eventv1.Error{Error: sentence, Code: code}}},
		terminal: &streamv2.Terminal{Outcome: &streamv2.Terminal_Fail{Fail: &streamv2.Fail{Error: sentence, Code: code}}},
	}, messages)
}

func ended(status streamv2.EndStatus, output string) *streamv2.Terminal {
	return &streamv2.Terminal{Outcome: &streamv2.Terminal_End{End: &streamv2.End{Status: status, Output: output}}}
}

// end ends the run: with the step in flight if it was shown and is stored, otherwise outside a
// step. A suspension always comes with a step.
func (r *Run) end(e *ending, messages []*eventv1.Message) {
	r.t.Helper()
	e.terminal.RunId = r.GetRunId()
	if r.ending != nil && e.outcome.GetFailure() == nil {
		e.chunk = r.ending
	}
	e.outcome.FinishReason, e.outcome.Usage = e.chunk.GetRunCompleted().GetFinishReason(), e.chunk.GetRunCompleted().GetUsage()
	suspends := len(e.calls) > 0
	switch {
	case len(r.now.chunks) > 0 && (e.outcome.GetFailure() == nil || len(messages) > 0), suspends:
		r.commitStep(e, messages)
	default:
		r.Commit(messages...)
		r.endOutside(e)
	}
}

// commitStep commits the step in flight, and ends the run with it if e is set. Without messages the
// step has those of its chunks.
func (r *Run) commitStep(e *ending, messages []*eventv1.Message) {
	r.t.Helper()
	step := storedOf(r.now.chunks)
	given := append(r.messages, messages...)
	if r.stored {
		given = slices.DeleteFunc(given, func(m *eventv1.Message) bool { return m.GetStep() < r.now.step })
	}
	if len(given) > 0 {
		step.Messages = given
	}
	last := int64(0)
	if r.now.shown() {
		last = r.now.last()
	}
	r.messages, r.stored = nil, r.stored || len(r.now.chunks) > 0
	r.store(&statev1.CommitStepRequest{Messages: step.GetMessages(), Record: step.GetRecord()}, last, e)
}

// store commits the step in flight. The log has its chunks up to last, 0 for none.
func (r *Run) store(request *statev1.CommitStepRequest, last int64, e *ending) {
	r.t.Helper()
	step := r.now.step
	request.Run, request.Step = r.ref(), step
	for i, m := range request.GetMessages() {
		request.Messages[i] = proto.CloneOf(m)
		request.Messages[i].Step = step
		if m.GetId() == "" {
			request.Messages[i].Id = r.messageID(i)
		}
	}
	r.consume(request)
	if e != nil {
		request.Outcome = e.outcome
		for _, c := range e.calls {
			request.Calls = append(request.Calls, &statev1.Call{
				ToolCallId: c.GetToolCallId(), StepId: fmt.Sprint("step-", step), ToolName: c.GetToolName(), Kind: c.GetKind(),
				ApprovalId: c.GetApprovalId(), Approvers: c.GetApprovers(), Input: c.GetInput(), DeadlineAt: c.GetDeadlineAt(),
			})
		}
		if len(e.calls) > 0 {
			request.Suspension = &statev1.Suspension{StepId: fmt.Sprint("step-", step)}
		}
	}
	answer, err := r.world.executor.work.CommitStep(context.Background(), request)
	r.must(err)
	r.checkpoints = append(r.checkpoints, answer.GetCheckpointId())
	b := &streamv2.Boundary{Last: last, StepCommitted: r.stamp(step, &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{
		StepCommitted: &eventv1.StepCommitted{CheckpointId: answer.GetCheckpointId()},
	}})}
	at := position.Committed(step)
	if e != nil {
		at = position.Ended(step)
		b.RunEnded, b.End = r.stamp(step, e.chunk), e.terminal
	}
	r.bound(at, b)
	r.committed = at
	r.claims = 0
	r.begin(step + 1)
}

func (r *Run) messageID(i int) string {
	return fmt.Sprintf("stored-%s-%d-%d", r.GetRunId(), r.now.step, i)
}

// consume consumes the answers that have their results in the step.
func (r *Run) consume(request *statev1.CommitStepRequest) {
	results := map[string]bool{}
	for _, m := range request.GetMessages() {
		for _, p := range m.GetParts() {
			results[p.GetToolResult().GetToolCallId()] = true
		}
	}
	r.calls = slices.DeleteFunc(r.calls, func(c *statev1.Call) bool {
		if results[c.GetToolCallId()] {
			request.ConsumedCalls = append(request.ConsumedCalls, &statev1.ConsumedCall{ToolCallId: c.GetToolCallId(), Revision: c.GetRevision()})
		}
		return results[c.GetToolCallId()]
	})
}

// bound appends a boundary.
func (r *Run) bound(at int64, b *streamv2.Boundary) {
	r.t.Helper()
	if r.beforeBoundary != nil {
		r.beforeBoundary()
	}
	if r.partial {
		b.Last = 0
	}
	if !r.silent {
		r.append(&streamv2.Record{Sequence: at, Boundary: b}, at)
	}
}

// endOutside ends the run outside of a step.
func (r *Run) endOutside(e *ending) {
	r.t.Helper()
	_, err := r.world.executor.work.FinishRun(context.Background(), &statev1.FinishRunRequest{Run: r.ref(), Outcome: e.outcome})
	r.must(err)
	at := position.OutsideStep(r.now.step, r.claims)
	last := r.committed
	if r.now.shown() {
		last = r.now.last()
	}
	r.bound(at, &streamv2.Boundary{Last: last, RunEnded: r.stamp(r.now.step-1, e.chunk), End: e.terminal})
}

// End returns the position of the end of the run.
func (r *Run) End() int64 {
	r.t.Helper()
	got, err := r.world.State.runs.GetRun(
		context.Background(),
		&statev1.GetRunRequest{Tenant: r.tenant, SessionId: r.GetSessionId(), RunId: r.GetRunId()},
	)
	r.must(err)
	return got.GetRun().GetEndPosition()
}
