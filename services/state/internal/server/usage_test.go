package server

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func tool(name string, success bool, ms int64) *eventv1.UsageEntry {
	return &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_Tool{Tool: &eventv1.ToolUsage{ToolName: name, Success: success, DurationMs: ms}}, Source: "tool"}
}

func subAgent(name string, success bool, ms int64) *eventv1.UsageEntry {
	return &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_SubAgent{SubAgent: &eventv1.ToolUsage{ToolName: name, Success: success, DurationMs: ms}}, Source: "subagent"}
}

func custom(kind, name string, value float64) *eventv1.UsageEntry {
	return &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_Custom{Custom: &eventv1.CustomUsage{Type: kind, Name: name, Value: value}}}
}

func model(name string, prompt, completion int64) *eventv1.UsageEntry {
	return &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_Tokens{Tokens: &eventv1.TokenUsage{
		Model: name, PromptTokens: prompt, CompletionTokens: completion, ReasoningTokens: 1, CachedTokens: 2, TotalTokens: prompt + completion,
	}}}
}

func (b *bench) record(sessionID, runID string, usage ...*eventv1.UsageEntry) {
	b.Helper()
	_, err := b.usage.RecordUsage(b.Context(), &statev1.RecordUsageRequest{Tenant: "acme", SessionId: sessionID, RunId: runID, Usage: usage})
	b.must(err)
}

func (b *bench) rollup(sessionID, runID string) *eventv1.UsageRollup {
	b.Helper()
	got, err := b.usage.GetUsageRollup(b.Context(), &statev1.GetUsageRollupRequest{Tenant: "acme", SessionId: sessionID, RunId: runID})
	b.must(err)
	return got.GetRollup()
}

func TestARollupAddsUpASessionAndItsFamily(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("root")
		ref := refTo(s.execute())
		b.createChild("root", "child")
		b.createChild("child", "grandchild")
		commit := step(ref, 1)
		commit.Usage = []*eventv1.UsageEntry{
			model("big", 10, 5), model("small", 1, 1), model("big", 20, 5), tool("add", true, 3), tool("add", false, 4), tool("mul", true, 1),
			subAgent("writer", true, 100), custom("money", "usd", 1.5), custom("money", "eur", 1), custom("calls", "http", 2),
		}
		first := b.now().UnixMilli()
		b.commit(commit)
		b.advance(time.Hour)
		b.record("root", "", custom("money", "usd", 0.5))
		b.record("child", "", model("big", 100, 0))
		b.record("grandchild", "", model("tiny", 1000, 0), tool("add", true, 1000))
		got := b.rollup("root", "")
		if got.GetStartedAt() < first || got.GetLastUpdatedAt() < first+3_600_000 {
			t.Errorf("got it from %d to %d", got.GetStartedAt(), got.GetLastUpdatedAt())
		}
		got.StartedAt, got.LastUpdatedAt = 0, 0
		want := &eventv1.UsageRollup{
			Tokens: &eventv1.TokenSums{PromptTokens: 31, CompletionTokens: 11, ReasoningTokens: 3, CachedTokens: 6, TotalTokens: 42},
			TokensByModel: map[string]*eventv1.TokenSums{
				"big":   {PromptTokens: 30, CompletionTokens: 10, ReasoningTokens: 2, CachedTokens: 4, TotalTokens: 40},
				"small": {PromptTokens: 1, CompletionTokens: 1, ReasoningTokens: 1, CachedTokens: 2, TotalTokens: 2},
			},
			TokensIncludingSubAgents: &eventv1.TokenSums{PromptTokens: 1131, CompletionTokens: 11, ReasoningTokens: 5, CachedTokens: 10, TotalTokens: 1142},
			TokensIncludingSubAgentsByModel: map[string]*eventv1.TokenSums{
				"big":   {PromptTokens: 130, CompletionTokens: 10, ReasoningTokens: 3, CachedTokens: 6, TotalTokens: 140},
				"small": {PromptTokens: 1, CompletionTokens: 1, ReasoningTokens: 1, CachedTokens: 2, TotalTokens: 2},
				"tiny":  {PromptTokens: 1000, ReasoningTokens: 1, CachedTokens: 2, TotalTokens: 1000},
			},
			Tools: &eventv1.CallSums{TotalCalls: 3, SuccessfulCalls: 2, FailedCalls: 1, TotalDurationMs: 8},
			ToolsByName: map[string]*eventv1.CallSums{
				"add": {TotalCalls: 2, SuccessfulCalls: 1, FailedCalls: 1, TotalDurationMs: 7}, "mul": {TotalCalls: 1, SuccessfulCalls: 1, TotalDurationMs: 1},
			},
			SubAgents:       &eventv1.CallSums{TotalCalls: 1, SuccessfulCalls: 1, TotalDurationMs: 100},
			SubAgentsByType: map[string]*eventv1.CallSums{"writer": {TotalCalls: 1, SuccessfulCalls: 1, TotalDurationMs: 100}},
			Custom:          []*eventv1.CustomUsage{{Type: "calls", Name: "http", Value: 2}, {Type: "money", Name: "eur", Value: 1}, {Type: "money", Name: "usd", Value: 2}},
			EntryCount:      11,
		}
		if !proto.Equal(got, want) {
			t.Errorf("got\n%v\nwant\n%v", got, want)
		}
		run := b.rollup("root", ref.GetRunId())
		if run.GetRunId() != ref.GetRunId() || run.GetEntryCount() != 10 || run.GetTokensIncludingSubAgents().GetTotalTokens() != 1142 {
			t.Errorf("got %v, want the run's ten entries", run)
		}
		if none := b.rollup("grandchild", "no such run"); none.GetEntryCount() != 0 || none.GetStartedAt() != 0 {
			t.Errorf("got %v, want nothing", none)
		}
	})
}

