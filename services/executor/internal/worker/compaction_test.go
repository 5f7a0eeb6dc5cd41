package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestTheTextOfANativeCompletionIsNotShownToReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := define("demo", modelFunc(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			if r.Output != nil {
				sendText(say, `{"completion":{"tool":"`+agent.FinishTool+`",`, `"input":{"n":1}}}`)
				return nil
			}
			sendText(say, "thinking aloud")
			return nil
		}))
		a.OutputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
		a.Completion = agent.CompletionNative
		p.agents["demo"] = a
		p.open()
		run := p.end(p.startRun("s", "demo", "hi"))
		if run.GetOutput() != `{"n":1}` {
			t.Errorf("run = %v, want its output", run)
		}
		if got := joinedText(p.records("s")); strings.Contains(got, "completion") {
			t.Errorf("text = %q, want no form in it", got)
		}
	})
}

func TestASummaryIsMadeOnceAndItsTokensCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := define("demo", modelFunc(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			switch {
			case r.Choice == model.ChoiceNone:
				sendText(say, "in short")
			case endsWithResults(r):
				sendText(say, "done")
			default:
				sendCalls(say, "count", `{}`)
			}
			return nil
		}), p.tool("count", agent.RetrySafe, nil))
		a.Context = agent.ContextPolicy{MaxTokens: 25, KeepTokens: 10, Compaction: agent.CompactSummary, Count: func(agent.Message) int { return 10 }}
		p.agents["demo"] = a
		p.open()
		for _, words := range []string{"one", "two", "three"} {
			if run := p.end(p.startRun("s", "demo", words)); run.GetStatus() != completed {
				t.Fatalf("run = %v", run)
			}
		}
		var summaries int
		for _, line := range p.conversation() {
			if strings.HasPrefix(line, "context:") && strings.HasSuffix(line, "in short") {
				summaries++
			}
		}
		if summaries == 0 || strings.Contains(joinedText(p.records("s")), "in short") {
			t.Errorf("%d summaries in %q, shown %q; want some, and none shown", summaries, p.conversation(), joinedText(p.records("s")))
		}
	})
}

func TestASummaryThatItsProviderHasEndedWithAnErrorIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := define("demo", modelFunc(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			switch {
			case r.Choice == model.ChoiceNone:
				say(model.TextDelta{Text: "in sh"})
				say(model.Finish{Reason: model.FinishError})
			case endsWithResults(r):
				sendText(say, "done")
			default:
				sendCalls(say, "count", `{}`)
			}
			return nil
		}), p.tool("count", agent.RetrySafe, nil))
		a.Context = agent.ContextPolicy{MaxTokens: 25, KeepTokens: 10, Compaction: agent.CompactSummary, Count: func(agent.Message) int { return 10 }}
		p.agents["demo"] = a
		p.open()
		for _, words := range []string{"one", "two"} {
			if run := p.end(p.startRun("s", "demo", words)); run.GetStatus() != completed {
				t.Fatalf("run = %v", run)
			}
		}
		if slices.ContainsFunc(p.conversation(), func(line string) bool { return strings.HasPrefix(line, "context:") }) {
			t.Errorf("the conversation is %q, want no summary in it", p.conversation())
		}
	})
}
