package worker

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// errModel wraps what ended a model call, to tell it from errors of the stream.
type errModel struct{ err error }

func (e errModel) Error() string { return e.err.Error() }

// callModel makes one model call and streams its reply.
func (r *runner) callModel(ctx context.Context, a Agent, e loop.CallModel) error {
	step := int32(e.Step)
	if e.Attempt > 1 {
		r.retell(true)
	}
	if err := r.tell(ctx, step, stepStarted()); err != nil {
		return err
	}
	reply := r.planner.NewReply()
	err := r.generate(ctx, a, e, reply)
	r.spent(a, reply.Usage())
	var failed errModel
	switch {
	case errors.As(err, &failed):
		r.planner.Failed(failed.err)
		return nil
	case err != nil:
		return err
	}
	r.planner.Replied(reply)
	for _, part := range reply.Calls() {
		if err := r.tell(ctx, step, toolStart(part)); err != nil {
			return err
		}
	}
	return nil
}

// generate streams the reply of one call. An errModel says that the model failed,
// any other error that the run cannot go on here.
func (r *runner) generate(ctx context.Context, a Agent, e loop.CallModel, reply *loop.Reply) (err error) {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, r.worker.config.ModelTimeout)
	defer cancel()
	ctx, span := r.worker.peers.Tracer.Start(ctx, "holdfast.llm", trace.WithAttributes(
		attribute.String("gen_ai.request.model", e.Request.Model),
		attribute.Int("step", e.Step),
		attribute.Int("attempt", e.Attempt),
	))
	defer func() { endModelSpan(span, reply, err) }()

	for event, err := range a.Engine.Generate(ctx, e.Request) {
		if err != nil {
			return r.modelError(parent, ctx, err)
		}
		events, err := reply.Add(event)
		if err != nil {
			return errModel{err}
		}
		if err := r.tellReply(parent, int32(e.Step), reply, events); err != nil {
			return err
		}
	}
	if !reply.Whole() {
		return r.modelError(parent, ctx, &model.Error{
			Code: model.CodeInvalidResponse, Retryable: true, Message: "the reply stopped before its end",
		})
	}
	return nil
}

func (r *runner) tellReply(ctx context.Context, step int32, reply *loop.Reply, events []model.Event) error {
	for _, event := range events {
		chunk := replyChunk(event, reply.CallID)
		if chunk == nil {
			continue
		}
		if err := r.tell(ctx, step, chunk); err != nil {
			return err
		}
	}
	return nil
}

// modelError says whose end it was: the run's, the time limit's or the model's.
func (r *runner) modelError(parent, limited context.Context, err error) error {
	switch {
	case parent.Err() != nil:
		return context.Cause(parent)
	case limited.Err() != nil:
		return errModel{&model.Error{
			Code: model.CodeTimeout, Retryable: true, Err: err,
			Message: fmt.Sprintf("the reply was not whole within %v", r.worker.config.ModelTimeout),
		}}
	}
	return errModel{err}
}

func endModelSpan(span trace.Span, reply *loop.Reply, err error) {
	usage := reply.Usage()
	span.SetAttributes(
		attribute.Int64("gen_ai.usage.input_tokens", usage.PromptTokens),
		attribute.Int64("gen_ai.usage.output_tokens", usage.CompletionTokens),
		attribute.String("gen_ai.response.finish_reasons", string(reply.FinishReason())),
	)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// recordPlan makes the plan durable once its chunks are in the log.
func (r *runner) recordPlan(ctx context.Context, e loop.RecordPlan) error {
	sequence, _, err := r.stand(ctx, false, nil)
	if err != nil {
		return err
	}
	_, err = call(ctx, r, func(ctx context.Context) (*statev1.RecordPlanResponse, error) {
		return r.worker.peers.Work.RecordPlan(ctx, &statev1.RecordPlanRequest{
			Run: r.ref, Step: int32(e.Step), Plan: fromMessage(e.Plan, r.ref.GetRunId(), e.Step),
			StreamSequence: sequence, Usage: r.pending,
		})
	})
	if err != nil {
		return fmt.Errorf("record the plan of step %d: %w", e.Step, err)
	}
	r.pending = nil // the journal has it
	r.planner.Recorded()
	return nil
}

// commit makes the step durable and says so; with an outcome it ends the run.
func (r *runner) commit(ctx context.Context, e loop.Commit) error {
	if err := r.commitStep(ctx, e); err != nil {
		return err
	}
	if e.Outcome != nil {
		r.finished = true
		if err := r.conclude(ctx, *e.Outcome); err != nil {
			return err
		}
	}
	r.planner.Committed()
	return nil
}

// commitStep commits the step once its chunks are in the log. What the state
// service was told to stand in the stream is not taken back before it stands in
// the tale as well.
func (r *runner) commitStep(ctx context.Context, e loop.Commit) error {
	step := int32(e.Step)
	sequence, whole, err := r.stand(ctx, false, r.pin)
	if err != nil {
		return err
	}
	defer r.unpin()
	request := &statev1.CommitStepRequest{Run: r.ref, Step: step, StreamSequence: sequence, StreamStep: step, Usage: r.pending}
	if !whole {
		request.StreamStep, request.StreamSequence = r.place()
	}
	for _, m := range e.Messages {
		request.Messages = append(request.Messages, fromMessage(m, r.ref.GetRunId(), e.Step))
	}
	if e.Outcome != nil {
		request.Outcome = fromOutcome(*e.Outcome)
	}
	answer, err := call(ctx, r, func(ctx context.Context) (*statev1.CommitStepResponse, error) {
		return r.worker.peers.Work.CommitStep(ctx, request)
	})
	if err != nil {
		return fmt.Errorf("commit step %d: %w", e.Step, err)
	}
	for _, warning := range answer.GetWarnings() {
		r.log.WarnContext(ctx, "merging the state writes", "step", e.Step, "warning", warning)
	}
	r.pending = nil
	return r.advance(ctx, untold{step, e.Messages, answer.GetCheckpointId()}, answer.GetMessageCount(), whole, sequence)
}

// finish ends the run outside of a step. The sequence stays that of the last
// commit: what was told since is not in the conversation.
func (r *runner) finish(ctx context.Context, o loop.Outcome) error {
	_, sequence := r.place()
	_, err := call(ctx, r, func(ctx context.Context) (*statev1.FinishRunResponse, error) {
		return r.worker.peers.Work.FinishRun(ctx, &statev1.FinishRunRequest{Run: r.ref, Outcome: fromOutcome(o), StreamSequence: sequence})
	})
	if err != nil {
		return fmt.Errorf("finish the run: %w", err)
	}
	r.finished = true
	return r.conclude(ctx, o)
}
