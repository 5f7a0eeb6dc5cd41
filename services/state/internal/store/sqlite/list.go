package sqlite

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// facetSearch builds the query for sessions by facets. It walks one facet, or each of
// several alternatives, in the order of the list from the start of the page, and looks
// up the other facets by primary key. So the costs depend on the page and the skipped
// sessions, not on the number of sessions.
type facetSearch struct {
	tenant      string
	walked      []session.Facet // the alternatives, at least one
	all, any    []session.Facet // the facets to look up
	from        session.Millis
	before      store.SessionPlace // exclusive
	maxSessions int                // the most sessions to take from each walk
}

// firstProbe is how far sessions are counted to find the rarest facet. While all facets
// reach it, they are counted ten times as far, up to lastProbe.
const firstProbe, lastProbe = 1000, 10_000

// planSearch chooses the facets to walk.
func planSearch(ctx context.Context, c *connection, tenant string, q store.SessionQuery) (*facetSearch, error) {
	f := &facetSearch{tenant: tenant, from: q.From, before: store.SessionPlace{CreatedAt: math.MaxInt64}, maxSessions: math.MaxInt}
	if q.Before != 0 {
		f.before.CreatedAt = q.Before
	}
	if a := q.After; a != nil && a.CreatedAt < f.before.CreatedAt {
		f.before = *a
	}
	f.all = slices.DeleteFunc(slices.Clone(q.All), func(facet session.Facet) bool { return facet == session.AllSessions })
	slices.Sort(f.all)
	f.all = slices.Compact(f.all)
	f.any = slices.Clone(q.Any)
	slices.Sort(f.any)
	f.any = slices.Compact(f.any)
	switch {
	case len(f.all) > 0:
		return f, f.chooseRarest(ctx, c)
	case len(f.any) > 0:
		f.walked, f.any = f.any, nil
	default:
		f.walked = []session.Facet{session.AllSessions}
	}
	return f, nil
}

// chooseRarest walks the facet of all with the fewest sessions in the range. When the
// counts do not decide, the kind of the facets does.
func (f *facetSearch) chooseRarest(ctx context.Context, c *connection) error {
	slices.SortStableFunc(f.all, func(a, b session.Facet) int { return cmp.Compare(a.Rank(), b.Rank()) })
	rarest := 0
	for probe := firstProbe; len(f.all) > 1 && probe <= lastProbe; probe *= 10 {
		fewest := probe
		for i, facet := range f.all {
			n, err := f.count(ctx, c, facet, fewest)
			if err != nil {
				return err
			}
			if n < fewest {
				fewest, rarest = n, i
			}
		}
		if fewest < probe {
			break
		}
	}
	f.walked = []session.Facet{f.all[rarest]}
	f.all = slices.Delete(f.all, rarest, rarest+1)
	return nil
}

