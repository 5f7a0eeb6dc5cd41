package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var walks = []test{
	{"pages by offset give each session once", func(b *bench) {
		m := b.populate(60)
		for _, q := range []store.SessionQuery{{}, {Any: []session.Facet{session.OfTag("a"), session.OfTag("b"), session.OfUser("u1")}}} {
			seen := map[string]bool{}
			for offset := 0; ; offset += 7 {
				q.Offset, q.Limit = offset, 7
				list, err := b.Store.Sessions(b.Context(), "acme", q)
				b.must(err)
				for _, s := range list {
					if seen[s.SessionID] {
						b.Errorf("%q came twice", s.SessionID)
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
			same(b, "sessions seen", len(seen), want)
		}
	}},
	{"pages by cursor give each session once while others come and go", func(b *bench) {
		b.populate(90)
		all, err := b.Store.Sessions(b.Context(), "acme", store.SessionQuery{Limit: 1000})
		b.must(err)
		done := make(chan struct{})
		b.beside(func() {
			for round := range 3 {
				b.walk(all, store.SessionQuery{Limit: 4 + round})
				b.walk(all, store.SessionQuery{Limit: 5, Any: []session.Facet{session.OfTag("a"), session.OfStatus(session.Active), session.OfUser("u1")}})
			}
			close(done)
		}, b.comeAndGo(done))
	}},
	{"a list that is read while sessions change has each of them once", func(b *bench) {
		const n = 20
		for i := range n {
			b.create(b.createOf(at(fmt.Sprint(i))))
		}
		either := []session.Facet{session.OfStatus(session.Paused), session.OfStatus(session.Interrupted)}
		done := make(chan struct{})
		b.beside(func() {
			for round := range 3 {
				for i := range n {
					_, err := b.setStatus(session.SetStatus{Key: at(fmt.Sprint(i)), Status: []session.Status{session.Interrupted, session.Paused}[round%2], Now: b.now})
					if err != nil {
						b.Error(err)
					}
				}
			}
			close(done)
		}, func() bool {
			list, err := b.Store.Sessions(b.Context(), home.Tenant, store.SessionQuery{Any: either, Limit: 100})
			if err != nil || len(list) != n {
				b.Errorf("got %d sessions, %v; want %d", len(list), err, n)
			}
			count, err := b.Store.CountSessions(b.Context(), home.Tenant, store.SessionQuery{Any: either}, 0)
			if err != nil || count != n {
				b.Errorf("counted %d sessions, %v; want %d", count, err, n)
			}
			return closed(done)
		})
	}},
}

// walk goes through all pages, and fails the test unless it meets each session
// of those that stay once, in their order.
func (b *bench) walk(stay []session.Session, q store.SessionQuery) {
	b.Helper()
	var got, want []string
	staying := map[string]bool{}
	for _, s := range stay {
		if fits(&s, q) {
			want = append(want, s.SessionID)
			staying[s.SessionID] = true
		}
	}
	for {
		list, err := b.Store.Sessions(b.Context(), "acme", q)
		b.must(err)
		for i, s := range list {
			if staying[s.SessionID] {
				got = append(got, s.SessionID)
			}
			if i > 0 && younger(list[i-1], s) >= 0 {
				b.Errorf("%q came before %q", list[i-1].SessionID, s.SessionID)
			}
		}
		if len(list) < q.Limit {
			break
		}
		last := list[len(list)-1]
		q.After = &store.SessionPlace{CreatedAt: last.CreatedAt, SessionID: last.SessionID}
	}
	same(b, "sessions met", got, want)
}

// comeAndGo makes sessions of all ages and deletes them again.
func (b *bench) comeAndGo(done chan struct{}) func() bool {
	round := 0
	return func() bool {
		round++
		key := at(fmt.Sprint("transient ", round%5))
		c := b.createOf(key)
		c.Now, c.Tags = session.Millis(990+round*7%50), []string{"a"}
		if _, err := b.tryCreate(c); err != nil {
			b.Errorf("create: %v", err)
		}
		if err := b.delete(key); err != nil {
			b.Errorf("delete: %v", err)
		}
		return closed(done)
	}
}
