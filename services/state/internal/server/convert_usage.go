package server

import (
	"math"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// maxUsageNumber bounds each number of an entry: nine million of them can be added up.
const maxUsageNumber = 1_000_000_000_000

// maxUsageValue bounds the absolute value of a custom entry: sums stay far below the limit of a
// float.
const maxUsageValue = 1e15

// usageSources are the valid sources. The first is the default.
var usageSources = []string{"agent", "tool", "subagent"}

// usageIn gives Invalid (USAGE_INVALID).
func (l Limits) usageIn(entries []*eventv1.UsageEntry) ([]session.Usage, error) {
	if len(entries) > l.UsageEntries {
		return nil, invalid("USAGE_INVALID", "there are %d usage entries; the limit of one request is %d", len(entries), l.UsageEntries)
	}
	var rows []session.Usage
	for i, e := range entries {
		u, problem := usageEntryIn(e)
		if problem != "" {
			return nil, invalid("USAGE_INVALID", "usage[%d] %s", i, problem)
		}
		rows = append(rows, u)
	}
	return rows, nil
}

// usageEntryIn converts an entry, or returns what is wrong with it.
func usageEntryIn(e *eventv1.UsageEntry) (u session.Usage, wrong string) {
	switch entry := e.GetEntry().(type) {
	case *eventv1.UsageEntry_Tokens:
		u = tokensIn(entry.Tokens)
	case *eventv1.UsageEntry_Tool:
		u = session.Usage{Kind: session.UsageTool, Tool: entry.Tool.GetToolName(), Success: entry.Tool.GetSuccess(), DurationMS: entry.Tool.GetDurationMs()}
	case *eventv1.UsageEntry_SubAgent:
		u = session.Usage{Kind: session.UsageSubAgent, Tool: entry.SubAgent.GetToolName(), Success: entry.SubAgent.GetSuccess(), DurationMS: entry.SubAgent.GetDurationMs()}
	case *eventv1.UsageEntry_Custom:
		u = session.Usage{Kind: session.UsageCustom, Type: entry.Custom.GetType(), Name: entry.Custom.GetName(), Value: entry.Custom.GetValue()}
	default:
		return u, "has no measurement; give tokens, a tool, a sub-agent or a custom value"
	}
	if u.Source = e.GetSource(); u.Source == "" {
		u.Source = usageSources[0]
	}
	return u, usageProblem(u)
}

func tokensIn(t *eventv1.TokenUsage) session.Usage {
	return session.Usage{
		Kind: session.UsageTokens, Model: t.GetModel(), PromptTokens: t.GetPromptTokens(), CompletionTokens: t.GetCompletionTokens(),
		ReasoningTokens: t.GetReasoningTokens(), CachedTokens: t.GetCachedTokens(), TotalTokens: t.GetTotalTokens(),
	}
}

// usageProblem describes the fault of an entry; "" for a valid one.
func usageProblem(u session.Usage) string {
	known := false
	for _, source := range usageSources {
		known = known || u.Source == source
	}
	if !known {
		return "has an unknown source; give agent, tool or subagent"
	}
	names := []string{u.Model + u.Tool}
	if u.Kind == session.UsageCustom {
		names = []string{u.Type, u.Name}
	}
	for _, name := range names {
		if p := idProblem(name); p != "" {
			return "has a model, tool, type or name that " + p
		}
	}
	for _, n := range []int64{u.PromptTokens, u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens, u.DurationMS} {
		if n < 0 || n > maxUsageNumber {
			return "has a number that is negative or above 10^12"
		}
	}
	if math.IsNaN(u.Value) || math.Abs(u.Value) > maxUsageValue {
		return "has a value that is not a number or beyond 10^15"
	}
	return ""
}

func usageOut(rows []session.Usage) []*eventv1.UsageEntry {
	list := make([]*eventv1.UsageEntry, len(rows))
	for i, u := range rows {
		list[i] = usageEntryOut(u)
	}
	return list
}

func usageEntryOut(u session.Usage) *eventv1.UsageEntry {
	out := &eventv1.UsageEntry{Source: u.Source}
	switch kindOf(u) {
	case session.UsageTokens:
		out.Entry = &eventv1.UsageEntry_Tokens{Tokens: &eventv1.TokenUsage{
			Model: u.Model, PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens,
			ReasoningTokens: u.ReasoningTokens, CachedTokens: u.CachedTokens, TotalTokens: u.TotalTokens,
		}}
	case session.UsageTool:
		out.Entry = &eventv1.UsageEntry_Tool{Tool: &eventv1.ToolUsage{ToolName: u.Tool, Success: u.Success, DurationMs: u.DurationMS}}
	case session.UsageSubAgent:
		out.Entry = &eventv1.UsageEntry_SubAgent{SubAgent: &eventv1.ToolUsage{ToolName: u.Tool, Success: u.Success, DurationMs: u.DurationMS}}
	case session.UsageCustom:
		out.Entry = &eventv1.UsageEntry_Custom{Custom: &eventv1.CustomUsage{Type: u.Type, Name: u.Name, Value: u.Value}}
	}
	return out
}

// kindOf returns the kind of an entry. Journals of the first release name none: an entry with a
// model counts tokens, any other a tool call.
func kindOf(u session.Usage) session.UsageKind {
	switch {
	case u.Kind != "":
		return u.Kind
	case u.Model != "":
		return session.UsageTokens
	default:
		return session.UsageTool
	}
}
