package worker

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
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

// used begins the count with what the run has used before the claim.
func (r *runner) used(t *statev1.TokenSums) {
	if t.GetPromptTokens() == 0 && t.GetCompletionTokens() == 0 && t.GetTotalTokens() == 0 {
		return
	}
	r.usage = &eventv1.Usage{
		PromptTokens: t.GetPromptTokens(), CompletionTokens: t.GetCompletionTokens(), ReasoningTokens: t.GetReasoningTokens(),
		CachedTokens: t.GetCachedTokens(), TotalTokens: t.GetTotalTokens(),
	}
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

// carry makes a call to the state service with the pending usage, which is kept for the next
// one where the call is known to have changed nothing.
func carry[A any](ctx context.Context, r *runner, f func(ctx context.Context) (A, error)) (A, error) {
	answer, err := call(ctx, r, f)
	if err == nil || ctx.Err() != nil {
		r.pending = nil
	}
	return answer, err
}

// withUsage sends what ends the claim, and without the usage where it is refused with it.
func (r *runner) withUsage(ctx context.Context, usage []*statev1.UsageEntry, send func([]*statev1.UsageEntry) error) error {
	err := send(usage)
	if kind := fault.KindOf(err); err != nil && len(usage) > 0 && (kind == fault.Invalid || kind == fault.TooLarge) {
		r.log.ErrorContext(ctx, "the end of the claim is refused, and is sent without its usage", "entries", len(usage), "error", err)
		return send(nil)
	}
	return err
}

// unplanned gives the pending tokens. What hooks have counted is not among them: the next
// owner calls them again.
func (r *runner) unplanned(ctx context.Context) []*statev1.UsageEntry {
	r.pending = slices.DeleteFunc(r.pending, func(e *statev1.UsageEntry) bool { return e.GetTokens() == nil })
	return r.report(ctx)
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

// mostTokens is how many tokens of one reply the state service takes.
const mostTokens = 1_000_000_000_000

// plausible gives the tokens of a reply without the numbers that nothing can have used, for
// which the state service would refuse the step.
func plausible(u model.Usage) model.Usage {
	for _, n := range []*int64{&u.PromptTokens, &u.CompletionTokens, &u.ReasoningTokens, &u.CachedTokens, &u.TotalTokens} {
		if *n < 0 || *n > mostTokens {
			*n = 0
		}
	}
	return u
}

// spent notes the tokens of a call of the model, provider/name, for the step in flight.
func (r *runner) spent(name string, u model.Usage) {
	u = plausible(u)
	if u == (model.Usage{}) {
		return
	}
	entry := tokenUsage(name, u)
	r.count(entry.GetTokens())
	r.pending = append(r.pending, entry)
}
