package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// The spans follow the semantic conventions for generative AI. They have contents of messages only if Config.TraceContent
// says so.
//
// Sources: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-agent-spans/,
// https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/

// The values of gen_ai.operation.name.
const (
	invokeAgent = "invoke_agent"
	chat        = "chat"
	executeTool = "execute_tool"
)

// The kinds of contents in spans.
const (
	ContentPrompts = "prompts" // system prompts, and the messages to models
	ContentReplies = "replies" // the replies of models
	ContentTools   = "tools"   // arguments and results
)

// maxTraceContent bounds a content in a span, in bytes.
const maxTraceContent = 32 << 10

// startRunSpan begins the span of the part of a run that this executor executes. It is linked with the span of the suspended
// run that it continues. metadata are the keys of the session's metadata that it shows.
func startRunSpan(ctx context.Context, tracer trace.Tracer, c claimedRun, metadata []string) (context.Context, trace.Span) {
	agentType := c.run.GetAgentType()
	var options []trace.SpanStartOption
	if suspended, ok := suspendedSpan(trace.SpanContextFromContext(ctx)); ok {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: suspended}))
	}
	ctx, span := tracer.Start(ctx, invokeAgent+" "+agentType, options...)
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("gen_ai.operation.name", invokeAgent),
			attribute.String("gen_ai.agent.name", agentType),
			attribute.String("gen_ai.conversation.id", c.ref.GetSessionId()),
			attribute.String("run.id", c.ref.GetRunId()),
			attribute.Int("turn", int(c.run.GetTurn())),
			attribute.Int("attempt", int(c.run.GetAttempt())),
			attribute.String("tenant", c.ref.GetTenant()),
			attribute.String("session.id", c.ref.GetSessionId()),
		)
		if user := c.session.GetUserId(); user != "" {
			span.SetAttributes(attribute.String("user.id", user))
		}
		if tags := c.session.GetTags(); len(tags) > 0 {
			span.SetAttributes(attribute.StringSlice("session.tags", tags), attribute.StringSlice("langfuse.trace.tags", tags))
		}
		for _, key := range metadata {
			if value, ok := c.session.GetMetadata()[key]; ok {
				span.SetAttributes(attribute.String("agent.metadata."+key, value))
			}
		}
	}
	return ctx, span
}

// suspendedSpan returns the span of the suspended run that a trace continues. The state service names it in the trace state.
func suspendedSpan(of trace.SpanContext) (trace.SpanContext, bool) {
	id, err := trace.SpanIDFromHex(of.TraceState().Get(suspendedMember))
	if err != nil {
		return trace.SpanContext{}, false
	}
	return of.WithSpanID(id), true
}

// suspendedMember is the member of the trace state that names the span of the suspended run.
const suspendedMember = "holdfast"

// showEnd shows the end of a run in its span. calls is how many calls it has left open.
func showEnd(ctx context.Context, o loop.Outcome, calls int) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("status", string(o.Status)))
	if o.CompletionReason != "" {
		span.SetAttributes(attribute.String("completion_reason", o.CompletionReason))
	}
	if isSuspended(o) {
		span.AddEvent("suspend", trace.WithAttributes(attribute.String("reason", string(o.Status)), attribute.Int("calls", calls)))
	}
	if o.Failure != nil {
		code := cmp.Or(o.Failure.Code, "_OTHER")
		span.SetAttributes(attribute.String("error.type", code))
		span.SetStatus(codes.Error, code) // the text may repeat a message
	}
}

// hookSpan is the span of a hook's run, for its attributes.
type hookSpan struct{ trace.Span }

// SetAttribute implements agent.Span.
func (s hookSpan) SetAttribute(key string, value any) {
	switch v := value.(type) {
	case bool:
		s.SetAttributes(attribute.Bool(key, v))
	case int:
		s.SetAttributes(attribute.Int(key, v))
	case int64:
		s.SetAttributes(attribute.Int64(key, v))
	case float64:
		s.SetAttributes(attribute.Float64(key, v))
	case []string:
		s.SetAttributes(attribute.StringSlice(key, v))
	default:
		s.SetAttributes(attribute.String(key, cutContent(fmt.Sprint(v))))
	}
}

// cutContent returns the beginning of a content.
func cutContent(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxTraceContent)], "")
}

