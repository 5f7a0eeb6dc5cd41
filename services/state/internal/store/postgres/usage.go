package postgres

import (
	"context"
	"math"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var readUsage = union("", head, query{usageColumns.Select("u"), `usage_entries u
	WHERE u.tenant = $1::text AND u.session_id = $2::text AND (cardinality($3::text[]) = 0 OR u.kind = ANY ($3))
	ORDER BY u.recorded_at, u.run_id COLLATE "C", u.step, u.position OFFSET $4::bigint LIMIT $5::bigint`})

// UsageEntries implements store.Reader.
func (s ownedReader) UsageEntries(
	ctx context.Context,
	key session.Key,
	kinds []session.UsageKind,
	offset, limit int,
) (page []session.UsageEntry, err error) {
	_, err = s.readOf(ctx, key, readUsage, []any{notNil(kinds), offset, limit},
		scanEach(usageColumns.Destinations, func(u *session.UsageEntry) { page = append(page, *u) }))
	return page, wrap(ctx, err, "read usage of session %q", key.SessionID)
}

// The entries of sessions are found by the keys of the sessions, those of a tenant by
// time. In all queries $2 is the first session of a family, and $3 the sessions.
const (
	usageOfSessions = `SELECT u.* FROM (SELECT DISTINCT unnest($3::text[]) WHERE $2::text IS NOT NULL) AS o (session_id)
		JOIN usage_entries u ON u.tenant = $1::text AND u.session_id = o.session_id`
	usageOfFamily = `SELECT u.* FROM family o
		JOIN usage_entries u ON u.tenant = $1::text AND u.session_id = o.session_id COLLATE "default"
		WHERE cardinality($3::text[]) = 0 OR o.session_id = ANY ($3)`
	usageOfTenant = `SELECT u.* FROM usage_entries u
		WHERE u.tenant = $1::text AND u.recorded_at >= $4::bigint AND u.recorded_at < $5::bigint AND $2::text = ''
			AND cardinality($3::text[]) = 0`

	sumUsage = `, fitting AS (
		SELECT CASE WHEN $11::bigint = 0 THEN 0 ELSE u.recorded_at - u.recorded_at % greatest($11, 1) END AS bucket, u.* FROM found u
		WHERE u.recorded_at >= $4::bigint AND u.recorded_at < $5::bigint
			AND ($6::text = '' OR u.run_id = $6)
			AND (($7::text = '' AND $8::text = '') OR EXISTS (SELECT 1 FROM sessions s
				WHERE s.tenant = u.tenant AND s.session_id = u.session_id AND ($7 = '' OR s.user_id = $7) AND ($8 = '' OR s.agent_type = $8)))
			AND (cardinality($9::text[]) = 0 OR u.kind = ANY ($9))
			AND (cardinality($10::text[]) = 0 OR u.model = ANY ($10)))
		SELECT bucket, kind, source, model, tool, type, name, sum(prompt_tokens)::bigint, sum(completion_tokens)::bigint, sum(reasoning_tokens)::bigint,
			sum(cached_tokens)::bigint, sum(total_tokens)::bigint, sum(duration_ms)::bigint, sum(value), count(*), count(*) FILTER (WHERE success),
			min(recorded_at), max(recorded_at)
		FROM fitting GROUP BY bucket, kind, source, model, tool, type, name
		ORDER BY bucket, kind COLLATE "C", source COLLATE "C", model COLLATE "C", tool COLLATE "C", type COLLATE "C", name COLLATE "C"
		LIMIT $12::bigint`
)

var (
	sumsOfSessions = prepared(`WITH found AS (` + usageOfSessions + `)` + sumUsage)
	sumsOfFamily   = prepared(familyOf + `, found AS (` + usageOfFamily + `)` + sumUsage)
	sumsOfTenant   = prepared(`WITH found AS (` + usageOfTenant + `)` + sumUsage)
)

// UsageSums implements store.Accounts.
func (s *Store) UsageSums(ctx context.Context, tenant string, q store.UsageQuery, limit int) (sums []store.UsageSum, err error) {
	before := q.Before
	if before == 0 {
		before = math.MaxInt64
	}
	query := sumsOfTenant
	switch {
	case q.Family != "":
		query = sumsOfFamily
	case len(q.Sessions) > 0:
		query = sumsOfSessions
	}
	err = s.query(ctx, query, scanEach(sumDestinations, func(sum *store.UsageSum) { sums = append(sums, *sum) }),
		tenant, q.Family, notNil(q.Sessions), int64(q.From), int64(before), q.RunID, q.UserID, q.AgentType,
		notNil(q.Kinds), notNil(q.Models), int64(q.Bucket), limit)
	return sums, wrap(ctx, err, "add up the usage of tenant %q", tenant)
}

func sumDestinations(to []any, s *store.UsageSum) []any {
	u := &s.Usage
	return append(to, (*int64)(&s.Bucket), (*string)(&u.Kind), &u.Source, &u.Model, &u.Tool, &u.Type, &u.Name,
		&u.PromptTokens, &u.CompletionTokens, &u.ReasoningTokens, &u.CachedTokens, &u.TotalTokens,
		&u.DurationMS, &u.Value, &s.Count, &s.Success, (*int64)(&s.First), (*int64)(&s.Last))
}

// notNil returns the items as an argument. A nil slice would be NULL.
func notNil[T ~string](items []T) []string {
	list := make([]string, len(items))
	for i, item := range items {
		list[i] = string(item)
	}
	return list
}
