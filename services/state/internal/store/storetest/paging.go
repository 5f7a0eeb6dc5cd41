package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var paging = []suiteCase{
	{"offset pages contain each session once", func(h *harness) {
		m := h.populateSessions(60)
		for _, q := range []store.SessionQuery{{},
			{Any: []session.Facet{session.TagFacet("a"), session.TagFacet("b"), session.UserFacet("u1")}}} {
			seen := map[string]bool{}
			for offset := 0; ; offset += 7 {
				q.Offset, q.Limit = offset, 7
				list, err := h.Store.Sessions(h.Context(), "acme", q)
				h.must(err)
				for _, s := range list {
					if seen[s.SessionID] {
						h.Errorf("%q came twice", s.SessionID)
					}
					seen[s.SessionID] = true
				}
				if len(list) < 7 {
					break
				}
			}
			want := 0
			for _, s := range m.sessions {
				if s.Tenant == "acme" && fits(&s, q) {
					want++
				}
			}
			same(h, "sessions seen", len(seen), want)
		}
	}},
	{"cursor pages contain each session once during concurrent changes", func(h *harness) {
		h.populateSessions(90)
		all, err := h.Store.Sessions(h.Context(), "acme", store.SessionQuery{Limit: 1000})
		h.must(err)
		done := make(chan struct{})
		h.whileWatching(func() {
			for round := range 3 {
				h.readPages(all, store.SessionQuery{Limit: 4 + round})
				h.readPages(all, store.SessionQuery{Limit: 5,
					Any: []session.Facet{session.TagFacet("a"), session.StatusFacet(session.Active), session.UserFacet("u1")}})
			}
			close(done)
		}, h.createAndDelete(done))
	}},
	{"a list read during status changes contains each session once", func(h *harness) {
		const n = 20
		for i := range n {
			h.create(h.createOf(at(fmt.Sprint(i))))
		}
		either := []session.Facet{session.StatusFacet(session.Paused), session.StatusFacet(session.Interrupted)}
		done := make(chan struct{})
		h.whileWatching(func() {
			for round := range 3 {
				for i := range n {
					_, err := h.setStatus(session.SetStatus{Key: at(fmt.Sprint(i)), Status: []session.Status{session.Interrupted, session.Paused}[round%2],
						Now: h.now})
					if err != nil {
						h.Error(err)
					}
				}
			}
			close(done)
		}, func() bool {
			list, err := h.Store.Sessions(h.Context(), home.Tenant, store.SessionQuery{Any: either, Limit: 100})
			if err != nil || len(list) != n {
				h.Errorf("got %d sessions, %v; want %d", len(list), err, n)
			}
			count, err := h.Store.CountSessions(h.Context(), home.Tenant, store.SessionQuery{Any: either}, 0)
			if err != nil || count != n {
				h.Errorf("counted %d sessions, %v; want %d", count, err, n)
			}
			return isClosed(done)
		})
	}},
}

// readPages reads all pages by cursor, and fails the test unless they contain each session of
// stay once and in order.
func (h *harness) readPages(stay []session.Session, q store.SessionQuery) {
	h.Helper()
	var got, want []string
	staying := map[string]bool{}
	for _, s := range stay {
		if fits(&s, q) {
			want = append(want, s.SessionID)
			staying[s.SessionID] = true
		}
	}
	for {
		list, err := h.Store.Sessions(h.Context(), "acme", q)
		h.must(err)
		for i, s := range list {
			if staying[s.SessionID] {
				got = append(got, s.SessionID)
			}
			if i > 0 && compareSessions(list[i-1], s) >= 0 {
				h.Errorf("%q came before %q", list[i-1].SessionID, s.SessionID)
			}
		}
		if len(list) < q.Limit {
			break
		}
		last := list[len(list)-1]
		q.After = &store.SessionPlace{CreatedAt: last.CreatedAt, SessionID: last.SessionID}
	}
	same(h, "sessions met", got, want)
}

// createAndDelete creates and deletes sessions of all ages.
func (h *harness) createAndDelete(done chan struct{}) func() bool {
	round := 0
	return func() bool {
		round++
		key := at(fmt.Sprint("transient ", round%5))
		c := h.createOf(key)
		c.Now, c.Tags = session.Millis(990+round*7%50), []string{"a"}
		if _, err := h.tryCreate(c); err != nil {
			h.Errorf("create: %v", err)
		}
		if err := h.delete(key); err != nil {
			h.Errorf("delete: %v", err)
		}
		return isClosed(done)
	}
}
