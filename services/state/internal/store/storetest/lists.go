package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var lists = []suiteCase{
	{"sessions are found by their properties", func(h *harness) {
		m := h.populateSessions(90)
		for _, q := range m.queries() {
			m.compare(h, q)
		}
	}},
	{"a list reflects every change of a session", func(h *harness) {
		m := h.populateSessions(40)
		for i := range m.sessions {
			s := &m.sessions[i]
			key, place := s.Key, [2]any{s.CreatedAt, s.Version}
			if i%4 == 0 {
				h.must(h.delete(key))
				continue
			}
			*s = m.random(key)
			s.CreatedAt, s.Version = place[0].(session.Millis), place[1].(int64)+1
			s.AgentType, s.ParentID = m.agents[key], m.parents[key]
			h.write(key, &session.Change{Session: s})
		}
		m.sessions = slices.DeleteFunc(m.sessions, func(s session.Session) bool {
			_, err := h.Store.Session(h.Context(), s.Key)
			return err != nil
		})
		same(h, "remaining sessions", len(m.sessions), 30)
		for _, q := range m.queries() {
			m.compare(h, q)
		}
	}},
	{"a long property value is found like a short one", func(h *harness) {
		long := strings.Repeat("x", 5000)
		for i, value := range []string{long, long + "y", "x", "xö:=\x01", ""} {
			c := h.createOf(at(fmt.Sprint(i)))
			c.Metadata = map[string]string{"k": value}
			h.create(c)
		}
		for i, value := range []string{long, long + "y", "x", "xö:=\x01", ""} {
			list, err := h.Store.Sessions(h.Context(), home.Tenant,
				store.SessionQuery{All: []session.Facet{session.MetadataFacet("k", value)}, Limit: 10})
			h.must(err)
			if len(list) != 1 || list[0].SessionID != fmt.Sprint(i) || list[0].Metadata["k"] != value {
				h.Errorf("value %d: got %d sessions", i, len(list))
			}
		}
	}},
	{"a list omits states and outputs", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.finish(ref)
		list, err := h.Store.Sessions(h.Context(), home.Tenant, store.SessionQuery{Limit: 10})
		h.must(err)
		want := h.snapshot(home).Session
		want.State, want.Output = "", ""
		same(h, "list", list, []session.Session{want})
	}},
}

// sessionList is the reference for queries: all sessions in a slice.
type sessionList struct {
	rand     *rand.Rand
	sessions []session.Session
	agents   map[session.Key]string
	parents  map[session.Key]string
}

// populateSessions writes random sessions with hostile ids and repeated ages.
func (h *harness) populateSessions(n int) *sessionList {
	h.Helper()
	m := &sessionList{rand: rand.New(rand.NewPCG(1, uint64(n))), agents: map[session.Key]string{}, parents: map[session.Key]string{}}
	for i := range n {
		key := session.Key{Tenant: []string{"acme", "acme", "other"}[i%3], SessionID: fmt.Sprint(hostile[i%20], i)}
		s := m.random(key)
		m.agents[key], m.parents[key] = s.AgentType, s.ParentID
		m.sessions = append(m.sessions, s)
	}
	concurrently(func(part int) {
		for i := part; i < n; i += parallelism {
			s := m.sessions[i]
			if err := h.tryWrite(s.Key, &session.Change{Session: &s, Created: true, NewState: true}); err != nil {
				h.Errorf("write session %d: %v", i, err)
			}
		}
	})
	return m
}

func (m *sessionList) pickOne(values ...string) string { return values[m.rand.IntN(len(values))] }

func (m *sessionList) pickSome(values ...string) (some []string) {
	for _, v := range values {
		if m.rand.IntN(3) == 0 {
			some = append(some, v)
		}
	}
	return some
}

func (m *sessionList) random(key session.Key) session.Session {
	s := session.Session{
		Key: key, RootID: key.SessionID, AgentType: m.pickOne("support", "sales"), ParentID: m.pickOne("", "", "p1", "p%"), Version: 1,
		StateVersion: 1, StateBase: 1, State: "{}",
		Status: session.Status(m.pickOne("active", "completed", "failed", "paused", "suspended_client_tool")), UserID: m.pickOne("", "u1", "U1"),
		OrganizationID: m.pickOne("", "o1"),
		Tags:           m.pickSome("a", "b", "A"), Metadata: map[string]string{}, CreatedAt: session.Millis(1000 + m.rand.IntN(30)),
	}
	for _, k := range m.pickSome("k", "l") {
		s.Metadata[k] = m.pickOne("v", "w")
	}
	return s
}

