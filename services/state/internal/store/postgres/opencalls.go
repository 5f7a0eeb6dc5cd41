package postgres

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// The open calls of a tenant are walked in their order by the index calls_open, until the page is
// full. Those of a user are found by the sessions of the user, and sorted.
const (
	openCalls = `c.answer = '' AND c.consumed_at = 0 AND c.run_id <> '' AND c.kind <> 'sub_agent'
		AND (c.created_at, c.root_id COLLATE "C", c.call_id) > ($2::bigint, $3::text COLLATE "C", $4::text COLLATE "C")
		AND ($5::text = '' OR c.tool_name = $5::text) AND ($6::text = '' OR c.kind = $6::text)`
	withSession = ` CROSS JOIN LATERAL (SELECT agent_type, user_id FROM sessions WHERE tenant = c.tenant AND session_id = c.session_id OFFSET 0) s
		WHERE ($7::text = '' OR s.agent_type = $7::text)`
	inOrder = ` ORDER BY c.created_at, c.root_id COLLATE "C", c.call_id LIMIT $8::bigint`
)

var (
	openCallFields = `SELECT c.root_id, s.agent_type, s.user_id, ` + callColumns.Select("c")
	openCallsOfAll = prepared(openCallFields + ` FROM calls c` + withSession + ` AND c.tenant = $1::text AND ` + openCalls + inOrder)

	openCallsOfUser = prepared(openCallFields + ` FROM session_facets f
		CROSS JOIN LATERAL (SELECT * FROM calls c WHERE c.tenant = f.tenant AND c.session_id = f.session_id COLLATE "default" AND ` + openCalls + ` OFFSET 0) c` +
		withSession + ` AND f.tenant = $1::text AND f.facet = $9::bytea` + inOrder)
)

// OpenCalls implements store.Lister.
func (s *Store) OpenCalls(ctx context.Context, tenant string, q store.CallQuery) (page []store.OpenCall, err error) {
	args := []any{tenant, int64(q.After.CreatedAt), q.After.RootID, q.After.CallID, q.ToolName, string(q.Kind), q.AgentType, q.Limit}
	query := openCallsOfAll
	if q.UserID != "" {
		query, args = openCallsOfUser, append(args, []byte(session.UserFacet(q.UserID)))
	}
	err = s.query(ctx, query, scanEach(func(to []any, c *store.OpenCall) []any {
		return callColumns.Destinations(append(to, &c.RootID, &c.AgentType, &c.UserID), &c.Call)
	}, func(c *store.OpenCall) { page = append(page, *c) }), args...)
	return page, wrap(ctx, err, "list the open calls of tenant %q", tenant)
}
