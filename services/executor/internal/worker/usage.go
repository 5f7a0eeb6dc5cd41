package worker

import (
	"context"
	"log/slog"
	"slices"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// account counts the usage of a run. One goroutine owns it.
type account struct {
	log     *slog.Logger
	total   *eventv1.Usage        // tokens of the whole run; nil for none
	pending []*eventv1.UsageEntry // entries of the step in flight, not in the journal
}

// newAccount starts with the usage before the claim.
func newAccount(used *eventv1.TokenSums, log *slog.Logger) *account {
	a := &account{log: log}
	if used.GetPromptTokens() != 0 || used.GetCompletionTokens() != 0 || used.GetTotalTokens() != 0 {
		a.total = &eventv1.Usage{
			PromptTokens: used.GetPromptTokens(), CompletionTokens: used.GetCompletionTokens(), ReasoningTokens: used.GetReasoningTokens(),
			CachedTokens: used.GetCachedTokens(), TotalTokens: used.GetTotalTokens(),
		}
	}
	return a
}

// addToTotal adds tokens to the run's total.
func (a *account) addToTotal(t *eventv1.TokenUsage) {
	if t == nil {
		return
	}
	if a.total == nil {
		a.total = &eventv1.Usage{}
	}
	a.total.PromptTokens += t.GetPromptTokens()
	a.total.CompletionTokens += t.GetCompletionTokens()
	a.total.ReasoningTokens += t.GetReasoningTokens()
	a.total.CachedTokens += t.GetCachedTokens()
	a.total.TotalTokens += t.GetTotalTokens()
}

// maxTokens is the state service's limit for the tokens of one reply.
const maxTokens = 1_000_000_000_000

// addTokens adds the tokens of a model call, named provider/name, to the total and the pending usage. It clears
// impossible numbers, for which the state service would refuse the step.
func (a *account) addTokens(name string, u model.Usage) {
	for _, n := range []*int64{&u.PromptTokens, &u.CompletionTokens, &u.ReasoningTokens, &u.CachedTokens, &u.TotalTokens} {
		if *n < 0 || *n > maxTokens {
			*n = 0
		}
	}
	if u == (model.Usage{}) {
		return
	}
	entry := tokenUsage(name, u)
	a.addToTotal(entry.GetTokens())
	a.add(entry)
}

// add adds pending entries.
func (a *account) add(entries ...*eventv1.UsageEntry) { a.pending = append(a.pending, entries...) }

// mark marks the end of the pending entries for dropSince.
func (a *account) mark() int { return len(a.pending) }

// dropSince drops the pending entries after the mark.
func (a *account) dropSince(mark int) { a.pending = a.pending[:mark] }

// sent drops the pending entries. The state service has received them, or may have.
func (a *account) sent() { a.pending = nil }

// maxReported is the most usage entries of one request to the state service.
const maxReported = 1000

// forRequest returns the pending entries for one request. Too many entries are summed by name, except those of
// tool calls, which are dropped first if there are still too many.
func (a *account) forRequest(ctx context.Context) []*eventv1.UsageEntry {
	if len(a.pending) <= maxReported {
		return a.pending
	}
	summed := sumByName(a.pending)
	if len(summed) > maxReported {
		a.log.ErrorContext(ctx, "usage is not counted: a step has too many entries", "entries", len(summed), "limit", maxReported)
		summed = summed[:maxReported]
	}
	a.pending = summed
	return summed
}

// forRelease returns the pending tokens for the release of the run. It drops the entries of hooks, since the
// next owner calls the hooks again.
func (a *account) forRelease(ctx context.Context) []*eventv1.UsageEntry {
	a.pending = slices.DeleteFunc(a.pending, func(e *eventv1.UsageEntry) bool { return e.GetTokens() == nil })
	return a.forRequest(ctx)
}

// sumByName sums the entries of each name, and puts tool calls last.
func sumByName(entries []*eventv1.UsageEntry) []*eventv1.UsageEntry {
	type name struct{ source, kind, name string }
	sums := map[name]*eventv1.UsageEntry{}
	var all, calls []*eventv1.UsageEntry
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
