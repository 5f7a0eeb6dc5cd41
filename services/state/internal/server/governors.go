package server

import (
	"cmp"
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

func governorInvalid(format string, args ...any) error {
	return invalid("GOVERNOR_INVALID", format, args...)
}

// governorService implements statev1.GovernorServiceServer.
type governorService struct {
	statev1.UnimplementedGovernorServiceServer
	store store.Governors
	clock clock
}

// Acquire implements statev1.GovernorServiceServer.
func (s *governorService) Acquire(ctx context.Context, r *statev1.AcquireRequest) (*statev1.AcquireResponse, error) {
	names, limits := make([]string, len(r.GetGovernors())), make([]governor.Limits, len(r.GetGovernors()))
	for i, g := range r.GetGovernors() {
		names[i] = g.GetName()
		limits[i] = governor.Limits{Requests: g.GetRequestsPerMinute(), Tokens: g.GetTokensPerMinute(), Concurrency: g.GetConcurrency()}
	}
	if err := checkAcquire(r, names, limits); err != nil {
		return nil, err
	}
	call := governor.Call{LeaseID: r.GetLeaseId(), Executor: r.GetExecutorId(), Tokens: min(r.GetTokens(), maxGovernorLimit), TTL: governor.Millis(r.GetTtlMs())}
	now := governor.Millis(s.clock.millis())
	var wait governor.Millis
	err := s.store.UpdateGovernors(ctx, names, call.LeaseID, now, func(g []*governor.Governor) {
		wait = governor.Acquire(g, limits, call, now)
	})
	if err != nil {
		return nil, err
	}
	return &statev1.AcquireResponse{WaitMs: int64(wait)}, nil
}

func checkAcquire(r *statev1.AcquireRequest, names []string, limits []governor.Limits) error {
	if err := cmp.Or(checkID("executor_id", r.GetExecutorId()), checkID("lease_id", r.GetLeaseId()), checkGovernors(names)); err != nil {
		return err
	}
	for i, l := range limits {
		if least, most := min(l.Requests, l.Tokens, l.Concurrency), max(l.Requests, l.Tokens, l.Concurrency); least < 0 || most == 0 || most > maxGovernorLimit {
			return governorInvalid("the limits of %q must be from 0 to %d, and one of them above 0", names[i], maxGovernorLimit)
		}
	}
	if ttl := r.GetTtlMs(); ttl <= 0 || ttl > maxLeaseTTL.Milliseconds() {
		return governorInvalid("ttl_ms is %d, it must be from 1 to %d", ttl, maxLeaseTTL.Milliseconds())
	}
	if r.GetTokens() < 0 {
		return governorInvalid("tokens must not be below 0")
	}
	return nil
}

func checkGovernors(names []string) error {
	if len(names) == 0 || len(names) > maxGovernors {
		return governorInvalid("there are %d governors, a call has 1 to %d", len(names), maxGovernors)
	}
	seen := map[string]bool{}
	for _, name := range names {
		if err := checkID("the name of a governor", name); err != nil {
			return err
		}
		if seen[name] {
			return governorInvalid("the governor %q is named twice", name)
		}
		seen[name] = true
	}
	return nil
}

// Release implements statev1.GovernorServiceServer.
func (s *governorService) Release(ctx context.Context, r *statev1.ReleaseRequest) (*statev1.ReleaseResponse, error) {
	if err := cmp.Or(checkID("lease_id", r.GetLeaseId()), checkGovernors(r.GetGovernors())); err != nil {
		return nil, err
	}
	if r.GetUsedTokens() < 0 || r.GetPauseMs() < 0 {
		return nil, governorInvalid("used_tokens and pause_ms must not be below 0")
	}
	var used *int64
	if r.UsedTokens != nil {
		used = new(min(r.GetUsedTokens(), maxGovernorLimit))
	}
	now := governor.Millis(s.clock.millis())
	err := s.store.UpdateGovernors(ctx, r.GetGovernors(), r.GetLeaseId(), now, func(g []*governor.Governor) {
		governor.Release(g, r.GetLeaseId(), used, governor.Millis(r.GetPauseMs()), now)
	})
	return &statev1.ReleaseResponse{}, err
}
