package server

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

func queryInvalid(format string, args ...any) error {
	return invalid("QUERY_INVALID", format, args...)
}

// usageService implements statev1.UsageServiceServer.
type usageService struct {
	statev1.UnimplementedUsageServiceServer
	store    store.Reader
	accounts store.Accounts
	runner   *runner
	limits   Limits
	clock    clock
}

// RecordUsage implements statev1.UsageServiceServer.
func (s *usageService) RecordUsage(ctx context.Context, r *statev1.RecordUsageRequest) (*statev1.RecordUsageResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkOptionalID("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	usage, err := s.limits.usageIn(r.GetUsage())
	if err != nil {
		return nil, err
	}
	command := session.RecordUsage{Key: key, RunID: r.GetRunId(), Usage: usage, Now: s.clock.millis()}
	if _, err := update(ctx, s.runner.byFor(r.GetCaller(), session.ActionUsageRecorded), targetOf(r, key, command.Need()), proto.Size(r), silent(command.Decide)); err != nil {
		return nil, err
	}
	return &statev1.RecordUsageResponse{}, nil
}

// kindsIn gives Invalid (QUERY_INVALID).
func kindsIn(kinds []eventv1.UsageKind) ([]session.UsageKind, error) {
	var list []session.UsageKind
	for _, k := range kinds {
		kind, known := usageKindIn[k]
		if !known {
			return nil, queryInvalid("%s is not a kind of usage", k)
		}
		list = append(list, kind)
	}
	return list, nil
}

// ListUsage implements statev1.UsageServiceServer.
func (s *usageService) ListUsage(ctx context.Context, r *statev1.ListUsageRequest) (*statev1.ListUsageResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	kinds, err := kindsIn(r.GetKinds())
	if err != nil {
		return nil, err
	}
	limit, err := pageLimit(r.GetLimit())
	if err := cmp.Or(err, checkOffset(r.GetOffset())); err != nil {
		return nil, err
	}
	rows, err := readerOf(r, s.store).UsageEntries(ctx, key, kinds, int(r.GetOffset()), limit+1)
	if err != nil {
		return nil, err
	}
	page, more := splitPage(rows, limit)
	answer := &statev1.ListUsageResponse{HasMore: more}
	for _, e := range page {
		answer.Entries = append(answer.Entries, &eventv1.RecordedUsage{
			RunId: e.RunID, Step: e.Step, Position: e.Position, RecordedAt: int64(e.At), Entry: usageEntryOut(e.Usage),
		})
	}
	return answer, nil
}

// GetUsageRollup implements statev1.UsageServiceServer.
func (s *usageService) GetUsageRollup(ctx context.Context, r *statev1.GetUsageRollupRequest) (*statev1.GetUsageRollupResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkOptionalID("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	// The sums of a missing session are empty, so look whether it exists.
	if _, err := readerOf(r, s.store).UsageEntries(ctx, key, nil, 0, 1); err != nil {
		return nil, err
	}
	user := r.GetCaller().GetOwner()
	own, err := s.sums(ctx, key.Tenant, store.UsageQuery{Sessions: []string{key.SessionID}, RunID: r.GetRunId(), UserID: user})
	if err != nil {
		return nil, err
	}
	family, err := s.sums(ctx, key.Tenant, store.UsageQuery{Family: key.SessionID, UserID: user, Kinds: []session.UsageKind{session.UsageTokens}})
	if err != nil {
		return nil, err
	}
	rollup := rollUp(own)
	rollup.RunId = r.GetRunId()
	all := rollUp(family)
	rollup.TokensIncludingSubAgents, rollup.TokensIncludingSubAgentsByModel = all.GetTokens(), all.GetTokensByModel()
	return &statev1.GetUsageRollupResponse{Rollup: rollup}, nil
}

// sums gives Exhausted (QUERY_TOO_LARGE) for more sums than one response may have.
func (s *usageService) sums(ctx context.Context, tenant string, q store.UsageQuery) ([]store.UsageSum, error) {
	limit := s.limits.UsageSums
	sums, err := s.accounts.UsageSums(ctx, tenant, q, limit+1)
	if err != nil {
		return nil, err
	}
	if len(sums) > limit {
		return nil, fault.New(fault.Exhausted, "QUERY_TOO_LARGE",
			"there are more than %d sums; ask for fewer sessions, a shorter time or longer buckets", limit)
	}
	return sums, nil
}

// QueryUsage implements statev1.UsageServiceServer.
func (s *usageService) QueryUsage(ctx context.Context, r *statev1.QueryUsageRequest) (*statev1.QueryUsageResponse, error) {
	q, err := usageQuery(r)
	if err != nil {
		return nil, err
	}
	sums, err := s.sums(ctx, r.GetTenant(), q)
	if err != nil {
		return nil, err
	}
	answer := &statev1.QueryUsageResponse{}
	for len(sums) > 0 {
		begins, n := sums[0].Bucket, 1
		for n < len(sums) && sums[n].Bucket == begins {
			n++
		}
		answer.Buckets = append(answer.Buckets, &eventv1.UsageBucket{BeginsAt: int64(begins), Rollup: rollUp(sums[:n])})
		sums = sums[n:]
	}
	return answer, nil
}

// usageQuery gives Invalid (ID_INVALID, QUERY_INVALID) and Denied (OWNER_REFUSED).
func usageQuery(r *statev1.QueryUsageRequest) (store.UsageQuery, error) {
	const shortestBucket, maxQueried = 1000, 1000
	none := store.UsageQuery{}
	from, before, bucket := r.GetRecordedFrom(), r.GetRecordedBefore(), r.GetBucketMs()
	switch {
	case len(r.GetSessionIds()) > maxQueried || len(r.GetModels()) > maxQueried:
		return none, queryInvalid("the query names %d sessions and %d models; the limit of each is %d", len(r.GetSessionIds()), len(r.GetModels()), maxQueried)
	case bucket != 0 && bucket < shortestBucket:
		return none, queryInvalid("bucket_ms is %d; give at least %d, or 0 for one bucket", bucket, shortestBucket)
	case from < 0 || before < 0 || before != 0 && before <= from:
		return none, queryInvalid("the time from %d to %d is empty", from, before)
	}
	if err := cmp.Or(checkID("tenant", r.GetTenant()),
		checkOptionalID("user_id", r.GetUserId()),
		checkOptionalID("agent_type", r.GetAgentType()),
		checkIDs("a session id", r.GetSessionIds()),
		checkIDs("a model", r.GetModels())); err != nil {
		return none, err
	}
	user, err := callerIn(r.GetCaller()).User(r.GetUserId())
	if err != nil {
		return none, err
	}
	kinds, err := kindsIn(r.GetKinds())
	return store.UsageQuery{
		Sessions: r.GetSessionIds(), UserID: user, AgentType: r.GetAgentType(), Kinds: kinds, Models: r.GetModels(),
		From: session.Millis(from), Before: session.Millis(before), Bucket: session.Millis(r.GetBucketMs()),
	}, err
}
