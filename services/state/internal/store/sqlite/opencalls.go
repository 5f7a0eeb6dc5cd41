package sqlite

import (
	"context"
	"math"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// The open calls of a tenant are walked in their order by the index calls_open, until the page is
// full or the last place to examine is reached. Those of a user are found by the sessions of the
// user, and sorted.
const (
	isOpen = `l.answer = '' AND l.consumed_at = 0 AND l.run_id <> '' AND l.kind <> 'sub_agent'
		AND (l.created_at, l.root_id, l.call_id) > (?2, ?3, ?4)`
	callOrder = ` ORDER BY l.created_at, l.root_id, l.call_id`
	openCalls = ` CROSS JOIN sessions s ON s.tenant = l.tenant AND s.session_id = l.session_id
		WHERE l.tenant = ?1 AND ` + isOpen + ` AND (l.created_at, l.root_id, l.call_id) <= (?10, ?11, ?12)
			AND (?5 = '' OR l.tool_name = ?5) AND (?6 = '' OR l.kind = ?6) AND (?7 = '' OR s.agent_type = ?7)` + callOrder + ` LIMIT 0 + ?8`
	openCallsOfAll  = ` FROM calls l INDEXED BY calls_open` + openCalls
	openCallsOfUser = ` FROM (SELECT * FROM session_facets WHERE tenant = ?1 AND facet = ?13) f
		CROSS JOIN calls l INDEXED BY calls_waiting ON l.tenant = f.tenant AND l.session_id = f.session_id` + openCalls
	openCallsOfOthers = ` FROM (SELECT * FROM calls INDEXED BY calls_others
		WHERE tenant = ?1 AND ` + ofOthers + ` AND started_by NOT IN ('', 'local', ?13) AND author <> ?13) l` + openCalls
	lastScannedCall = `SELECT l.created_at, l.root_id, l.call_id FROM calls l INDEXED BY calls_open
		WHERE l.tenant = ?1 AND ` + isOpen + callOrder + ` LIMIT 1 OFFSET 0 + ?5`
	lastScannedOthers = `SELECT l.created_at, l.root_id, l.call_id FROM calls l INDEXED BY calls_others
		WHERE l.tenant = ?1 AND l.approvers = 'others' AND ` + isOpen + callOrder + ` LIMIT 1 OFFSET 0 + ?5`
	ofOthers = `approvers = 'others' AND answer = '' AND consumed_at = 0 AND run_id <> ''`
)

// pageOfCalls cuts the found calls, one more than the page has, at its limit and its bytes.
func pageOfCalls(found string) string {
	return `SELECT l.found, l.root_id, l.agent_type, l.user_id, ` + callFields + ` FROM (
			SELECT l.*, count(*) OVER () AS found, row_number() OVER places AS n,
				sum(octet_length(l.input) + octet_length(l.stash) + octet_length(l.response)) OVER places AS bytes
			FROM (SELECT l.*, s.agent_type, s.user_id` + found + `) l WINDOW places AS (` + callOrder + `)) l
		WHERE l.n = 1 OR l.n < ?8 AND l.bytes <= ?9 ORDER BY l.n`
}

// OpenCalls implements store.Lister.
func (s *Store) OpenCalls(ctx context.Context, tenant string, q store.CallQuery) (page []store.OpenCall, next *store.CallPlace, err error) {
	err = s.read(ctx, func(c *connection) error {
		last, err := lastScanned(ctx, c, tenant, q)
		if err != nil {
			return err
		}
		end := store.CallPlace{CreatedAt: math.MaxInt64}
		if last != nil {
			end = *last
		}
		query, args := openCallsOfAll, arguments(tenant, q.After.CreatedAt, q.After.RootID, q.After.CallID, q.ToolName, q.Kind, q.AgentType,
			q.Limit+1, q.MaxBytes,
			end.CreatedAt, end.RootID, end.CallID)
		switch {
		case q.UserID != "":
			query, args = openCallsOfUser, append(args, string(session.UserFacet(q.UserID)))
		case q.ApprovableBy != "":
			query, args = openCallsOfOthers, append(args, q.ApprovableBy)
		}
		count := 0
		err = c.forEach(ctx, pageOfCalls(query), args, func(row scanner) error {
			var found store.OpenCall
			err := row.Scan(callColumns.Destinations([]any{&count, &found.RootID, &found.AgentType, &found.UserID}, &found.Call)...)
			page = append(page, found)
			return err
		})
		next = q.Next(page, count, last)
		return err
	})
	return page, next, wrap(ctx, err, "list the open calls of tenant %q", tenant)
}

// lastScanned returns the place of the last call to examine; nil if all are examined.
func lastScanned(ctx context.Context, c *connection, tenant string, q store.CallQuery) (*store.CallPlace, error) {
	if !q.Scans() {
		return nil, nil //nolint:nilnil // neither a place nor an error
	}
	var last store.CallPlace
	query := lastScannedCall
	if q.ApprovableBy != "" {
		query = lastScannedOthers
	}
	found, err := c.queryRow(ctx, query, arguments(tenant, q.After.CreatedAt, q.After.RootID, q.After.CallID, q.MaxScanned-1), &last.CreatedAt,
		&last.RootID, &last.CallID)
	if !found {
		return nil, err
	}
	return &last, err
}
