package server

import (
	"cmp"
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// rollUp adds sums up to the rollup of a session (behaviour §13.3). The source of a measurement
// does not matter.
func rollUp(sums []store.UsageSum) *eventv1.UsageRollup {
	r := &eventv1.UsageRollup{Tokens: &eventv1.TokenSums{}, Tools: &eventv1.CallSums{}, SubAgents: &eventv1.CallSums{}}
	for _, sum := range sums {
		switch kindOf(sum.Usage) {
		case session.UsageTokens:
			addTokens(r.Tokens, sum.Usage)
			addTokens(entryFor(&r.TokensByModel, sum.Usage.Model), sum.Usage)
		case session.UsageTool:
			addCalls(r.Tools, sum)
			addCalls(entryFor(&r.ToolsByName, sum.Usage.Tool), sum)
		case session.UsageSubAgent:
			addCalls(r.SubAgents, sum)
			addCalls(entryFor(&r.SubAgentsByType, sum.Usage.Tool), sum)
		case session.UsageCustom:
			addCustom(r, sum.Usage)
		}
		r.EntryCount += sum.Count
		r.LastUpdatedAt = max(r.LastUpdatedAt, int64(sum.Last))
		if r.StartedAt == 0 || int64(sum.First) < r.StartedAt {
			r.StartedAt = int64(sum.First)
		}
	}
	slices.SortFunc(r.Custom, func(a, b *eventv1.CustomUsage) int {
		return cmp.Or(cmp.Compare(a.GetType(), b.GetType()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return r
}

// entryFor returns the value of a key. It adds a new one if there is none.
func entryFor[V any](m *map[string]*V, key string) *V {
	if *m == nil {
		*m = map[string]*V{}
	}
	value, known := (*m)[key]
	if !known {
		value = new(V)
		(*m)[key] = value
	}
	return value
}

func addTokens(t *eventv1.TokenSums, u session.Usage) {
	t.PromptTokens += u.PromptTokens
	t.CompletionTokens += u.CompletionTokens
	t.ReasoningTokens += u.ReasoningTokens
	t.CachedTokens += u.CachedTokens
	t.TotalTokens += u.TotalTokens
}

func addCalls(c *eventv1.CallSums, sum store.UsageSum) {
	c.TotalCalls += sum.Count
	c.SuccessfulCalls += sum.Success
	c.FailedCalls += sum.Count - sum.Success
	c.TotalDurationMs += sum.Usage.DurationMS
}

func addCustom(r *eventv1.UsageRollup, u session.Usage) {
	i := slices.IndexFunc(r.Custom, func(c *eventv1.CustomUsage) bool { return c.GetType() == u.Type && c.GetName() == u.Name })
	if i < 0 {
		r.Custom = append(r.Custom, &eventv1.CustomUsage{Type: u.Type, Name: u.Name, Value: u.Value})
		return
	}
	r.Custom[i].Value += u.Value
}
