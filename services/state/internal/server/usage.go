package server

import (
	"context"
	"math"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// usageService implements statev1.UsageServiceServer.
type usageService struct {
	statev1.UnimplementedUsageServiceServer
	store    store.Reader
	accounts store.Accounts
	runner   *runner
}

// RecordUsage implements statev1.UsageServiceServer.
func (s *usageService) RecordUsage(ctx context.Context, r *statev1.RecordUsageRequest) (*statev1.RecordUsageResponse, error) {
	x := s.runner.read(r)
	command := session.RecordUsage{Key: x.key(r), RunID: x.optionalID("run_id", r.GetRunId()), Usage: x.usage(r.GetUsage()), Now: x.now}
	if x.err != nil {
		return nil, x.err
	}
	c := onSession(x, command.Key, withoutAnswer{command})
	c.Intent = session.ActionUsageRecorded
	if _, err := run(ctx, s.runner, c); err != nil {
		return nil, err
	}
	return &statev1.RecordUsageResponse{}, nil
}

// readUsageKinds gives Invalid (QUERY_INVALID).
func readUsageKinds(x *reader, kinds []eventv1.UsageKind) []session.UsageKind {
	var list []session.UsageKind
	for _, k := range kinds {
		kind, known := usageKindIn[k]
		if !known {
			x.refuse("QUERY_INVALID", "%s is not a kind of usage", k)
		}
		list = append(list, kind)
	}
	return list
}

// ListUsage implements statev1.UsageServiceServer.
func (s *usageService) ListUsage(ctx context.Context, r *statev1.ListUsageRequest) (*statev1.ListUsageResponse, error) {
	x := s.runner.read(r)
	key, kinds, limit, offset := x.key(r), readUsageKinds(x, r.GetKinds()), x.pageLimit(r.GetLimit()), x.offset(r.GetOffset())
	if x.err != nil {
		return nil, x.err
	}
	rows, err := x.owned(s.store).UsageEntries(ctx, key, kinds, offset, limit+1)
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
	x := s.runner.read(r)
	key, runID, user := x.key(r), x.optionalID("run_id", r.GetRunId()), x.by.Owner
	if x.err != nil {
		return nil, x.err
	}
	// The sums of a missing session are empty, so look whether it exists.
	if _, err := x.owned(s.store).UsageEntries(ctx, key, nil, 0, 1); err != nil {
		return nil, err
	}
	own, err := s.sums(ctx, key.Tenant, store.UsageQuery{Sessions: []string{key.SessionID}, RunID: runID, UserID: user})
	if err != nil {
		return nil, err
	}
	tokens := []session.UsageKind{session.UsageTokens}
	family, err := s.sums(ctx, key.Tenant, store.UsageQuery{Family: key.SessionID, UserID: user, Kinds: tokens})
	if err != nil {
		return nil, err
	}
	rollup := rollUp(own)
	rollup.RunId = runID
	all := rollUp(family)
	rollup.TokensIncludingSubAgents, rollup.TokensIncludingSubAgentsByModel = all.GetTokens(), all.GetTokensByModel()
	return &statev1.GetUsageRollupResponse{Rollup: rollup}, nil
}

// sums gives Exhausted (QUERY_TOO_LARGE) for more sums than one response may have.
func (s *usageService) sums(ctx context.Context, tenant string, q store.UsageQuery) ([]store.UsageSum, error) {
	limit := s.runner.limits.UsageSums
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
	x := s.runner.read(r)
	q := readUsageQuery(x, r)
	if x.err != nil {
		return nil, x.err
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

// readUsageQuery reads the conditions. Invalid (ID_INVALID, QUERY_INVALID), Denied (OWNER_REFUSED).
func readUsageQuery(x *reader, r *statev1.QueryUsageRequest) store.UsageQuery {
	const reason, shortestBucket, maxQueried = "QUERY_INVALID", 1000, 1000
	from, before, bucket := r.GetRecordedFrom(), r.GetRecordedBefore(), r.GetBucketMs()
	switch {
	case len(r.GetSessionIds()) > maxQueried || len(r.GetModels()) > maxQueried:
		x.refuse(reason, "the query names %d sessions and %d models; the limit of each is %d",
			len(r.GetSessionIds()), len(r.GetModels()), maxQueried)
	case bucket != 0 && bucket < shortestBucket:
		x.refuse(reason, "bucket_ms is %d; give at least %d, or 0 for one bucket", bucket, shortestBucket)
	case from < 0 || before < 0 || before != 0 && before <= from:
		x.refuse(reason, "the time from %d to %d is empty", from, before)
	}
	x.id("tenant", r.GetTenant())
	return store.UsageQuery{
		UserID: x.user(r.GetUserId()), AgentType: x.optionalID("agent_type", r.GetAgentType()),
		Sessions: x.eachID("a session id", r.GetSessionIds()), Models: x.eachID("a model", r.GetModels()), Kinds: readUsageKinds(x, r.GetKinds()),
		From: session.Millis(from), Before: session.Millis(before), Bucket: session.Millis(bucket),
	}
}

const (
	maxUsageNumber = 1_000_000_000_000 // of each number of an entry: nine million of them can be added up
	maxUsageValue  = 1e15              // of a custom entry, absolute: sums stay far below the limit of a float
)

// usageSources are the valid sources. The first is the default.
var usageSources = []string{"agent", "tool", "subagent"}

// usage gives Invalid (USAGE_INVALID).
func (x *reader) usage(entries []*eventv1.UsageEntry) []session.Usage {
	if len(entries) > x.limits.UsageEntries {
		x.refuse("USAGE_INVALID", "there are %d usage entries; the limit of one request is %d", len(entries), x.limits.UsageEntries)
	}
	rows := slices.Grow([]session.Usage(nil), len(entries))
	for i, e := range entries {
		row, problem := usageEntryIn(e)
		if problem != "" {
			x.refuse("USAGE_INVALID", "usage[%d] %s", i, problem)
			return nil
		}
		rows = append(rows, row)
	}
	return rows
}

// usageEntryIn converts an entry, or describes its fault.
func usageEntryIn(e *eventv1.UsageEntry) (u session.Usage, problem string) {
	switch entry := e.GetEntry().(type) {
	case *eventv1.UsageEntry_Tokens:
		t := entry.Tokens
		u = session.Usage{
			Kind: session.UsageTokens, Model: t.GetModel(), PromptTokens: t.GetPromptTokens(), CompletionTokens: t.GetCompletionTokens(),
			ReasoningTokens: t.GetReasoningTokens(), CachedTokens: t.GetCachedTokens(), TotalTokens: t.GetTotalTokens(),
		}
	case *eventv1.UsageEntry_Tool:
		t := entry.Tool
		u = session.Usage{Kind: session.UsageTool, Tool: t.GetToolName(), Success: t.GetSuccess(), DurationMS: t.GetDurationMs()}
	case *eventv1.UsageEntry_SubAgent:
		s := entry.SubAgent
		u = session.Usage{Kind: session.UsageSubAgent, Tool: s.GetToolName(), Success: s.GetSuccess(), DurationMS: s.GetDurationMs()}
	case *eventv1.UsageEntry_Custom:
		u = session.Usage{Kind: session.UsageCustom, Type: entry.Custom.GetType(), Name: entry.Custom.GetName(), Value: entry.Custom.GetValue()}
	default:
		return u, "has no measurement; give tokens, a tool, a sub-agent or a custom value"
	}
	if u.Source = e.GetSource(); u.Source == "" {
		u.Source = usageSources[0]
	}
	if !slices.Contains(usageSources, u.Source) {
		return u, "has an unknown source; give agent, tool or subagent"
	}
	name := u.Model + u.Tool
	if u.Kind == session.UsageCustom {
		name = u.Name
		if p := idProblem(u.Type); p != "" {
			return u, "has a model, tool, type or name that " + p
		}
	}
	if p := idProblem(name); p != "" {
		return u, "has a model, tool, type or name that " + p
	}
	for _, n := range []int64{u.PromptTokens, u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens, u.DurationMS} {
		if n < 0 || n > maxUsageNumber {
			return u, "has a number that is negative or above 10^12"
		}
	}
	if math.IsNaN(u.Value) || math.Abs(u.Value) > maxUsageValue {
		return u, "has a value that is not a number or beyond 10^15"
	}
	return u, ""
}
