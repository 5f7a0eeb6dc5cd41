package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// lastEnd describes the end of the session's last run as readers see it.
func (p *system) lastEnd() string {
	records := p.records("s")
	end := records[len(records)-1].GetTerminal().GetEnd()
	for _, r := range slices.Backward(records) {
		if e := r.GetChunk().GetRunCompleted(); e != nil {
			return fmt.Sprintf("%s %s, %s; end %s, %s", e.GetOutput(), e.GetFinishReason(), usageText(e.GetUsage()), end.GetOutput(), usageText(end.GetUsage()))
		}
	}
	return "nothing"
}

func usageText(u *eventv1.Usage) string {
	return fmt.Sprintf("%d+%d(%d)/%d=%d", u.GetPromptTokens(), u.GetCompletionTokens(), u.GetReasoningTokens(), u.GetCachedTokens(), u.GetTotalTokens())
}

func TestTheEndOfARunHasItsFinishReasonAndItsUsageWhereverItsExecutorDies(t *testing.T) {
	t.Parallel()
	step := func(finish model.FinishReason, events ...model.Event) func(func(model.Event) bool) {
		return func(say func(model.Event) bool) {
			for _, e := range append(events, model.Usage{PromptTokens: 10, CompletionTokens: 5, ReasoningTokens: 2, CachedTokens: 1, TotalTokens: 15}, model.Finish{Reason: finish}) {
				say(e)
			}
		}
	}
	hits := dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		p.agents["demo"] = define("demo", stepReplies(
			step(model.FinishToolCalls, model.CallStart{ID: "c1", Name: "look"}, model.CallEnd{}),
			step(model.FinishToolCalls, model.CallStart{ID: "c2", Name: "look"}, model.CallEnd{}),
			step(model.FinishLength, model.TextDelta{Text: "It was"}),
		), p.tool("look", agent.RetrySafe, nil))
		p.openMortal(c)
		run := p.end(p.startRun("s", "demo", "hi"))
		if want := `"It was" length, 30+15(6)/3=45; end "It was", 30+15(6)/3=45`; p.lastEnd() != want {
			t.Errorf("end:\n%s\nwant:\n%s", p.lastEnd(), want)
		}
		if run.GetFinishReason() != "length" || p.tokensCounted() != 45 {
			t.Errorf("run = %v, having used %d tokens; want the length and 45", run, p.tokensCounted())
		}
	}, dieBefore, dieAfter)
	if !hits["finished"] {
		t.Errorf("hit %v, want the end too", hits)
	}
}

func TestAnUnknownFinishReasonBecomesOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t, define("demo", modelFunc(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "ok"})
			say(model.Finish{Reason: model.FinishReason(strings.Repeat("because ", 100))})
			return nil
		})))
		p.open()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed || run.GetFinishReason() != "other" {
			t.Errorf("run = %v, want it completed for another reason", run)
		}
	})
}

func TestTokensOfAttemptsAndSummariesAreKeptWhereTheExecutorStops(t *testing.T) {
	t.Parallel()
	counted := model.Usage{PromptTokens: 7, CompletionTokens: 1, TotalTokens: 8}
	for name, test := range map[string]struct {
		set  func(a *catalog.Agent, calls *atomic.Int32)
		want int64
	}{
		"in the wait behind a failed attempt": {func(a *catalog.Agent, calls *atomic.Int32) {
			a.Models["fake/mind"] = modelFunc(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
				say(counted)
				if calls.Add(1) == 1 {
					return &model.Error{Code: model.CodeOverloaded, Retryable: true, RetryAfter: time.Minute}
				}
				say(model.TextDelta{Text: "ok"})
				say(model.Finish{Reason: model.FinishStop})
				return nil
			})
		}, 16},
		"behind a summary": {func(a *catalog.Agent, calls *atomic.Int32) {
			a.Context = agent.ContextPolicy{MaxTokens: 20, KeepTokens: 1, Compaction: agent.CompactSummary, Count: func(agent.Message) int { return 10 }}
			a.Models["fake/mind"] = modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
				if len(r.Tools) > 0 && len(r.Messages) == 1 { // the first step
					sendCalls(say, "nothing", `{}`)
					return nil
				}
				say(counted)
				if calls.Add(1) == 1 {
					select {
					case <-time.After(10 * time.Second): // within the drain grace
					case <-ctx.Done():
					}
				}
				say(model.TextDelta{Text: "ok"})
				say(model.Finish{Reason: model.FinishStop})
				return nil
			})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				p := newSystem(t)
				a := define("demo", stepReplies(), p.tool("nothing", agent.RetrySafe, nil))
				test.set(&a, &calls)
				a.Hooks.BeforeRun = func(_ context.Context, h *agent.HookCall) error { h.RecordUsage("seen", "run", 1); return nil }
				p.agents["demo"] = a
				p.config.DrainGrace = time.Minute
				first := p.open()
				run := p.startRun("s", "demo", "hi")
				time.Sleep(5 * time.Second)
				first.stop()
				<-first.ended
				if len(p.released(run)) != 1 {
					t.Fatal("the run was not released")
				}
				p.open()
				p.end(run)
				total := p.tokensCounted()
				if test.want > 0 && total != test.want || total < int64(calls.Load())*8 {
					t.Errorf("%d tokens are counted for %d calls", total, calls.Load())
				}
				if told := p.lastEnd(); !strings.HasSuffix(told, fmt.Sprintf("=%d", total)) {
					t.Errorf("end = %s, want %d tokens", told, total)
				}
				if got := p.counted("run"); got != 1 {
					t.Errorf("the hook has counted %v, want 1", got)
				}
			})
		})
	}
}

func TestWhatTheHookBeforeARunCountsIsKeptOnce(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply("look", `{}`), textReply("done")), p.tool("look", agent.RetrySafe, nil))
		a.Hooks.BeforeRun = func(_ context.Context, h *agent.HookCall) error { h.RecordUsage("seen", "run", 1); return nil }
		p.agents["demo"] = a
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		if got := p.counted("run"); got != 1 {
			t.Errorf("the hook has counted %v, want 1", got)
		}
	}, dieBefore, dieAfter)
}

func TestTokensThatNoReplyCanHaveAreNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t, define("demo", modelFunc(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "ok"})
			say(model.Usage{PromptTokens: 7, CompletionTokens: -1, CachedTokens: 1<<62 - 1, TotalTokens: 6})
			say(model.Finish{Reason: model.FinishStop})
			return nil
		})))
		p.open()
		p.end(p.startRun("s", "demo", "hi"))
		for _, u := range p.usage() {
			got := u.GetTokens()
			if got.GetPromptTokens() != 7 || got.GetCompletionTokens() != 0 || got.GetCachedTokens() != 0 || got.GetTotalTokens() != 6 {
				t.Errorf("counted is %v, want what can be alone: the state service refuses the step with the rest", got)
			}
		}
	})
}
