package worker

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// errModel wraps what ended a model call, to tell it from errors of the stream.
type errModel struct{ err error }

func (e errModel) Error() string { return e.err.Error() }

// callModel makes one model call and streams its reply. A stop cuts it, and the planner
// keeps what has come.
func (r *runner) callModel(ctx context.Context, e loop.CallModel) error {
	step := int32(e.Step)
	cuttable, end := r.halt.within(ctx)
	defer end()
	r.reply = shownReply{begun: true, form: e.Request.Output != nil}
	if err := r.show(cuttable, step, stepStarted()); err != nil {
		return err
	}
	if cuttable.Err() != nil {
		return context.Cause(cuttable)
	}
	r.beforeModel(cuttable, e)
	reply := r.planner.NewReply()
	heard := &listener{reply: reply, each: func(events []model.Event) error { return r.showReply(cuttable, e, reply, events) }}
	err := r.generate(cuttable, e.Step, e.Attempt, e.Model, e.Request, heard)
	r.spent(e.Model, reply.Usage())
	r.afterModel(cuttable, e, reply, err)
	if cutByStop(cuttable) {
		end()
		r.noticeStop(ctx, reply)
		return nil
	}
	if failed, ok := errors.AsType[errModel](err); ok {
		r.planner.Failed(reply, failed.err)
		r.retry(e)
		return nil
	}
	if err != nil {
		return err
	}
	r.planner.Replied(reply)
	for _, part := range reply.Calls() {
		if err := r.showStart(cuttable, step, part); err != nil {
			return err
		}
	}
	r.worker.passed(ctx, PointReplied)
	r.retry(e)
	return nil
}

// retry takes the step back at once where its model is called again, so that a stop during
// the wait before that leaves readers with nothing that is void.
func (r *runner) retry(failed loop.CallModel) {
	switch next := r.planner.Next().(type) {
	case loop.Wait:
	case loop.CallModel:
		if next.Step != failed.Step {
			return
		}
	default:
		return
	}
	r.takeBack()
	r.once.forget()
}

// showStart shows the arguments of a call, once. Of one that is refused nothing is shown
// but its end: readers take a start for a call that runs, and may run it themselves.
func (r *runner) showStart(ctx context.Context, step int32, call agent.ToolCall) error {
	if r.planner.Refused(call.ID) || !r.once.first(started, call.ID) {
		return nil
	}
	return r.show(ctx, step, toolStart(call, r.planner.AwaitsClient(call.ID)))
}

// fate is what the planner knows of the calls of the step in flight.
func (r *runner) fate() fate {
	return fate{awaitsClient: r.planner.AwaitsClient, refused: r.planner.Refused}
}

// listener takes the events of a reply.
type listener struct {
	reply *loop.Reply
	each  func(events []model.Event) error // nil: readers see nothing of it
}

// generate streams the reply of one call. An errModel says that the model failed,
// any other error that the run cannot go on here.
func (r *runner) generate(ctx context.Context, step, attempt int, name string, request model.Request, l *listener) (err error) {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, r.worker.config.ModelTimeout)
	defer cancel()
	ctx, span := r.worker.peers.Tracer.Start(ctx, "holdfast.llm", trace.WithAttributes(
		attribute.String("gen_ai.request.model", request.Model),
		attribute.Int("step", step),
		attribute.Int("attempt", attempt),
	))
	defer func() { endModelSpan(span, l.reply, err) }()

	engine, err := r.agent.engine(name)
	if err != nil {
		return err
	}
	first := true
	err = r.worker.listen(ctx, name, engine, request, func(event model.Event, err error) error {
		if err != nil {
			return r.modelError(parent, ctx, err)
		}
		if first {
			first = false
			r.worker.passed(ctx, PointModelCalled)
		}
		events, err := l.reply.Add(event)
		if err != nil {
			return errModel{err}
		}
		if l.each == nil {
			return nil
		}
		return l.each(events)
	})
	switch {
	case errors.Is(err, errTooLong):
		return r.modelError(parent, ctx, err)
	case err != nil:
		return err
	case !l.reply.Whole():
		return r.modelError(parent, ctx, &model.Error{
			Code: model.CodeInvalidResponse, Retryable: true, Message: "the reply stopped before its end",
		})
	}
	return nil
}

// showReply shows what readers see of a reply. The text of one that was asked for as
// JSON is a form, not for them.
func (r *runner) showReply(ctx context.Context, e loop.CallModel, reply *loop.Reply, events []model.Event) error {
	for _, event := range events {
		if _, isText := event.(model.TextDelta); isText && e.Request.Output != nil {
			continue
		}
		chunk := replyChunk(event, reply)
		if chunk == nil {
			continue
		}
		r.reply.add(chunk)
		if err := r.show(ctx, int32(e.Step), chunk); err != nil {
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