// facets returns facets of each kind, and some without a session.
func facets() []session.Facet {
	return []session.Facet{
		session.AllSessions, session.UserFacet("u1"), session.UserFacet("U1"), session.UserFacet("u"), session.OrganizationFacet("o1"),
		session.AgentFacet("sales"),
		session.StatusFacet(session.Active), session.StatusFacet(session.Completed), session.StatusFacet(session.Paused), session.ParentFacet(""),
		session.ParentFacet("p%"),
		session.TagFacet("a"), session.TagFacet("A"), session.TagFacet("none"), session.MetadataFacet("k", "v"), session.MetadataFacet("k", "w"),
		session.MetadataFacet("l", "v"),
	}
}

// queries returns queries with each condition alone and with random combinations.
func (m *sessionList) queries() []store.SessionQuery {
	list := []store.SessionQuery{
		{}, {From: 1010}, {Before: 1010}, {From: 1010, Before: 1020}, {From: 1010, Before: 1010}, {From: 5000}, {Offset: 5}, {Offset: 500},
		{After: &store.SessionPlace{CreatedAt: 1015, SessionID: "a"}}, {After: &store.SessionPlace{CreatedAt: 1, SessionID: "a"}},
	}
	all := facets()
	for _, f := range all {
		list = append(list, store.SessionQuery{All: []session.Facet{f}}, store.SessionQuery{Any: []session.Facet{f}})
	}
	for range 40 {
		q := store.SessionQuery{}
		for range m.rand.IntN(3) {
			q.All = append(q.All, all[m.rand.IntN(len(all))])
		}
		for range m.rand.IntN(4) {
			q.Any = append(q.Any, all[m.rand.IntN(len(all))])
		}
		if m.rand.IntN(3) == 0 {
			q.From = session.Millis(1000 + m.rand.IntN(30))
		}
		if m.rand.IntN(3) == 0 {
			q.Before = session.Millis(1000 + m.rand.IntN(30))
		}
		if m.rand.IntN(3) == 0 {
			s := m.sessions[m.rand.IntN(len(m.sessions))]
			q.After = &store.SessionPlace{CreatedAt: s.CreatedAt, SessionID: s.SessionID}
		}
		q.Offset = m.rand.IntN(4)
		list = append(list, q)
	}
	return list
}

// fits is the reference for the conditions of SessionQuery.
func fits(s *session.Session, q store.SessionQuery) bool {
	have := s.Facets()
	has := func(f session.Facet) bool { return slices.Contains(have, f) }
	lacks := func(f session.Facet) bool { return !has(f) }
	switch {
	case slices.ContainsFunc(q.All, lacks), len(q.Any) > 0 && !slices.ContainsFunc(q.Any, has):
		return false
	case q.From != 0 && s.CreatedAt < q.From, q.Before != 0 && s.CreatedAt >= q.Before:
		return false
	}
	return true
}

func compareSessions(a, b session.Session) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(b.SessionID, a.SessionID))
}

func (m *sessionList) compare(h *harness, q store.SessionQuery) {
	h.Helper()
	var want []string
	matching := 0
	slices.SortFunc(m.sessions, compareSessions)
	for _, s := range m.sessions {
		if s.Tenant != "acme" || !fits(&s, q) {
			continue
		}
		matching++
		behind := q.After == nil || compareSessions(s,
			session.Session{Key: session.Key{SessionID: q.After.SessionID}, CreatedAt: q.After.CreatedAt}) > 0
		if behind {
			want = append(want, s.SessionID)
		}
	}
	want = want[min(q.Offset, len(want)):]
	for _, limit := range []int{3, 1000} {
		q.Limit = limit
		list, err := h.Store.Sessions(h.Context(), "acme", q)
		h.must(err)
		var got []string
		for _, s := range list {
			got = append(got, s.SessionID)
		}
		if !slices.Equal(got, want[:min(limit, len(want))]) {
			h.Errorf("%+v\n got %q\nwant %q", q, got, want)
		}
	}
	for _, most := range []int{0, 7} {
		counted := matching
		if most > 0 {
			counted = min(matching, most)
		}
		n, err := h.Store.CountSessions(h.Context(), "acme", q, most)
		if err != nil || n != int64(counted) {
			h.Errorf("%+v: counted %d, %v up to %d, want %d", q, n, err, most, counted)
		}
	}
}
