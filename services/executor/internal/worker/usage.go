package worker

import (
	"context"
	"log/slog"
	"slices"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// account counts what a run uses. One goroutine owns it.
type account struct {
	log     *slog.Logger
	total   *eventv1.Usage        // tokens of the run, from its begin; nil for none
	pending []*statev1.UsageEntry // of the step in flight, not in the journal
}

// newAccount begins with the usage before the claim.
func newAccount(used *statev1.TokenSums, log *slog.Logger) *account {
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
func (a *account) addToTotal(t *statev1.TokenUsage) {
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

// addTokens adds the tokens of a call of the model, provider/name, to the total and to what is
// pending.
func (a *account) addTokens(name string, u model.Usage) {
	u = plausible(u)
	if u == (model.Usage{}) {
		return
	}
	entry := tokenUsage(name, u)
	a.addToTotal(entry.GetTokens())
	a.add(entry)
}

// add makes entries pending.
func (a *account) add(entries ...*statev1.UsageEntry) { a.pending = append(a.pending, entries...) }

// mark is how many entries are pending, for forgetSince.
func (a *account) mark() int { return len(a.pending) }

// dropSince drops the entries that have become pending since the mark.
func (a *account) dropSince(mark int) { a.pending = a.pending[:mark] }

// sent drops the pending entries: the state service may have them.
func (a *account) sent() { a.pending = nil }

// maxReported is how many entries of usage the state service takes in one request.
const maxReported = 1000

// forRequest gives the pending entries for one request. Too many entries are added up by their
// names. Calls of tools are not added up; if there are still too many, they are dropped first.
func (a *account) forRequest(ctx context.Context) []*statev1.UsageEntry {
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

// forRelease gives the pending tokens, for a run that is given back. It drops the entries of
// hooks: the next owner calls the hooks again.
func (a *account) forRelease(ctx context.Context) []*statev1.UsageEntry {
	a.pending = slices.DeleteFunc(a.pending, func(e *statev1.UsageEntry) bool { return e.GetTokens() == nil })
	return a.forRequest(ctx)
}

// sumByName adds up the entries of one name, and puts calls of tools last.
func sumByName(entries []*statev1.UsageEntry) []*statev1.UsageEntry {
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

// maxTokens is the largest number of tokens that the state service takes for one reply.
const maxTokens = 1_000_000_000_000

// plausible drops impossible numbers. The state service would refuse the step because of them.
func plausible(u model.Usage) model.Usage {
	for _, n := range []*int64{&u.PromptTokens, &u.CompletionTokens, &u.ReasoningTokens, &u.CachedTokens, &u.TotalTokens} {
		if *n < 0 || *n > maxTokens {
			*n = 0
		}
	}
	return u
}
