package server

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

func TestAClaimCarriesUsedTokensAndARunItsFinishReason(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		b.start("s")
		first := s.execute()
		if first.GetUsed() != nil {
			t.Errorf("got %v used at a first claim", first.GetUsed())
		}
		commit := step(refTo(first), 1)
		commit.Usage = []*eventv1.UsageEntry{model("big", 10, 5), model("small", 1, 1), tool("add", true, 3)}
		b.commit(commit)
		b.record("s", "another run", model("big", 1000, 1000))
		_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: refTo(first), Usage: []*eventv1.UsageEntry{model("big", 20, 0)}})
		b.must(err)
		second := s.execute()
		checkTokens(t, "at the second claim", second.GetUsed(), 31, 6)
		_, err = b.work.FinishRun(t.Context(), &statev1.FinishRunRequest{
			Run: refTo(second), Outcome: &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED, FinishReason: "length"},
			Usage: []*eventv1.UsageEntry{model("big", 100, 10)},
		})
		b.must(err)
		got, err := b.runs.GetRun(t.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: "s", RunId: first.GetRun().GetRunId()})
		b.must(err)
		if got.GetRun().GetFinishReason() != "length" {
			t.Errorf("got %v, want the finish reason", got)
		}
	})
}

func checkTokens(t *testing.T, when string, got *eventv1.TokenSums, prompt, completion int64) {
	t.Helper()
	if got.GetPromptTokens() != prompt || got.GetCompletionTokens() != completion || got.GetTotalTokens() != prompt+completion {
		t.Errorf("%s: got %v used, want %d and %d", when, got, prompt, completion)
	}
}

// sumCounter counts the queries for usage sums.
type sumCounter struct {
	store.Store
	times atomic.Int32
}

// parts returns the store with its wrapped parts.
func (a *sumCounter) parts() store.Store {
	s := a.Store
	s.Accounts = a
	return s
}

func (a *sumCounter) UsageSums(ctx context.Context, tenant string, q store.UsageQuery, limit int) ([]store.UsageSum, error) {
	a.times.Add(1)
	return a.Store.UsageSums(ctx, tenant, q, limit)
}

func TestAFirstClaimQueriesNoUsage(t *testing.T) {
	t.Parallel()
	a := &sumCounter{Store: sqlitetest.Open(t)}
	b := newBenchOn(t, a.parts())
	s := b.open("e1", 10)
	b.start("s")
	claim := s.execute()
	if n := a.times.Load(); n != 0 {
		t.Errorf("usage was added up %d times", n)
	}
	_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: refTo(claim)})
	b.must(err)
	s.execute()
	if n := a.times.Load(); n != 1 {
		t.Errorf("usage was added up %d times for a second claim, want once", n)
	}
}

func TestAFinishReasonIsShortText(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 1)
	b.start("s")
	ref := refTo(s.execute())
	finish := func(reason string) error {
		_, err := b.work.FinishRun(t.Context(), &statev1.FinishRunRequest{
			Run: ref, Outcome: &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED, FinishReason: reason},
		})
		return err
	}
	for _, reason := range []string{strings.Repeat("x", 65), "a\x00b", "a\nb"} {
		b.refuses(finish(reason), fault.Invalid, "OUTCOME_INVALID")
	}
	_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: ref, Usage: []*eventv1.UsageEntry{{}}})
	b.refuses(err, fault.Invalid, "USAGE_INVALID")
	b.must(finish(strings.Repeat("x", 64)))
}
