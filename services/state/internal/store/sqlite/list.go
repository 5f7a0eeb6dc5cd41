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

// search builds the query that finds sessions by their facets. One facet, or
// each of several alternatives, is walked in the order of the list from the place
// where the page begins; the others are looked up in passing by their primary
// key. So the work follows the page and what is passed over for it, not the
// sessions that there are.
type search struct {
	tenant   string
	walked   []session.Facet // at least one; a session has one of them
	all, any []session.Facet // looked up
	from     session.Millis
	below    store.SessionPlace // exclusive
	reach    int                // how many of each walk can matter
}

// firstProbe is how far facets are counted to find the one that leaves the
// least to walk. While all have more, they are counted ten times as far, at most to
// lastProbe.
const firstProbe, lastProbe = 1000, 10_000

// plan chooses what is walked.
func plan(ctx context.Context, c *connection, tenant string, q store.SessionQuery) (*search, error) {
	f := &search{tenant: tenant, from: q.From, below: store.SessionPlace{CreatedAt: math.MaxInt64}, reach: math.MaxInt}
	if q.Before != 0 {
		f.below.CreatedAt = q.Before
	}
	if a := q.After; a != nil && a.CreatedAt < f.below.CreatedAt {
		f.below = *a
	}
	f.all = slices.DeleteFunc(slices.Clone(q.All), func(facet session.Facet) bool { return facet == session.AllSessions })
	slices.Sort(f.all)
	f.all = slices.Compact(f.all)
	f.any = slices.Clone(q.Any)
	slices.Sort(f.any)
	f.any = slices.Compact(f.any)
	switch {
	case len(f.all) > 0:
		return f, f.walkRarest(ctx, c)
	case len(f.any) > 0:
		f.walked, f.any = f.any, nil
	default:
		f.walked = []session.Facet{session.AllSessions}
	}
	return f, nil
}

// walkRarest takes the one of all that has the fewest sessions in the range; of
// those that cannot be told apart, the one whose kind drives best.
func (f *search) walkRarest(ctx context.Context, c *connection) error {
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

// count counts the sessions in the range that have the facet, up to most.
func (f *search) count(ctx context.Context, c *connection, facet session.Facet, most int) (n int, err error) {
	_, err = c.one(ctx, `SELECT count(*) FROM (SELECT 1 FROM session_facets f WHERE f.tenant = ? AND f.facet = ? AND f.created_at >= ?
		AND (f.created_at, f.session_id) < (?, ?) LIMIT ?)`,
		arguments(f.tenant, facet, f.from, f.below.CreatedAt, f.below.SessionID, most), &n)
	return n, err
}

// text returns the query for the places that fit, the youngest first, and its
// arguments. Of several walks each is ordered and bounded, and a session that is met
// twice counts once.
func (f *search) text() (string, []any) {
	var walks []string
	var args []any
	for _, facet := range f.walked {
		walk := `SELECT f.created_at, f.session_id FROM session_facets f WHERE f.tenant = ? AND f.facet = ? AND f.created_at >= ?
			AND (f.created_at, f.session_id) < (?, ?)`
		args = append(args, f.tenant, facet, f.from, f.below.CreatedAt, f.below.SessionID)
		for _, also := range f.all {
			walk += lookup + ` g.facet = ?)`
			args = append(args, also)
		}
		if len(f.any) > 0 {
			walk += lookup + ` g.facet IN (?` + strings.Repeat(`, ?`, len(f.any)-1) + `))`
			for _, one := range f.any {
				args = append(args, one)
			}
		}
		walks = append(walks, walk+` ORDER BY f.created_at DESC, f.session_id DESC LIMIT ?`)
		args = append(args, f.reach)
	}
	if len(walks) == 1 {
		return walks[0], args
	}
	return `SELECT * FROM (` + strings.Join(walks, `) UNION SELECT * FROM (`) + `) ORDER BY created_at DESC, session_id DESC`, args
}

// lookup begins the condition that a session has another facet.
const lookup = ` AND EXISTS (SELECT 1 FROM session_facets g WHERE g.tenant = f.tenant AND g.created_at = f.created_at AND g.session_id = f.session_id AND`

// Sessions implements store.Lister.
func (s *Store) Sessions(ctx context.Context, tenant string, q store.SessionQuery) (page []session.Session, err error) {
	err = s.read(ctx, func(c *connection) error {
		f, err := plan(ctx, c, tenant, q)
		if err != nil {
			return err
		}
		f.reach = q.Offset + q.Limit
		places, args := f.text()
		return c.each(ctx, `SELECT s.session_id, `+sessionListed.Select("s")+` FROM (SELECT * FROM (`+places+`) LIMIT ? OFFSET ?) p
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
		f, err := plan(ctx, c, tenant, q)
		if err != nil {
			return err
		}
		if most > 0 {
			f.reach = most
		}
		places, args := f.text()
		_, err = c.one(ctx, `SELECT count(*) FROM (SELECT * FROM (`+places+`) LIMIT ?)`, append(args, f.reach), &n)
		return err
	})
	return n, wrap(ctx, err, "count sessions of tenant %q", tenant)
}

// Overdue implements store.Lister.
func (s *Store) Overdue(ctx context.Context, now session.Millis, limit int) ([]session.Key, error) {
	return s.waiting(ctx, limit, `SELECT tenant, session_id FROM calls WHERE answer = '' AND deadline_at > 0 AND deadline_at <= ?
		ORDER BY deadline_at, tenant, session_id`, now)
}

// Expired implements store.Lister.
func (s *Store) Expired(ctx context.Context, now session.Millis, limit int) ([]session.Key, error) {
	return s.waiting(ctx, limit, `SELECT tenant, session_id FROM sessions
		WHERE expires_at > 0 AND status NOT IN ('completed', 'failed') AND expires_at <= ? ORDER BY expires_at, tenant, session_id`, now)
}

// waiting returns the first sessions of a query, each once.
func (s *Store) waiting(ctx context.Context, limit int, query string, now session.Millis) (keys []session.Key, err error) {
	seen := map[session.Key]bool{}
	err = s.read(ctx, func(c *connection) error {
		return c.some(ctx, query, arguments(now), func(row scanner) (more bool, err error) {
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
	return keys, wrap(ctx, err, "find sessions that wait")
}