// messagesContent returns messages as the conventions write them, in JSON.
func messagesContent(messages []agent.Message) string {
	type part struct {
		Type      string          `json:"type"`
		Content   string          `json:"content,omitempty"`
		ID        string          `json:"id,omitempty"`
		Name      string          `json:"name,omitempty"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		Response  json.RawMessage `json:"response,omitempty"`
	}
	type message struct {
		Role  agent.Role `json:"role"`
		Parts []part     `json:"parts"`
	}
	list := make([]message, 0, len(messages))
	for _, m := range messages {
		out := message{Role: m.Role, Parts: []part{}}
		for _, p := range m.Parts {
			switch p := p.(type) {
			case agent.Text:
				out.Parts = append(out.Parts, part{Type: "text", Content: p.Text})
			case agent.Reasoning:
				out.Parts = append(out.Parts, part{Type: "reasoning", Content: p.Text})
			case agent.ToolCall:
				out.Parts = append(out.Parts, part{Type: "tool_call", ID: p.ID, Name: p.Name, Arguments: p.Arguments})
			case agent.ToolResult:
				out.Parts = append(out.Parts, part{Type: "tool_call_response", ID: p.CallID, Response: p.Result, Content: p.Error})
			case agent.File:
				out.Parts = append(out.Parts, part{Type: "file", Name: p.Filename})
			}
		}
		list = append(list, out)
	}
	text, err := json.Marshal(list)
	if err != nil { // arguments that are no JSON
		return ""
	}
	return cutContent(string(text))
}

// splitModel splits the name of a model, provider/name.
func splitModel(name string) (provider, of string) {
	provider, of, found := strings.Cut(name, "/")
	if !found {
		return "", name
	}
	return provider, of
}

// startModelSpan begins the span of a model call. content are the kinds of contents that it shows.
func startModelSpan(ctx context.Context, tracer trace.Tracer, session string, c modelRequest, content []string,
) (context.Context, trace.Span) {
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
		if t := c.request.Temperature; t != nil {
			span.SetAttributes(attribute.Float64("gen_ai.request.temperature", *t))
		}
		if most := c.request.MaxOutputTokens; most > 0 {
			span.SetAttributes(attribute.Int("gen_ai.request.max_tokens", most))
		}
		if slices.Contains(content, ContentPrompts) {
			span.SetAttributes(
				attribute.String("gen_ai.system_instructions", cutContent(c.request.System)),
				attribute.String("gen_ai.input.messages", messagesContent(c.request.Messages)),
			)
		}
	}
	return ctx, span
}

func endModelSpan(span trace.Span, reply *loop.Reply, content []string, err error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	usage := reply.Usage()
	span.SetAttributes(
		attribute.Int64("gen_ai.usage.input_tokens", usage.PromptTokens),
		attribute.Int64("gen_ai.usage.output_tokens", usage.CompletionTokens),
	)
	if usage.CachedTokens > 0 {
		span.SetAttributes(attribute.Int64("gen_ai.usage.cached_input_tokens", usage.CachedTokens))
	}
	if usage.ReasoningTokens > 0 {
		span.SetAttributes(attribute.Int64("gen_ai.usage.reasoning_tokens", usage.ReasoningTokens))
	}
	if slices.Contains(content, ContentReplies) {
		said := []agent.Message{{Role: agent.RoleAssistant, Parts: reply.Parts()}}
		span.SetAttributes(attribute.String("gen_ai.output.messages", messagesContent(said)))
	}
	if reason := reply.FinishReason(); reason != "" {
		span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{string(reason)}))
	}
	if err != nil {
		span.SetAttributes(attribute.String("error.type", errorType(err)))
		span.SetStatus(codes.Error, errorType(err)) // the text of a provider may repeat a message
	}
}

// startToolSpan begins the span of a tool call.
func startToolSpan(ctx context.Context, tracer trace.Tracer, session string, c agent.ToolCall, content []string,
) (context.Context, trace.Span) {
	ctx, span := tracer.Start(ctx, executeTool+" "+c.Name)
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("gen_ai.operation.name", executeTool),
			attribute.String("gen_ai.tool.name", c.Name),
			attribute.String("gen_ai.tool.call.id", c.ID),
			attribute.String("gen_ai.tool.type", "function"),
			attribute.String("gen_ai.conversation.id", session),
		)
		if slices.Contains(content, ContentTools) {
			span.SetAttributes(attribute.String("gen_ai.tool.call.arguments", cutContent(string(c.Arguments))))
		}
	}
	return ctx, span
}

// endToolSpan ends the span of a tool call with the outcome of the call.
func endToolSpan(span trace.Span, o outcome, content []string) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("outcome", o.became()))
	if slices.Contains(content, ContentTools) {
		span.SetAttributes(attribute.String("gen_ai.tool.call.result", cutContent(cmp.Or(o.Result.Error, string(o.Result.Result)))))
	}
	if o.became() == toolFailed {
		span.SetAttributes(attribute.String("error.type", "_OTHER"))
		span.SetStatus(codes.Error, "the tool has failed")
	}
}
