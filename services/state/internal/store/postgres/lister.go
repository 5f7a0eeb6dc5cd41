package postgres

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Lists walk the facets of sessions from the youngest to the oldest. One
// facet drives; the others are looked up by key for each place that it gives.
// The parameters of all are the tenant, the facets that drive, those that a
// session must have besides, those of which it must have one (none: any will
// do), the ends of the times of creation, and the place that the page begins
// behind. OFFSET 0 keeps the planner from taking the queries apart, as in listed.
const (
	// The facet that drives as f, in its order, with the place n of it among
	// those that do. A session that has several of them counts by the first.
	walk = `SELECT f.created_at, f.session_id FROM session_facets f
		WHERE f.tenant = $1::text AND f.facet = d.facet
			AND f.created_at >= $5::bigint AND f.created_at < $6::bigint
			AND (f.created_at, f.session_id) < ($7::bigint, $8::text)
			AND NOT EXISTS (SELECT 1 FROM unnest($3::bytea[]) AS o (facet) WHERE NOT ` + has + ` OFFSET 0)
			AND (cardinality($4::bytea[]) = 0 OR EXISTS (SELECT 1 FROM unnest($4) AS o (facet) WHERE ` + has + ` OFFSET 0))
			AND (d.n = 1 OR NOT EXISTS (SELECT 1 FROM unnest(($2::bytea[])[:d.n - 1]) AS o (facet) WHERE ` + has + ` OFFSET 0))`
	has = `EXISTS (SELECT 1 FROM session_facets g
				WHERE g.tenant = f.tenant AND g.facet = o.facet AND g.created_at = f.created_at AND g.session_id = f.session_id OFFSET 0)`
	drivers = `unnest($2::bytea[]) WITH ORDINALITY AS d (facet, n)`
)

var (
	pageOfSessions = prepared(`SELECT s.session_id, ` + sessionListed.Select("s") + ` FROM (
			SELECT w.created_at, w.session_id FROM ` + drivers + `
			CROSS JOIN LATERAL (` + walk + ` ORDER BY f.created_at DESC, f.session_id DESC LIMIT $9::bigint + $10::bigint) w
			ORDER BY w.created_at DESC, w.session_id DESC OFFSET $9 LIMIT $10) page
		CROSS JOIN LATERAL (SELECT * FROM sessions WHERE tenant = $1 AND session_id = page.session_id COLLATE "default" OFFSET 0) s
		ORDER BY page.created_at DESC, page.session_id DESC`)

	countOfSessions = prepared(`SELECT count(*) FROM (SELECT 1 FROM ` + drivers + ` CROSS JOIN LATERAL (` + walk + `) w LIMIT $9::bigint) found`)

	// How many sessions have a facet, as far as it matters for who drives.
	sizesOfFacets = prepared(`SELECT (SELECT count(*) FROM (SELECT 1 FROM session_facets f
			WHERE f.tenant = $1::text AND f.facet = d.facet AND f.created_at >= $3::bigint AND f.created_at < $4::bigint LIMIT $5::bigint) part)
		FROM ` + drivers + ` ORDER BY d.n`)
)

// sizesMatter is how many sessions of a facet are counted to find the facet
// that drives. Of those that have so many their kind decides.
const sizesMatter = 1000

// Sessions implements store.Lister.
func (s *Store) Sessions(ctx context.Context, tenant string, q store.SessionQuery) (page []session.Session, err error) {
	args, err := s.listing(ctx, tenant, q)
	if err == nil {
		args = append(args, q.Offset, q.Limit)
		err = s.ask(ctx, pageOfSessions, all(func(to []any, s *session.Session) []any {
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
	args, err := s.listing(ctx, tenant, q)
	if err == nil {
		err = s.ask(ctx, countOfSessions, into(&count), append(args, most)...)
	}
	return count, wrap(ctx, err, "count sessions of tenant %q", tenant)
}

// listing returns the parameters that all lists begin with.
func (s *Store) listing(ctx context.Context, tenant string, q store.SessionQuery) ([]any, error) {
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
		driver, err := s.smallest(ctx, tenant, required, q.From, before)
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

// asBytes is the argument for facets. A facet is bytes: the value of a pair of
// metadata may have a zero character, which no text column takes.
func asBytes(facets []session.Facet) [][]byte {
	list := make([][]byte, len(facets))
	for i, f := range facets {
		list[i] = []byte(f)
	}
	return list
}

// smallest returns the index of the facet that the fewest sessions have.
func (s *Store) smallest(ctx context.Context, tenant string, among []session.Facet, from, before session.Millis) (int, error) {
	if len(among) == 1 {
		return 0, nil
	}
	var sizes []int64
	err := s.ask(ctx, sizesOfFacets, all(pointer[int64], func(n *int64) { sizes = append(sizes, *n) }),
		tenant, asBytes(among), int64(from), int64(before), sizesMatter)
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

// A session with several overdue calls counts by the first of them.
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
	err = s.ask(ctx, query, all(func(to []any, key *session.Key) []any {
		return append(to, &key.Tenant, &key.SessionID)
	}, func(key *session.Key) { keys = append(keys, *key) }), int64(now), limit)
	return keys, err
}