func TestUsageIsListedInItsOrder(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		b.create("s")
		b.record("s", "r", model("m", 1, 1), tool("a", true, 1))
		b.advance(time.Second)
		b.record("s", "", custom("t", "n", 3))
		page, err := b.usage.ListUsage(t.Context(), &statev1.ListUsageRequest{Tenant: "acme", SessionId: "s", Limit: 2})
		if err != nil || !page.GetHasMore() || len(page.GetEntries()) != 2 {
			t.Fatalf("got %v, %v; want two of three", page, err)
		}
		if e := page.GetEntries()[0]; e.GetEntry().GetTokens().GetModel() != "m" || e.GetEntry().GetSource() != "agent" || e.GetRunId() != "r" || e.GetStep() != 0 {
			t.Errorf("got %v", e)
		}
		page, err = b.usage.ListUsage(t.Context(), &statev1.ListUsageRequest{Tenant: "acme", SessionId: "s", Offset: 1,
			Kinds: []eventv1.UsageKind{eventv1.UsageKind_USAGE_KIND_TOOL, eventv1.UsageKind_USAGE_KIND_CUSTOM}})
		if err != nil || page.GetHasMore() || len(page.GetEntries()) != 1 || page.GetEntries()[0].GetEntry().GetCustom().GetValue() != 3 || page.GetEntries()[0].GetPosition() != 2 {
			t.Errorf("got %v, %v; want the custom one", page, err)
		}
	})
}

func TestAQueryAddsUpOverSessionsInBuckets(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announce()
		const hour = int64(3_600_000)
		b.ahead.Store(int64(time.Duration(hour-b.now().UnixMilli()%hour) * time.Millisecond)) // the beginning of an hour
		begins := b.now().UnixMilli() / hour * hour
		b.create("s1", func(r *statev1.CreateSessionRequest) { r.UserId = "ann" })
		b.create("s2")
		b.record("s1", "", model("big", 1, 0))
		b.record("s2", "", model("small", 2, 0))
		b.advance(time.Hour)
		b.record("s2", "", model("big", 4, 0), tool("add", true, 1))
		ask := func(change func(*statev1.QueryUsageRequest)) []*eventv1.UsageBucket {
			r := &statev1.QueryUsageRequest{Tenant: "acme"}
			change(r)
			got, err := b.usage.QueryUsage(t.Context(), r)
			b.must(err)
			return got.GetBuckets()
		}
		buckets := ask(func(r *statev1.QueryUsageRequest) { r.BucketMs = hour })
		if len(buckets) != 2 || buckets[0].GetBeginsAt() != begins || buckets[1].GetBeginsAt() != begins+hour ||
			buckets[0].GetRollup().GetTokens().GetTotalTokens() != 3 || buckets[1].GetRollup().GetTokens().GetTotalTokens() != 4 || buckets[1].GetRollup().GetTools().GetTotalCalls() != 1 {
			t.Errorf("got %v, want two hours", buckets)
		}
		for name, c := range map[string]struct {
			change func(*statev1.QueryUsageRequest)
			want   int64
		}{
			"all":      {func(*statev1.QueryUsageRequest) {}, 7},
			"sessions": {func(r *statev1.QueryUsageRequest) { r.SessionIds = []string{"s2", "nobody"} }, 6},
			"user":     {func(r *statev1.QueryUsageRequest) { r.UserId = "ann" }, 1},
			"agent":    {func(r *statev1.QueryUsageRequest) { r.AgentType = "support" }, 7},
			"models":   {func(r *statev1.QueryUsageRequest) { r.Models = []string{"big"} }, 5},
			"from":     {func(r *statev1.QueryUsageRequest) { r.RecordedFrom = begins + hour }, 4},
			"before":   {func(r *statev1.QueryUsageRequest) { r.RecordedBefore = begins + hour }, 3},
			"kinds":    {func(r *statev1.QueryUsageRequest) { r.Kinds = []eventv1.UsageKind{eventv1.UsageKind_USAGE_KIND_TOOL} }, 0},
		} {
			if got := ask(c.change); len(got) != 1 || got[0].GetBeginsAt() != 0 || got[0].GetRollup().GetTokens().GetTotalTokens() != c.want {
				t.Errorf("%s: got %v, want %d tokens in one bucket", name, got, c.want)
			}
		}
		if got := ask(func(r *statev1.QueryUsageRequest) { r.AgentType = "nobody" }); len(got) != 0 {
			t.Errorf("got %v, want none", got)
		}
	})
}

func TestTheUsageOfARunThatFinishesOutsideOfAStepIsKept(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		ref := refTo(s.execute())
		_, err := b.work.FinishRun(t.Context(), &statev1.FinishRunRequest{Run: ref, Outcome: &statev1.Outcome{Status: completed}, Usage: []*eventv1.UsageEntry{model("m", 7, 0)}})
		b.must(err)
		if got := b.rollup("s", ref.GetRunId()); got.GetTokens().GetPromptTokens() != 7 {
			t.Errorf("got %v, want what was spent", got)
		}
	})
}
