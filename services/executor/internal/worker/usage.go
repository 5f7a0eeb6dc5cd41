package worker

import (
	"context"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// count adds tokens to what the run is said to have used.
func (r *runner) count(t *statev1.TokenUsage) {
	if t == nil {
		return
	}
	if r.usage == nil {
		r.usage = &eventv1.Usage{}
	}
	r.usage.PromptTokens += t.GetPromptTokens()
	r.usage.CompletionTokens += t.GetCompletionTokens()
	r.usage.ReasoningTokens += t.GetReasoningTokens()
	r.usage.CachedTokens += t.GetCachedTokens()
	r.usage.TotalTokens += t.GetTotalTokens()
}

// maxReported is how many entries of usage a request carries, as the state service bounds
// them.
const maxReported = 1000

// report gives the pending usage as a request may carry it. Where that are too many entries,
// those of one name are added up; calls of tools, which are not, go first when that is not
// enough.
func (r *runner) report(ctx context.Context) []*statev1.UsageEntry {
	if len(r.pending) <= maxReported {
		return r.pending
	}
	summed := summed(r.pending)
	if len(summed) > maxReported {
		r.log.ErrorContext(ctx, "usage is not counted: a step has too many entries", "entries", len(summed), "limit", maxReported)
		summed = summed[:maxReported]
	}
	r.pending = summed
	return summed
}

// summed adds up what has one name, and puts calls of tools last.
func summed(entries []*statev1.UsageEntry) []*statev1.UsageEntry {
	type name struct{ source, kind, name string }
	sums := map[name]*statev1.UsageEntry{}
	var all, calls []*statev1.UsageEntry
	for _, e := range entries {
		key := name{e.GetSource(), e.GetCustom().GetType(), e.GetCustom().GetName()}
		switch {
		case e.GetTool() != nil:
			calls = append(calls, e)
			continue
		case e.GetTokens() != nil:
			key.name = e.GetTokens().GetModel()
		}
		sum := sums[key]
		if sum == nil {
			sums[key] = proto.CloneOf(e)
			all = append(all, sums[key])
			continue
		}
		if t, more := sum.GetTokens(), e.GetTokens(); t != nil {
			t.PromptTokens += more.GetPromptTokens()
			t.CompletionTokens += more.GetCompletionTokens()
			t.ReasoningTokens += more.GetReasoningTokens()
			t.CachedTokens += more.GetCachedTokens()
			t.TotalTokens += more.GetTotalTokens()
		}
		if c := sum.GetCustom(); c != nil {
			c.Value += e.GetCustom().GetValue()
		}
	}
	return append(all, calls...)
}

// spent notes the tokens of a call of the model, provider/name, for the step in flight.
func (r *runner) spent(name string, u model.Usage) {
	if u == (model.Usage{}) {
		return
	}
	entry := tokenUsage(name, u)
	r.count(entry.GetTokens())
	r.pending = append(r.pending, entry)
}
