package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// The open calls of a tenant are walked in their order by the index calls_open, until the page is
// full. Those of a user are found by the sessions of the user, and sorted.
const (
	openCalls = ` CROSS JOIN sessions s ON s.tenant = l.tenant AND s.session_id = l.session_id
		WHERE l.tenant = ?1 AND l.answer = '' AND l.consumed_at = 0 AND l.run_id <> '' AND l.kind <> 'sub_agent'
			AND (l.created_at, l.root_id, l.call_id) > (?2, ?3, ?4) AND (?5 = '' OR l.tool_name = ?5) AND (?6 = '' OR l.kind = ?6) AND (?7 = '' OR s.agent_type = ?7)
		ORDER BY l.created_at, l.root_id, l.call_id LIMIT 0 + ?8`
	openCallsOfAll  = ` FROM calls l INDEXED BY calls_open` + openCalls
	openCallsOfUser = ` FROM (SELECT * FROM session_facets WHERE tenant = ?1 AND facet = ?9) f CROSS JOIN calls l INDEXED BY calls_waiting ON l.tenant = f.tenant AND l.session_id = f.session_id` + openCalls
)

// OpenCalls implements store.Lister.
func (s *Store) OpenCalls(ctx context.Context, tenant string, q store.CallQuery) (page []store.OpenCall, err error) {
	query, args := openCallsOfAll, arguments(tenant, q.After.CreatedAt, q.After.RootID, q.After.CallID, q.ToolName, q.Kind, q.AgentType, q.Limit)
	if q.UserID != "" {
		query, args = openCallsOfUser, append(args, string(session.UserFacet(q.UserID)))
	}
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, `SELECT l.root_id, s.agent_type, s.user_id, `+callFields+query, args, func(row scanner) error {
			var found store.OpenCall
			err := row.Scan(callColumns.Destinations([]any{&found.RootID, &found.AgentType, &found.UserID}, &found.Call)...)
			page = append(page, found)
			return err
		})
	})
	return page, wrap(ctx, err, "list the open calls of tenant %q", tenant)
}
