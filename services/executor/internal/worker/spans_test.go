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
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
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
			"invoke_agent demo internal Unset gen_ai.operation.name=invoke_agent gen_ai.agent.name=demo turn=1 attempt=1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
