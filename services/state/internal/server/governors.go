package server

import (
	"context"
	"math"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/governor"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Bounds of the contract.
const (
	maxGovernors     = 8              // of a call
	maxGovernorLimit = math.MaxInt32  // of each number, far above what any provider allows
	maxLeaseTTL      = 24 * time.Hour // of a call
)

func governorInvalid(x *reader, format string, args ...any) {
	x.refuse("GOVERNOR_INVALID", format, args...)
}

// governorService implements statev1.GovernorServiceServer.
type governorService struct {
	statev1.UnimplementedGovernorServiceServer
	store  store.Governors
	runner *runner
}

// Acquire implements statev1.GovernorServiceServer.
func (s *governorService) Acquire(ctx context.Context, r *statev1.AcquireRequest) (*statev1.AcquireResponse, error) {
	x := s.runner.read(r)
	executor, lease := x.id("executor_id", r.GetExecutorId()), x.id("lease_id", r.GetLeaseId())
	names, limits := make([]string, len(r.GetGovernors())), make([]governor.Limits, len(r.GetGovernors()))
	for i, g := range r.GetGovernors() {
		names[i] = g.GetName()
		limits[i] = governor.Limits{Requests: g.GetRequestsPerMinute(), Tokens: g.GetTokensPerMinute(), Concurrency: g.GetConcurrency()}
	}
	readGovernors(x, names)
	for i, l := range limits {
		least, most := min(l.Requests, l.Tokens, l.Concurrency), max(l.Requests, l.Tokens, l.Concurrency)
		if least < 0 || most == 0 || most > maxGovernorLimit {
			governorInvalid(x, "the limits of %q must be from 0 to %d, and one of them above 0", names[i], maxGovernorLimit)
		}
	}
	if ttl := r.GetTtlMs(); ttl <= 0 || ttl > maxLeaseTTL.Milliseconds() {
		governorInvalid(x, "ttl_ms is %d, it must be from 1 to %d", ttl, maxLeaseTTL.Milliseconds())
	}
	if r.GetTokens() < 0 {
		governorInvalid(x, "tokens must not be below 0")
	}
	if x.err != nil {
		return nil, x.err
	}
	call := governor.Call{LeaseID: lease, Executor: executor, Tokens: min(r.GetTokens(), maxGovernorLimit), TTL: governor.Millis(r.GetTtlMs())}
	now := governor.Millis(x.now)
	var wait governor.Millis
	err := s.store.UpdateGovernors(ctx, names, lease, now, func(g []*governor.Governor) {
		wait = governor.Acquire(g, limits, call, now)
	})
	if err != nil {
		return nil, err
	}
	return &statev1.AcquireResponse{WaitMs: int64(wait)}, nil
}

func readGovernors(x *reader, names []string) []string {
	if len(names) == 0 || len(names) > maxGovernors {
		governorInvalid(x, "there are %d governors, a call has 1 to %d", len(names), maxGovernors)
	}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[x.id("the name of a governor", name)] {
			governorInvalid(x, "the governor %q is named twice", name)
		}
		seen[name] = true
	}
	return names
}

// Release implements statev1.GovernorServiceServer.
func (s *governorService) Release(ctx context.Context, r *statev1.ReleaseRequest) (*statev1.ReleaseResponse, error) {
	x := s.runner.read(r)
	lease, names := x.id("lease_id", r.GetLeaseId()), readGovernors(x, r.GetGovernors())
	if r.GetUsedTokens() < 0 || r.GetPauseMs() < 0 {
		governorInvalid(x, "used_tokens and pause_ms must not be below 0")
	}
	if x.err != nil {
		return nil, x.err
	}
	var used *int64
	if r.UsedTokens != nil {
		used = new(min(r.GetUsedTokens(), maxGovernorLimit))
	}
	now := governor.Millis(x.now)
	err := s.store.UpdateGovernors(ctx, names, lease, now, func(g []*governor.Governor) {
		governor.Release(g, lease, used, governor.Millis(r.GetPauseMs()), now)
	})
	return &statev1.ReleaseResponse{}, err
}
