package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// queue adds n queued runs of an agent, the oldest last. Each has its own session, whose
// id begins with name.
func queue(t testing.TB, s *Store, name, agent string, dueAt session.Millis, n int) {
	t.Helper()
	first := session.Key{Tenant: "acme", SessionID: name}
	start(t, s, first)
	err := s.write(t.Context(), func(ctx context.Context, c *connection) error {
		if _, err := c.exec(ctx, `UPDATE runs SET agent_type = ?, due_at = ? WHERE session_id = ?`, agent, dueAt, name); err != nil {
			return err
		}
		for _, table := range []string{"sessions", "runs"} {
			var columns []string
			err := c.forEach(ctx, `SELECT name FROM pragma_table_info(?)`, arguments(table), func(row scanner) error {
				columns = append(columns, "")
				return row.Scan(&columns[len(columns)-1])
			})
			if err != nil {
				return err
			}
			into := strings.Join(columns, ", ")
			for i, column := range columns {
				switch column {
				case "session_id", "root_id":
					columns[i] += ` || '-' || i`
				case "created_at":
					columns[i] += ` - i`
				}
			}
			_, err = c.exec(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
				INSERT INTO `+table+` (`+into+`) SELECT `+strings.Join(columns, ", ")+` FROM `+table+`, n WHERE session_id = ?1 AND ?2 > 0`, name, n-1)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func claim(t testing.TB, s *Store, at session.Millis, limit int, agents ...string) (sessions []string) {
	t.Helper()
	due := store.Queued{ExecutorID: "executor-1", AgentTypes: agents, Now: at}
	got, err := s.UpdateDue(t.Context(), due, session.Need{}, limit, session.Claim{ExecutorID: "executor-1", Now: at}.Decide)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range got {
		sessions = append(sessions, one.View.Session.SessionID)
	}
	return sessions
}

func TestTheOldestRunOfAllAgentsIsClaimedFirst(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	announce(t, s, "executor-1")
	queue(t, s, "a", "support", 0, 4)
	queue(t, s, "b", "sales", 0, 3)
	queue(t, s, "waited", "sales", now, 3)
	queue(t, s, "waits", "support", now+1, 9)
	for i, want := range [][]string{
		{"a-3", "a-2"},
		{"b-2", "waited-2", "a-1"},
		{"b-1", "waited-1", "a", "b", "waited"},
		nil,
	} {
		if got := claim(t, s, now, max(len(want), 1), "support", "sales", "support"); !slices.Equal(got, want) {
			t.Errorf("claim %d: got %q, want %q", i, got, want)
		}
	}
	if got := claim(t, s, now, 9, "sales"); got != nil {
		t.Errorf("got %q for an agent that has nothing more", got)
	}
	if got := claim(t, s, now+1, 2, "support"); !slices.Equal(got, []string{"waits-8", "waits-7"}) {
		t.Errorf("got %q after the wait, want the oldest two", got)
	}
}

func TestManyDelayedRunsAreAllClaimedOnce(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	announce(t, s, "executor-1")
	queue(t, s, "waited", "support", now-1, 2*maxDelayed+5)
	seen := map[string]bool{}
	for {
		got := claim(t, s, now, maxDelayed+9, "support")
		if len(got) == 0 {
			break
		}
		for _, id := range got {
			if seen[id] {
				t.Errorf("session %s is claimed twice", id)
			}
			seen[id] = true
		}
	}
	if len(seen) != 2*maxDelayed+5 {
		t.Errorf("got %d runs, want %d", len(seen), 2*maxDelayed+5)
	}
}

func TestDueRunsAreFoundInTheOrderOfAnIndex(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	for _, c := range []struct {
		query string
		want  string
	}{
		{queuedNow, "SEARCH r USING INDEX runs_due (agent_type=? AND tenant=?)"},
		{nextTenant, "SEARCH r USING COVERING INDEX runs_due (agent_type=? AND tenant>?)"},
		{queuedDelayed, "SEARCH r USING INDEX runs_due_delayed (agent_type=? AND due_at>? AND due_at<?)"},
		{queuedStopped, "SEARCH r USING INDEX runs_due_stopped (agent_type=?)"},
		{queuedOverdue, "SEARCH r USING INDEX runs_due_deadline (agent_type=? AND deadline_at>? AND deadline_at<?)"},
		{runningUnregistered, "USING INDEX runs_held"},
		{runningLost, "SEARCH r USING INDEX runs_held (executor_id=?)"},
	} {
		args := make([]any, strings.Count(c.query, "?"))
		for i := range args {
			args[i] = 1
		}
		got := explain(t, s, c.query, args)
		if !strings.Contains(got, c.want) || strings.Contains(got, "TEMP B-TREE FOR ORDER") || strings.Contains(got, "SCAN e") {
			t.Errorf("%s\n%s\nwant %s, and no sorting", c.query, got, c.want)
		}
	}
}

// BenchmarkClaim claims from a long queue, with as many delayed runs.
func BenchmarkClaim(b *testing.B) {
	for _, n := range []int{1000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := fresh(b)
			announce(b, s, "executor-1")
			queue(b, s, "queued", "support", 0, n)
			queue(b, s, "waits", "support", now+1, n)
			b.ResetTimer()
			for range b.N {
				if got := claim(b, s, now, 1, "support", "sales"); len(got) != 1 {
					b.Fatalf("got %d runs", len(got))
				}
			}
		})
	}
}
