package sqlite

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

func explain(t *testing.T, s *Store, query string, args []any) string {
	t.Helper()
	var lines []string
	err := s.read(t.Context(), func(c *connection) error {
		return c.forEach(t.Context(), `EXPLAIN QUERY PLAN `+query, args, func(row scanner) error {
			var id, parent, unused int
			var line string
			err := row.Scan(&id, &parent, &unused, &line)
			lines = append(lines, line)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func TestListsWalkAnIndex(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	for _, q := range []store.SessionQuery{
		{},
		{All: []session.Facet{session.UserFacet("ann")}, From: 1, Before: 9},
		{All: []session.Facet{session.UserFacet("ann"), session.TagFacet("a"), session.TagFacet("b")},
			Any: []session.Facet{session.StatusFacet(session.Active), session.TagFacet("c")}},
		{Any: []session.Facet{session.StatusFacet(session.Active)}, After: &store.SessionPlace{CreatedAt: 5, SessionID: "s"}},
	} {
		var text string
		var args []any
		err := s.read(t.Context(), func(c *connection) error {
			f, err := planSearch(t.Context(), c, "acme", q)
			if err == nil {
				text, args = f.query()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		got := explain(t, s, text, args)
		if strings.Contains(got, "SCAN") || strings.Contains(got, "TEMP B-TREE") ||
			!strings.Contains(got, "(tenant=? AND facet=? AND created_at>? AND (created_at,session_id)<(?,?))") {
			t.Errorf("%+v\n%s\nfor %s", q, got, text)
		}
		for line := range strings.Lines(got) {
			if strings.Contains(line, "SEARCH g") && !strings.Contains(line, "(tenant=? AND facet=? AND created_at=? AND session_id=?)") {
				t.Errorf("%+v: a facet is looked up by %s", q, line)
			}
		}
	}
}

func TestTheRarestFacetIsWalked(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	announce(t, s, "executor-1")
	for i := range 30 {
		key := session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)}
		start(t, s, key)
		if i%10 == 0 {
			err := s.Update(t.Context(), target(key, session.Need{}), 1, on(func(v *session.View) (*session.Change, error) {
				after := *v.Session
				after.Tags = []string{"rare"}
				return &session.Change{Session: &after}, nil
			}))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	err := s.read(t.Context(), func(c *connection) error {
		f, err := planSearch(t.Context(), c, "acme", store.SessionQuery{
			All: []session.Facet{session.StatusFacet(session.Active), session.TagFacet("rare"), session.AgentFacet("support"), session.AllSessions},
		})
		if err == nil && (len(f.walked) != 1 || f.walked[0] != session.TagFacet("rare") || len(f.all) != 2) {
			t.Errorf("got %q walked and %q looked up, want the tag walked", f.walked, f.all)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOverdueAndExpiredSessionsAreFoundByIndex(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	for query, index := range map[string]string{
		`SELECT tenant, session_id FROM calls WHERE answer = '' AND deadline_at > 0 AND deadline_at <= ?
			ORDER BY deadline_at, tenant, session_id`: "calls_overdue",
		`SELECT tenant, session_id FROM sessions WHERE expires_at > 0 AND status NOT IN ('completed', 'failed') AND expires_at <= ?
			ORDER BY expires_at, tenant, session_id`: "sessions_expiring",
		`SELECT 1 FROM calls l WHERE l.tenant = 't' AND l.session_id = ?
			AND (l.consumed_at = 0 OR (l.late_at > 0 AND NOT l.told))`: "calls_waiting",
		`SELECT 1 FROM calls l WHERE l.tenant = 't' AND l.root_id = ? AND l.consumed_at = 0`: "calls_pending",
	} {
		if got := explain(t, s, query, arguments(1)); !strings.Contains(got, index) {
			t.Errorf("got %s for %s, want the index %s", got, query, index)
		}
	}
}

func TestASessionWithSeveralAlternativesIsListedOnce(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	announce(t, s, "executor-1")
	for i := range 9 {
		key := session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)}
		start(t, s, key)
		err := s.Update(t.Context(), target(key, session.Need{}), 1, on(func(v *session.View) (*session.Change, error) {
			after := *v.Session
			after.Tags = []string{"a", "b"}[:i%3] // none, a, or both
			return &session.Change{Session: &after}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	either := []session.Facet{session.TagFacet("a"), session.TagFacet("b")}
	for _, c := range []struct {
		q    store.SessionQuery
		want string
	}{
		{store.SessionQuery{Any: either, Limit: 9}, "875421"},
		{store.SessionQuery{Any: either, Limit: 3, Offset: 2}, "542"},
		{store.SessionQuery{Any: either, Limit: 9, Offset: 9}, ""},
		{store.SessionQuery{Any: either, All: []session.Facet{session.StatusFacet(session.Active)}, Limit: 4, Offset: 1}, "7542"},
		{store.SessionQuery{Any: either, All: either, Limit: 9}, "852"},
		{store.SessionQuery{Any: either, Limit: 9, After: &store.SessionPlace{CreatedAt: now, SessionID: "5"}}, "421"},
		{store.SessionQuery{Any: either, Limit: 9, Before: now}, ""},
	} {
		page, err := s.Sessions(t.Context(), "acme", c.q)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, found := range page {
			got += found.SessionID
		}
		if got != c.want {
			t.Errorf("%+v: got %q, want %q", c.q, got, c.want)
		}
	}
	for most, want := range map[int]int64{0: 6, 4: 4, 9: 6} {
		if n, err := s.CountSessions(t.Context(), "acme", store.SessionQuery{Any: either}, most); n != want || err != nil {
			t.Errorf("at most %d: got %d, %v; want %d", most, n, err, want)
		}
	}
}

func TestFacetsThatManyHaveAreCountedFurther(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	user, tag, agent, status := session.UserFacet("zoe"), session.TagFacet("z"), session.AgentFacet("a"), session.StatusFacet(session.Active)
	err := s.write(t.Context(), func(ctx context.Context, c *connection) error {
		for facet, n := range map[session.Facet]int{user: 2 * firstProbe, tag: firstProbe + 1, agent: 2 * firstProbe, status: 2 * firstProbe} {
			if _, err := c.exec(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
				INSERT INTO session_facets (tenant, facet, created_at, session_id) SELECT 'acme', ?, i, 's' FROM n`, n, facet); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		all    []session.Facet
		walked session.Facet
	}{
		{[]session.Facet{status, agent, user, tag}, tag},
		{[]session.Facet{agent, status, user}, user}, // all have the same number of sessions
	} {
		err := s.read(t.Context(), func(conn *connection) error {
			f, err := planSearch(t.Context(), conn, "acme", store.SessionQuery{All: c.all})
			if err == nil && (len(f.walked) != 1 || f.walked[0] != c.walked || len(f.all) != len(c.all)-1) {
				t.Errorf("%q: got %q walked and %q looked up, want %q walked", c.all, f.walked, f.all, c.walked)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestWaitingAndStoppedRunsAreFoundByTheirOwnIndex(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	for query, want := range map[string]string{
		waitingRuns: "SEARCH r USING INDEX runs_waiting (tenant=? AND session_id=?)",
		selectStops: "SEARCH r USING INDEX runs_stopped (executor_id=?)",
	} {
		args := []any{"acme", "s"}
		if query == selectStops {
			args = args[:1]
		}
		if got := explain(t, s, query, args); !strings.Contains(got, want) || strings.Contains(got, "SCAN r") {
			t.Errorf("got %s\nfor %s", got, query)
		}
	}
}
