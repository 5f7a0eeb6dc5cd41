package postgres

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
	isOpen = `c.answer = '' AND c.consumed_at = 0 AND c.run_id <> '' AND c.kind <> 'sub_agent'
		AND (c.created_at, c.root_id COLLATE "C", c.call_id) > ($2::bigint, $3::text COLLATE "C", $4::text COLLATE "C")`
	openCalls = isOpen + ` AND ($5::text = '' OR c.tool_name = $5::text) AND ($6::text = '' OR c.kind = $6::text)
		AND (c.created_at, c.root_id COLLATE "C", c.call_id) <= ($10::bigint, $11::text COLLATE "C", $12::text COLLATE "C")`
	withSession = ` CROSS JOIN LATERAL (SELECT agent_type, user_id FROM sessions
		WHERE tenant = c.tenant AND session_id = c.session_id OFFSET 0) s
		WHERE ($7::text = '' OR s.agent_type = $7::text)`
	callOrder     = ` ORDER BY c.created_at, c.root_id COLLATE "C", c.call_id`
	ofOthers      = ` AND c.approvers = 'others'` // by the index calls_others
	lastScannable = `SELECT c.created_at, c.root_id, c.call_id FROM calls c WHERE c.tenant = $1::text AND ` + isOpen
	inOrder       = callOrder + ` LIMIT $8::bigint`
)

// pageOfCalls cuts the found calls, one more than the page has, at its limit and its bytes.
func pageOfCalls(found string) *statement {
	return prepared(`SELECT c.found, c.root_id, c.agent_type, c.user_id, ` + callColumns.Select("c") + ` FROM (
			SELECT c.*, count(*) OVER () AS found, row_number() OVER places AS n,
				sum(octet_length(c.input) + octet_length(c.stash) + octet_length(c.response)) OVER places AS bytes
			FROM (SELECT c.*, s.agent_type, s.user_id` + found + inOrder + `) c WINDOW places AS (` + callOrder + `)) c
		WHERE c.n = 1 OR c.n < $8::bigint AND c.bytes <= $9::bigint ORDER BY c.n`)
}

var (
	openCallsOfAll = pageOfCalls(` FROM calls c` + withSession + ` AND c.tenant = $1::text AND ` + openCalls)

	openCallsOfUser = pageOfCalls(` FROM session_facets f
		CROSS JOIN LATERAL (SELECT * FROM calls c WHERE c.tenant = f.tenant AND c.session_id = f.session_id COLLATE "default"
			AND ` + openCalls + ` OFFSET 0) c` +
		withSession + ` AND f.tenant = $1::text AND f.facet = $13::bytea`)

	openCallsOfOthers = pageOfCalls(` FROM calls c` + withSession + ` AND c.tenant = $1::text AND ` + openCalls + ofOthers +
		` AND c.started_by NOT IN ('', 'local', $13::text) AND c.author <> $13::text`)

	lastScannedCall   = prepared(lastScannable + callOrder + ` OFFSET $5::bigint LIMIT 1`)
	lastScannedOthers = prepared(lastScannable + ofOthers + callOrder + ` OFFSET $5::bigint LIMIT 1`)
)

// OpenCalls implements store.Lister.
func (s *Store) OpenCalls(ctx context.Context, tenant string, q store.CallQuery) (page []store.OpenCall, next *store.CallPlace, err error) {
	last, err := s.lastScanned(ctx, tenant, q)
	if err != nil {
		return nil, nil, wrap(ctx, err, "list the open calls of tenant %q", tenant)
	}
	end := store.CallPlace{CreatedAt: math.MaxInt64}
	if last != nil {
		end = *last
	}
	args := []any{
		tenant, int64(q.After.CreatedAt), q.After.RootID, q.After.CallID, q.ToolName, string(q.Kind), q.AgentType, q.Limit + 1, q.MaxBytes,
		int64(end.CreatedAt), end.RootID, end.CallID,
	}
	query := openCallsOfAll
	switch {
	case q.UserID != "":
		query, args = openCallsOfUser, append(args, []byte(session.UserFacet(q.UserID)))
	case q.ApprovableBy != "":
		query, args = openCallsOfOthers, append(args, q.ApprovableBy)
	}
	var found int
	err = s.query(ctx, query, scanEach(func(to []any, c *store.OpenCall) []any {
		return callColumns.Destinations(append(to, &found, &c.RootID, &c.AgentType, &c.UserID), &c.Call)
	}, func(c *store.OpenCall) { page = append(page, *c) }), args...)
	return page, q.Next(page, found, last), wrap(ctx, err, "list the open calls of tenant %q", tenant)
}

// lastScanned returns the place of the last call to examine; nil if all are examined.
func (s *Store) lastScanned(ctx context.Context, tenant string, q store.CallQuery) (last *store.CallPlace, err error) {
	if !q.Scans() {
		return nil, nil //nolint:nilnil // neither a place nor an error
	}
	query := lastScannedCall
	if q.ApprovableBy != "" {
		query = lastScannedOthers
	}
	err = s.query(ctx, query, scanEach(func(to []any, p *store.CallPlace) []any {
		return append(to, &p.CreatedAt, &p.RootID, &p.CallID)
	}, func(p *store.CallPlace) { last = p }), tenant, int64(q.After.CreatedAt), q.After.RootID, q.After.CallID, q.MaxScanned-1)
	return last, err
}
