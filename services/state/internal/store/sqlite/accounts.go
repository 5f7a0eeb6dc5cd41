package sqlite

import (
	"context"
	"math"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// UsageEntries implements store.Reader.
func (s ownedReader) UsageEntries(
	ctx context.Context, key session.Key, kinds []session.UsageKind, offset, limit int,
) (page []session.UsageEntry, err error) {
	err = s.readOf(ctx, key, func(c *connection, _ *session.Session) error {
		return c.forEach(ctx, `SELECT `+usageColumns.Select("u")+`
			FROM usage_entries u WHERE tenant = ?1 AND session_id = ?2 AND (?3 = '[]' OR kind IN (SELECT value FROM json_each(?3)))
			ORDER BY recorded_at, run_id, step, position LIMIT 0 + ?4 OFFSET ?5`,
			arguments(key.Tenant, key.SessionID, jsonList(kinds), limit, offset), func(row scanner) error {
				var u session.UsageEntry
				err := row.Scan(usageColumns.Destinations(nil, &u)...)
				page = append(page, u)
				return err
			})
	})
	return page, wrap(ctx, err, "read usage of session %q", key.SessionID)
}

// UsageSums implements store.Accounts.
func (s *Store) UsageSums(ctx context.Context, tenant string, q store.UsageQuery, limit int) (sums []store.UsageSum, err error) {
	err = s.read(ctx, func(c *connection) error {
		conditions, args, err := usageConditions(ctx, c, tenant, q)
		if err != nil {
			return err
		}
		return c.forEach(ctx, `SELECT CASE WHEN ?1 > 0 THEN u.recorded_at - u.recorded_at % ?1 ELSE 0 END AS bucket,
				u.kind, u.source, u.model, u.tool, u.type, u.name, sum(u.prompt_tokens), sum(u.completion_tokens), sum(u.reasoning_tokens),
				sum(u.cached_tokens), sum(u.total_tokens), sum(u.duration_ms), total(u.value), count(*), sum(u.success),
				min(u.recorded_at), max(u.recorded_at)
			FROM usage_entries u WHERE u.tenant = ?2`+conditions+`
			GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2, 3, 4, 5, 6, 7 LIMIT 0 + ?`,
			append(append(arguments(q.Bucket, tenant), args...), limit), func(row scanner) error {
				var m store.UsageSum
				u := &m.Usage
				err := row.Scan(&m.Bucket, &u.Kind, &u.Source, &u.Model, &u.Tool, &u.Type, &u.Name, &u.PromptTokens, &u.CompletionTokens,
					&u.ReasoningTokens, &u.CachedTokens, &u.TotalTokens, &u.DurationMS, &u.Value, &m.Count, &m.Success, &m.First, &m.Last)
				sums = append(sums, m)
				return err
			})
	})
	return sums, wrap(ctx, err, "add up usage of tenant %q", tenant)
}

// usageConditions returns the conditions on entries u, and their arguments in order.
func usageConditions(ctx context.Context, c *connection, tenant string, q store.UsageQuery) (conditions string, args []any, err error) {
	add := func(wanted bool, condition string, values ...any) {
		if wanted {
			conditions += ` AND ` + condition
			args = append(args, values...)
		}
	}
	const faceted = `u.session_id IN (SELECT f.session_id FROM session_facets f WHERE f.tenant = ? AND f.facet = ?)`
	add(len(q.Sessions) > 0, `u.session_id IN (SELECT value FROM json_each(?))`, jsonList(q.Sessions))
	if q.Family != "" {
		family, err := familyIDs(ctx, c, session.Key{Tenant: tenant, SessionID: q.Family}, math.MaxInt)
		if err != nil {
			return "", nil, err
		}
		add(true, `u.session_id IN (SELECT value FROM json_each(?))`, jsonList(family))
	}
	add(q.UserID != "", faceted, tenant, session.UserFacet(q.UserID))
	add(q.AgentType != "", faceted, tenant, session.AgentFacet(q.AgentType))
	add(q.RunID != "", `u.run_id = ?`, q.RunID)
	add(len(q.Kinds) > 0, `u.kind IN (SELECT value FROM json_each(?))`, jsonList(q.Kinds))
	add(len(q.Models) > 0, `u.model IN (SELECT value FROM json_each(?))`, jsonList(q.Models))
	add(q.From != 0, `u.recorded_at >= ?`, q.From)
	add(q.Before != 0, `u.recorded_at < ?`, q.Before)
	return conditions, args, nil
}
