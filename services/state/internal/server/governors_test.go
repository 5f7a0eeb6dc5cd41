package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// governed asks for a lease of two governors.
func governed(id string, change ...func(*statev1.AcquireRequest)) *statev1.AcquireRequest {
	r := &statev1.AcquireRequest{
		ExecutorId: "e1", LeaseId: id, Tokens: 10, TtlMs: 60_000,
		Governors: []*statev1.GovernorLimits{{Name: "openai", TokensPerMinute: 100}, {Name: "openai/gpt", Concurrency: 1}},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func TestALeaseIsGrantedHeldAndReleased(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.open("e1", 10)
		service := statev1.NewGovernorServiceClient(b.conn)
		wait := func(id string) int64 {
			t.Helper()
			answer, err := service.Acquire(t.Context(), governed(id))
			b.must(err)
			return answer.GetWaitMs()
		}
		release := func(r *statev1.ReleaseRequest) {
			t.Helper()
			r.Governors = []string{"openai", "openai/gpt"}
			_, err := service.Release(t.Context(), r)
			b.must(err)
		}
		if got := []int64{wait("a"), wait("b"), wait("a")}; got[0] != 0 || got[1] != 250 || got[2] != 0 {
			t.Errorf("waits = %v, want 0, 250 and 0", got)
		}
		release(&statev1.ReleaseRequest{LeaseId: "a", UsedTokens: new(int64(95))})
		if got := wait("b"); got != 5_000 {
			t.Errorf("wait = %d, want 5000: the first call has used the tokens", got)
		}
		release(&statev1.ReleaseRequest{LeaseId: "b"})
		b.advance(62 * time.Second)
		if got := wait("c"); got != 0 {
			t.Errorf("wait = %d, want 0 in another minute", got)
		}
		release(&statev1.ReleaseRequest{LeaseId: "c", PauseMs: 3_000})
		if got := wait("d"); got <= 2_000 || got > 3_000 {
			t.Errorf("wait = %d, want the pause", got)
		}
	})
}

func TestLeasesOfAForgottenExecutorComeBack(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.open("e1", 10)
		service := statev1.NewGovernorServiceClient(b.conn)
		of := func(executor string) func(*statev1.AcquireRequest) {
			return func(r *statev1.AcquireRequest) { r.ExecutorId = executor }
		}
		_, err := service.Acquire(t.Context(), governed("a"))
		b.must(err)
		b.must(b.store.Announce(t.Context(), "e2", nil, b.millis()))
		answer, err := service.Acquire(t.Context(), governed("b", of("e2")))
		b.must(err)
		if answer.GetWaitMs() == 0 {
			t.Error("a lease was granted, want it held by the first executor")
		}
		_, err = b.store.UnregisterSilent(t.Context(), b.millis()+1)
		b.must(err)
		answer, err = service.Acquire(t.Context(), governed("b", of("e2")))
		b.must(err)
		if answer.GetWaitMs() != 0 {
			t.Errorf("wait = %d, want the lease of the executor that is gone", answer.GetWaitMs())
		}
	})
}

func TestReasonsOfGovernorsTravel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	acquire := func(change func(*statev1.AcquireRequest), reason string) refusal {
		return refusal{"GovernorService/Acquire", governed("a", change), fault.Invalid, reason}
	}
	limits := func(change func(*statev1.GovernorLimits)) refusal {
		return acquire(func(r *statev1.AcquireRequest) { change(r.GetGovernors()[0]) }, "GOVERNOR_INVALID")
	}
	many := make([]*statev1.GovernorLimits, maxGovernors+1)
	for i := range many {
		many[i] = &statev1.GovernorLimits{Name: fmt.Sprint("g", i), Concurrency: 1}
	}
	b.refusesAll([]refusal{
		acquire(func(r *statev1.AcquireRequest) { r.ExecutorId = "" }, "ID_INVALID"),
		acquire(func(r *statev1.AcquireRequest) { r.LeaseId = xs(257) }, "ID_INVALID"),
		acquire(func(r *statev1.AcquireRequest) { r.Governors[1].Name = "\x00" }, "ID_INVALID"),
		acquire(func(r *statev1.AcquireRequest) { r.Governors[1].Name = "openai" }, "GOVERNOR_INVALID"),
		acquire(func(r *statev1.AcquireRequest) { r.Governors = nil }, "GOVERNOR_INVALID"),
		acquire(func(r *statev1.AcquireRequest) { r.Governors = many }, "GOVERNOR_INVALID"),
		acquire(func(r *statev1.AcquireRequest) { r.Tokens = -1 }, "GOVERNOR_INVALID"),
		acquire(func(r *statev1.AcquireRequest) { r.TtlMs = 0 }, "GOVERNOR_INVALID"),
		acquire(func(r *statev1.AcquireRequest) { r.TtlMs = 24*60*60*1000 + 1 }, "GOVERNOR_INVALID"),
		limits(func(g *statev1.GovernorLimits) { g.TokensPerMinute = 0 }),
		limits(func(g *statev1.GovernorLimits) { g.RequestsPerMinute = -1 }),
		limits(func(g *statev1.GovernorLimits) { g.Concurrency = maxGovernorLimit + 1 }),
		{"GovernorService/Release", &statev1.ReleaseRequest{LeaseId: "a"}, fault.Invalid, "GOVERNOR_INVALID"},
		{"GovernorService/Release", &statev1.ReleaseRequest{Governors: []string{"g"}}, fault.Invalid, "ID_INVALID"},
		{"GovernorService/Release", &statev1.ReleaseRequest{LeaseId: "a", Governors: []string{"g"}, PauseMs: -1}, fault.Invalid, "GOVERNOR_INVALID"},
		{"GovernorService/Release", &statev1.ReleaseRequest{LeaseId: "a", Governors: []string{"g"}, UsedTokens: new(int64(-1))}, fault.Invalid, "GOVERNOR_INVALID"},
	})
	b.open("e1", 10)
	_, err := statev1.NewGovernorServiceClient(b.conn).Acquire(t.Context(), governed("a", func(r *statev1.AcquireRequest) {
		r.Governors, r.TtlMs = many[:maxGovernors], 24*60*60*1000
		r.Governors[0].Concurrency = maxGovernorLimit
	}))
	b.must(err)
}
