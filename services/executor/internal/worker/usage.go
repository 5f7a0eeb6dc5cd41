package worker

import (
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

// spent notes the tokens of a call of the model, provider/name, for the step in flight.
func (r *runner) spent(name string, u model.Usage) {
	if u == (model.Usage{}) {
		return
	}
	entry := tokenUsage(name, u)
	r.count(entry.GetTokens())
	r.pending = append(r.pending, entry)
}
