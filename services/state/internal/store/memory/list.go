package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Sessions implements store.Lister.
func (m *Store) Sessions(ctx context.Context, tenant string, q store.SessionQuery) ([]session.Session, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	found := m.matching(tenant, q)
	slices.SortFunc(found, func(a, b *session.Session) int { return place(b).compare(place(a)) })
	if q.After != nil {
		found = slices.DeleteFunc(found, func(s *session.Session) bool { return place(s).compare(placing(*q.After)) >= 0 })
	}
	found = found[min(q.Offset, len(found)):]
	found = found[:min(q.Limit, len(found))]
	var page []session.Session
	for _, s := range found {
		c := copySession(*s)
		c.Output = ""
		page = append(page, c)
	}
	return page, nil
}

// CountSessions implements store.Lister.
func (m *Store) CountSessions(ctx context.Context, tenant string, q store.SessionQuery, most int) (int64, error) {
	if err := m.enter(ctx); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	n := len(m.matching(tenant, q))
	if most != 0 {
		n = min(n, most)
	}
	return int64(n), nil
}

// matching returns the sessions that fit the conditions, in no order.
func (m *Store) matching(tenant string, q store.SessionQuery) []*session.Session {
	var found []*session.Session
	for key, r := range m.sessions {
		s := &r.session
		if key.Tenant == tenant && s.CreatedAt >= q.From && (q.Before == 0 || s.CreatedAt < q.Before) && fits(s.Facets(), q) {
			found = append(found, s)
		}
	}
	return found
}

func fits(facets []session.Facet, q store.SessionQuery) bool {
	has := func(f session.Facet) bool { return slices.Contains(facets, f) }
	lacks := func(f session.Facet) bool { return !has(f) }
	return !slices.ContainsFunc(q.All, lacks) && (len(q.Any) == 0 || slices.ContainsFunc(q.Any, has))
}

// placing orders sessions by their age, then their id.
type placing store.SessionPlace

func place(s *session.Session) placing { return placing{s.CreatedAt, s.SessionID} }

func (p placing) compare(o placing) int {
	return cmp.Or(cmp.Compare(p.CreatedAt, o.CreatedAt), cmp.Compare(p.SessionID, o.SessionID))
}

// Overdue implements store.Lister.
func (m *Store) Overdue(ctx context.Context, now session.Millis, limit int) ([]session.Key, error) {
	return m.longest(ctx, limit, func(r *rows) session.Millis {
		var first session.Millis
		for _, c := range r.calls {
			if c.Answer == "" && c.DeadlineAt > 0 && c.DeadlineAt <= now && (first == 0 || c.DeadlineAt < first) {
				first = c.DeadlineAt
			}
		}
		return first
	})
}

// Expired implements store.Lister.
func (m *Store) Expired(ctx context.Context, now session.Millis, limit int) ([]session.Key, error) {
	return m.longest(ctx, limit, func(r *rows) session.Millis {
		if s := r.session; !s.Status.Terminal() && s.ExpiresAt > 0 && s.ExpiresAt <= now {
			return s.ExpiresAt
		}
		return 0
	})
}

// longest returns the sessions that have waited the longest since a time;
// those without one do not count.
func (m *Store) longest(ctx context.Context, limit int, since func(*rows) session.Millis) ([]session.Key, error) {
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	times := map[session.Key]session.Millis{}
	var keys []session.Key
	for key, r := range m.sessions {
		if at := since(r); at > 0 {
			times[key] = at
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b session.Key) int {
		return cmp.Or(cmp.Compare(times[a], times[b]), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.SessionID, b.SessionID))
	})
	return keys[:min(limit, len(keys))], nil
}
