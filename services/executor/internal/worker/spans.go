package worker

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// The spans follow the semantic conventions for generative AI. They have no contents of messages.
//
// Sources: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-agent-spans/,
// https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/

// The values of gen_ai.operation.name.
const (
	invokeAgent = "invoke_agent"
	chat        = "chat"
	executeTool = "execute_tool"
)

// startRunSpan begins the span of the part of a run that this executor executes.
func startRunSpan(ctx context.Context, tracer trace.Tracer, c claimedRun) (context.Context, trace.Span) {
	agentType := c.run.GetAgentType()
	ctx, span := tracer.Start(ctx, invokeAgent+" "+agentType)
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("gen_ai.operation.name", invokeAgent),
			attribute.String("gen_ai.agent.name", agentType),
			attribute.String("gen_ai.conversation.id", c.ref.GetSessionId()),
			attribute.String("run.id", c.ref.GetRunId()),
			attribute.Int("turn", int(c.run.GetTurn())),
			attribute.Int("attempt", int(c.run.GetAttempt())),
		)
	}
	return ctx, span
}

// splitModel splits the name of a model, provider/name.
func splitModel(name string) (provider, of string) {
	provider, of, found := strings.Cut(name, "/")
	if !found {
		return "", name
	}
	return provider, of
}

// startModelSpan begins the span of a model call.
func startModelSpan(ctx context.Context, tracer trace.Tracer, session string, c modelRequest) (context.Context, trace.Span) {
	provider, of := splitModel(c.model)
	ctx, span := tracer.Start(ctx, chat+" "+of, trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("gen_ai.operation.name", chat),
			attribute.String("gen_ai.provider.name", provider),
			attribute.String("gen_ai.request.model", of),
			attribute.String("gen_ai.conversation.id", session),
			attribute.Int("step", c.step),
			attribute.Int("attempt", c.attempt),
		)
	}
	return ctx, span
}

func endModelSpan(span trace.Span, reply *loop.Reply, err error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	usage := reply.Usage()
	span.SetAttributes(
		attribute.Int64("gen_ai.usage.input_tokens", usage.PromptTokens),
		attribute.Int64("gen_ai.usage.output_tokens", usage.CompletionTokens),
	)
	if reason := reply.FinishReason(); reason != "" {
		span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{string(reason)}))
	}
	if err != nil {
		span.SetAttributes(attribute.String("error.type", errorType(err)))
		span.SetStatus(codes.Error, errorType(err)) // the text of a provider may repeat a message
	}
}

// startToolSpan begins the span of a tool call.
func startToolSpan(ctx context.Context, tracer trace.Tracer, session string, c loop.Call) (context.Context, trace.Span) {
	ctx, span := tracer.Start(ctx, executeTool+" "+c.Name)
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("gen_ai.operation.name", executeTool),
			attribute.String("gen_ai.tool.name", c.Name),
			attribute.String("gen_ai.tool.call.id", c.ID),
			attribute.String("gen_ai.tool.type", "function"),
			attribute.String("gen_ai.conversation.id", session),
		)
	}
	return ctx, span
}

// endToolSpan ends the span of a tool call with the outcome of the call.
func endToolSpan(span trace.Span, o outcome) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("outcome", o.became()))
	if o.became() == toolFailed {
		span.SetAttributes(attribute.String("error.type", "_OTHER"))
		span.SetStatus(codes.Error, "the tool has failed")
	}
}