// count counts the sessions in the range with the facet, up to most.
func (f *facetSearch) count(ctx context.Context, c *connection, facet session.Facet, most int) (n int, err error) {
	_, err = c.queryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM session_facets f WHERE f.tenant = ? AND f.facet = ? AND f.created_at >= ?
		AND (f.created_at, f.session_id) < (?, ?) LIMIT 0 + ?)`,
		arguments(f.tenant, facet, f.from, f.before.CreatedAt, f.before.SessionID, most), &n)
	return n, err
}

// query returns the query for the matching sessions, the newest first, and its
// arguments. Each of several walks is sorted and bounded. A session in several walks is
// returned once.
func (f *facetSearch) query() (string, []any) {
	var walks []string
	var args []any
	for _, facet := range f.walked {
		walk := `SELECT f.created_at, f.session_id FROM session_facets f WHERE f.tenant = ? AND f.facet = ? AND f.created_at >= ?
			AND (f.created_at, f.session_id) < (?, ?)`
		args = append(args, f.tenant, facet, f.from, f.before.CreatedAt, f.before.SessionID)
		for _, also := range f.all {
			walk += alsoHasFacet + ` g.facet = ?)`
			args = append(args, also)
		}
		if len(f.any) > 0 {
			walk += alsoHasFacet + ` g.facet IN (?` + strings.Repeat(`, ?`, len(f.any)-1) + `))`
			for _, one := range f.any {
				args = append(args, one)
			}
		}
		walks = append(walks, walk+` ORDER BY f.created_at DESC, f.session_id DESC LIMIT 0 + ?`)
		args = append(args, f.maxSessions)
	}
	if len(walks) == 1 {
		return walks[0], args
	}
	return `SELECT * FROM (` + strings.Join(walks, `) UNION SELECT * FROM (`) + `) ORDER BY created_at DESC, session_id DESC`, args
}

// alsoHasFacet is the start of the condition on another facet of the session.
const alsoHasFacet = ` AND EXISTS (SELECT 1 FROM session_facets g
	WHERE g.tenant = f.tenant AND g.created_at = f.created_at AND g.session_id = f.session_id AND`

// Sessions implements store.Lister.
func (s *Store) Sessions(ctx context.Context, tenant string, q store.SessionQuery) (page []session.Session, err error) {
	err = s.read(ctx, func(c *connection) error {
		f, err := planSearch(ctx, c, tenant, q)
		if err != nil {
			return err
		}
		f.maxSessions = q.Offset + q.Limit
		places, args := f.query()
		return c.forEach(ctx, `SELECT s.session_id, `+sessionListed.Select("s")+` FROM (SELECT * FROM (`+places+`) LIMIT 0 + ? OFFSET ?) p
			CROSS JOIN sessions s ON s.tenant = ? AND s.session_id = p.session_id ORDER BY p.created_at DESC, p.session_id DESC`,
			append(args, q.Limit, q.Offset, tenant), func(row scanner) error {
				found := session.Session{}
				found.Tenant = tenant
				err := row.Scan(sessionListed.Destinations([]any{&found.SessionID}, &found)...)
				page = append(page, found)
				return err
			})
	})
	return page, wrap(ctx, err, "list sessions of tenant %q", tenant)
}

// CountSessions implements store.Lister.
func (s *Store) CountSessions(ctx context.Context, tenant string, q store.SessionQuery, most int) (n int64, err error) {
	q.After = nil
	err = s.read(ctx, func(c *connection) error {
		f, err := planSearch(ctx, c, tenant, q)
		if err != nil {
			return err
		}
		if most > 0 {
			f.maxSessions = most
		}
		places, args := f.query()
		_, err = c.queryRow(ctx, `SELECT count(*) FROM (SELECT * FROM (`+places+`) LIMIT 0 + ?)`, append(args, f.maxSessions), &n)
		return err
	})
	return n, wrap(ctx, err, "count sessions of tenant %q", tenant)
}

// Overdue implements store.Lister.
func (s *Store) Overdue(ctx context.Context, now session.Millis, limit int) ([]session.Key, error) {
	return s.findKeys(ctx, limit, `SELECT tenant, session_id FROM calls WHERE answer = '' AND deadline_at > 0 AND deadline_at <= ?
		ORDER BY deadline_at, tenant, session_id`, now)
}

// Expired implements store.Lister.
func (s *Store) Expired(ctx context.Context, now session.Millis, limit int) ([]session.Key, error) {
	return s.findKeys(ctx, limit, `SELECT tenant, session_id FROM sessions
		WHERE expires_at > 0 AND status NOT IN ('completed', 'failed') AND expires_at <= ? ORDER BY expires_at, tenant, session_id`, now)
}

// findKeys returns the first sessions of a query without duplicates.
func (s *Store) findKeys(ctx context.Context, limit int, query string, now session.Millis) (keys []session.Key, err error) {
	seen := map[session.Key]bool{}
	err = s.read(ctx, func(c *connection) error {
		return c.forEachUntil(ctx, query, arguments(now), func(row scanner) (more bool, err error) {
			var key session.Key
			if err := row.Scan(&key.Tenant, &key.SessionID); err != nil {
				return false, err
			}
			if !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
			return len(keys) < limit, nil
		})
	})
	return keys, wrap(ctx, err, "find overdue and expired sessions")
}
