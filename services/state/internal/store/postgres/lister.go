package postgres

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// A list walks one facet, the driving one, from the newest session to the oldest, and
// looks up the other facets by key for each session. The parameters of all lists are:
// the tenant, the driving facets, the required facets, alternative facets (an empty
// array is no condition), the bounds of the creation
// time, and the place after which the page begins. OFFSET 0 keeps the planner from
// rearranging the subqueries, as in joinAll.
const (
	// facetWalk walks the driving facet d, number d.n of them. A session with
	// several driving facets is returned for the first one only.
	facetWalk = `SELECT f.created_at, f.session_id FROM session_facets f
		WHERE f.tenant = $1::text AND f.facet = d.facet
			AND f.created_at >= $5::bigint AND f.created_at < $6::bigint
			AND (f.created_at, f.session_id) < ($7::bigint, $8::text)
			AND NOT EXISTS (SELECT 1 FROM unnest($3::bytea[]) AS o (facet) WHERE NOT ` + hasFacet + ` OFFSET 0)
			AND (cardinality($4::bytea[]) = 0 OR EXISTS (SELECT 1 FROM unnest($4) AS o (facet) WHERE ` + hasFacet + ` OFFSET 0))
			AND (d.n = 1 OR NOT EXISTS (SELECT 1 FROM unnest(($2::bytea[])[:d.n - 1]) AS o (facet) WHERE ` + hasFacet + ` OFFSET 0))`
	hasFacet = `EXISTS (SELECT 1 FROM session_facets g
				WHERE g.tenant = f.tenant AND g.facet = o.facet AND g.created_at = f.created_at AND g.session_id = f.session_id OFFSET 0)`
	drivingFacets = `unnest($2::bytea[]) WITH ORDINALITY AS d (facet, n)`
)

var (
	pageOfSessions = prepared(`SELECT s.session_id, ` + sessionListed.Select("s") + ` FROM (
			SELECT w.created_at, w.session_id FROM ` + drivingFacets + `
			CROSS JOIN LATERAL (` + facetWalk + ` ORDER BY f.created_at DESC, f.session_id DESC LIMIT $9::bigint + $10::bigint) w
			ORDER BY w.created_at DESC, w.session_id DESC OFFSET $9 LIMIT $10) page
		CROSS JOIN LATERAL (SELECT * FROM sessions WHERE tenant = $1 AND session_id = page.session_id COLLATE "default" OFFSET 0) s
		ORDER BY page.created_at DESC, page.session_id DESC`)

	countOfSessions = prepared(`SELECT count(*) FROM (SELECT 1 FROM ` + drivingFacets + `
		CROSS JOIN LATERAL (` + facetWalk + `) w LIMIT $9::bigint) found`)

	// sizesOfFacets counts the sessions of each facet, up to maxFacetSize.
	sizesOfFacets = prepared(`SELECT (SELECT count(*) FROM (SELECT 1 FROM session_facets f
			WHERE f.tenant = $1::text AND f.facet = d.facet AND f.created_at >= $3::bigint AND f.created_at < $4::bigint LIMIT $5::bigint) part)
		FROM ` + drivingFacets + ` ORDER BY d.n`)
)

// maxFacetSize is how far the sessions of a facet are counted to find the driving one.
// Between larger facets, their kind decides.
const maxFacetSize = 1000

// Sessions implements store.Lister.
func (s *Store) Sessions(ctx context.Context, tenant string, q store.SessionQuery) (page []session.Session, err error) {
	args, err := s.listArguments(ctx, tenant, q)
	if err == nil {
		args = append(args, q.Offset, q.Limit)
		err = s.query(ctx, pageOfSessions, scanEach(func(to []any, s *session.Session) []any {
			s.Tenant = tenant
			return sessionListed.Destinations(append(to, &s.SessionID), s)
		}, func(s *session.Session) { page = append(page, *s) }), args...)
	}
	return page, wrap(ctx, err, "list sessions of tenant %q", tenant)
}

// CountSessions implements store.Lister.
func (s *Store) CountSessions(ctx context.Context, tenant string, q store.SessionQuery, most int) (count int64, err error) {
	if most == 0 {
		most = math.MaxInt64
	}
	q.After = nil
	args, err := s.listArguments(ctx, tenant, q)
	if err == nil {
		err = s.query(ctx, countOfSessions, scanInto(&count), append(args, most)...)
	}
	return count, wrap(ctx, err, "count sessions of tenant %q", tenant)
}

