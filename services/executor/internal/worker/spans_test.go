package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

func TestTheSpansOfARunFollowTheConventionsForGenerativeAIWithoutContents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		attempts := 0
		mind := modelFunc(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			if attempts++; attempts == 1 {
				return &model.Error{Code: model.CodeOverloaded, Retryable: true, Message: "secret cause"}
			}
			if endsWithResults(r) {
				sendText(say, "secret answer")
			} else {
				sendCalls(say, "break", `{"note":"secret note"}`)
			}
			return nil
		})
		broken := agent.Tool{Name: "break", InputSchema: anyObject, Execute: func(context.Context, *agent.Call) (any, error) {
			return nil, errors.New("secret cause")
		}}
		h := newSystem(t, define("demo", mind, broken))
		h.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
		h.open()
		h.end(h.startRun("s", "demo", "secret question"))
		synctest.Wait() // the span ends behind the run

		var got []string
		for _, span := range spans.Ended() {
			line := []string{span.Name(), span.SpanKind().String(), span.Status().Code.String()}
			for _, a := range span.Attributes() {
				if name := string(a.Key); name != "run.id" && name != "gen_ai.tool.call.id" && name != "gen_ai.conversation.id" {
					line = append(line, fmt.Sprintf("%s=%s", name, a.Value.String()))
				}
				if strings.Contains(a.Value.String(), "secret") {
					t.Errorf("the span %s has contents: %s=%s", span.Name(), a.Key, a.Value.String())
				}
			}
			if strings.Contains(span.Status().Description, "secret") {
				t.Errorf("the span %s has contents: %s", span.Name(), span.Status().Description)
			}
			got = append(got, strings.Join(line, " "))
		}
		const call = "chat mind client %s gen_ai.operation.name=chat gen_ai.provider.name=fake gen_ai.request.model=mind step=%d attempt=%d gen_ai.usage.input_tokens=%d gen_ai.usage.output_tokens=%d%s"
		want := []string{
			fmt.Sprintf(call, "Error", 1, 1, 0, 0, " error.type="+string(model.CodeOverloaded)),
			fmt.Sprintf(call, "Unset", 1, 2, 10, 5, ` gen_ai.response.finish_reasons=["tool-calls"]`),
			"execute_tool break internal Error gen_ai.operation.name=execute_tool gen_ai.tool.name=break gen_ai.tool.type=function outcome=failure error.type=_OTHER",
			fmt.Sprintf(call, "Unset", 2, 1, 10, 5, ` gen_ai.response.finish_reasons=["stop"]`),
			"invoke_agent demo internal Unset gen_ai.operation.name=invoke_agent gen_ai.agent.name=demo turn=1 attempt=1 tenant=acme session.id=s status=completed",
		}
		if !slices.Equal(got, want) {
			t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// The spans of a sub-agent are below that of its call, hooks add attributes, and contents are there if they are asked for.
func TestSpansOfTreesHooksAndContents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		root := define("demo", stepReplies(callsReply("subagent__reader", `{"message":"secret task"}`), textReply("secret answer")),
			agent.SubAgent[agent.Task]("reader", "Reads."))
		root.Hooks.OnStart = func(_ context.Context, h *agent.HookCall) { h.Span().SetAttribute("order", 7) }
		h := newSystem(t, root, define("reader", stepReplies(textReply(strings.Repeat("x", 40<<10)))))
		h.config.TraceContent = []string{worker.ContentPrompts, worker.ContentReplies, worker.ContentTools}
		h.config.TraceMetadata = []string{"plan"}
		h.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
		h.open()
		h.end(h.post(&statev1.StartRunRequest{
			SessionId: "s", AgentType: "demo", Messages: userMessages("secret question"), UserId: "u-17", Tags: []string{"vip"},
			Metadata: map[string]string{"plan": "gold", "card": "1234"},
		}))
		h.settle()
		synctest.Wait()

		byName := map[string][]sdktrace.ReadOnlySpan{}
		attributes := func(span sdktrace.ReadOnlySpan) map[string]string {
			found := map[string]string{}
			for _, a := range span.Attributes() {
				found[string(a.Key)] = a.Value.Emit()
			}
			return found
		}
		for _, span := range spans.Ended() {
			byName[span.Name()] = append(byName[span.Name()], span)
		}
		runs, calls, readers := byName["invoke_agent demo"], byName["execute_tool subagent__reader"], byName["invoke_agent reader"]
		if len(runs) != 2 || len(calls) != 1 || len(readers) != 1 {
			t.Fatalf("got %d, %d and %d spans, want two of the root's runs, one of the call, one of the sub-agent",
				len(runs), len(calls), len(readers))
		}
		if got, want := readers[0].Parent().SpanID(), calls[0].SpanContext().SpanID(); got != want {
			t.Errorf("the parent of the sub-agent's span is %v, want that of its call, %v", got, want)
		}
		if got, want := calls[0].Parent().SpanID(), runs[0].SpanContext().SpanID(); got != want {
			t.Errorf("the parent of the call is %v, want the run %v", got, want)
		}
		if links := runs[1].Links(); len(links) != 1 || links[0].SpanContext.SpanID() != runs[0].SpanContext().SpanID() {
			t.Errorf("the continuing run has the links %v, want one to the suspended run", links)
		}
		if events := runs[0].Events(); len(events) != 1 || events[0].Name != "suspend" {
			t.Errorf("the suspended run has the events %v, want its suspension", events)
		}
		run := attributes(runs[0])
		for key, want := range map[string]string{
			"user.id": "u-17", "session.tags": `["vip"]`, "agent.metadata.plan": "gold", "order": "7", "status": "suspended_awaiting_children",
		} {
			if run[key] != want {
				t.Errorf("the run has %s=%q, want %q", key, run[key], want)
			}
		}
		if _, leaked := run["agent.metadata.card"]; leaked {
			t.Error("the run shows metadata that is not on the list")
		}
		asked := attributes(byName["chat mind"][0])
		in, out := asked["gen_ai.input.messages"], asked["gen_ai.output.messages"]
		if !strings.Contains(in, "secret question") || !strings.Contains(out, "secret task") {
			t.Errorf("the model call has the contents %q and %q", in, out)
		}
		if got := attributes(calls[0])["gen_ai.tool.call.arguments"]; !strings.Contains(got, "secret task") {
			t.Errorf("the call has the arguments %q", got)
		}
		for _, span := range byName["chat mind"] {
			if n := len(attributes(span)["gen_ai.output.messages"]); n > 32<<10 {
				t.Errorf("a content has %d bytes, want at most 32 KiB", n)
			}
		}
	})
}