// listArguments returns the first arguments, common to all lists.
func (s *Store) listArguments(ctx context.Context, tenant string, q store.SessionQuery) ([]any, error) {
	before := q.Before
	if before == 0 {
		before = math.MaxInt64
	}
	after := store.SessionPlace{CreatedAt: math.MaxInt64}
	if q.After != nil {
		after = *q.After
	}
	required := slices.DeleteFunc(slices.Clone(q.All), func(f session.Facet) bool { return f == session.AllSessions })
	slices.Sort(required)
	required = slices.Compact(required)
	beside := q.Any
	var driving []session.Facet
	switch {
	case len(required) > 0:
		driver, err := s.rarest(ctx, tenant, required, q.From, before)
		if err != nil {
			return nil, err
		}
		driving = required[driver : driver+1]
		required = slices.Concat(required[:driver], required[driver+1:])
	case len(q.Any) > 0:
		driving, beside = q.Any, nil
	default:
		driving = []session.Facet{session.AllSessions}
	}
	return []any{
		tenant, asBytes(driving), asBytes(required), asBytes(beside), int64(q.From), int64(before), int64(after.CreatedAt), after.SessionID,
	}, nil
}

// asBytes returns facets as an argument. Facets are bytes, because the value of a
// metadata pair may contain a zero character, and text columns take none.
func asBytes(facets []session.Facet) [][]byte {
	list := make([][]byte, len(facets))
	for i, f := range facets {
		list[i] = []byte(f)
	}
	return list
}

// rarest returns the index of the facet with the fewest sessions.
func (s *Store) rarest(ctx context.Context, tenant string, among []session.Facet, from, before session.Millis) (int, error) {
	if len(among) == 1 {
		return 0, nil
	}
	var sizes []int64
	err := s.query(ctx, sizesOfFacets, scanEach(single[int64], func(n *int64) { sizes = append(sizes, *n) }),
		tenant, asBytes(among), int64(from), int64(before), maxFacetSize)
	if err != nil {
		return 0, err
	}
	best := 0
	for i := range among {
		if cmp.Or(cmp.Compare(sizes[i], sizes[best]), cmp.Compare(among[i].Rank(), among[best].Rank())) < 0 {
			best = i
		}
	}
	return best, nil
}

// A session with several overdue calls is returned once, at its first deadline.
var (
	readOverdue = prepared(`SELECT c.tenant, c.session_id FROM calls c
		WHERE c.answer = '' AND c.deadline_at > 0 AND c.deadline_at <= $1::bigint
			AND NOT EXISTS (SELECT 1 FROM calls e WHERE e.tenant = c.tenant AND e.session_id = c.session_id AND e.consumed_at = 0
				AND e.answer = '' AND e.deadline_at > 0 AND (e.deadline_at, e.call_id) < (c.deadline_at, c.call_id) OFFSET 0)
		ORDER BY c.deadline_at LIMIT $2::bigint`)
	readExpired = prepared(`SELECT s.tenant, s.session_id FROM sessions s
		WHERE s.expires_at > 0 AND s.expires_at <= $1::bigint AND s.status NOT IN ('completed', 'failed')
		ORDER BY s.expires_at LIMIT $2::bigint`)
)

// Overdue implements store.Lister.
func (s *Store) Overdue(ctx context.Context, now session.Millis, limit int) ([]session.Key, error) {
	keys, err := s.keys(ctx, readOverdue, now, limit)
	return keys, wrap(ctx, err, "find overdue calls")
}

// Expired implements store.Lister.
func (s *Store) Expired(ctx context.Context, now session.Millis, limit int) ([]session.Key, error) {
	keys, err := s.keys(ctx, readExpired, now, limit)
	return keys, wrap(ctx, err, "find expired sessions")
}

func (s *Store) keys(ctx context.Context, query *statement, now session.Millis, limit int) (keys []session.Key, err error) {
	err = s.query(ctx, query, scanEach(func(to []any, key *session.Key) []any {
		return append(to, &key.Tenant, &key.SessionID)
	}, func(key *session.Key) { keys = append(keys, *key) }), int64(now), limit)
	return keys, err
}
