package postgres

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
)

// connections is fewer than a crowd of the suite, so that some have to wait.
const connections = 6

func open(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, connections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestThePostgresStoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		url := pgtest.URL(t)
		s := open(t, url)
		return storetest.Subject{
			Store:  s,
			Ledger: func(t *testing.T, key session.Key) storetest.Ledger { return ledger(t, s, key) },
			Reopen: func(t *testing.T) store.Store { return open(t, url) },
		}
	})
}

func ledger(t *testing.T, s *Store, key session.Key) (l storetest.Ledger) {
	t.Helper()
	query := func(text string, scan func(pgx.Row) error) {
		t.Helper()
		rows, err := s.pool.Query(t.Context(), text, key.Tenant, key.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		if err := each(rows, scan); err != nil {
			t.Fatal(err)
		}
	}
	query(`SELECT checkpoint_id, run_id, step, epoch, version, message_count, stream_sequence, status, state_version, warnings, created_at
		FROM checkpoints WHERE tenant = $1 AND session_id = $2 ORDER BY step`, func(row pgx.Row) error {
		var c session.Checkpoint
		err := row.Scan(&c.ID, &c.RunID, &c.Step, &c.Epoch, &c.Version, &c.MessageCount, &c.StreamSequence, &c.Status,
			&c.StateVersion, store.In(&c.Warnings), &c.CreatedAt)
		l.Checkpoints = append(l.Checkpoints, c)
		return err
	})
	query(`SELECT run_id, step, position, recorded_at, model, prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens, total_tokens,
		tool, success, duration_ms FROM usage_entries WHERE tenant = $1 AND session_id = $2 ORDER BY step, position`, func(row pgx.Row) error {
		var u session.UsageEntry
		err := row.Scan(&u.RunID, &u.Step, &u.Position, &u.At, &u.Model, &u.PromptTokens, &u.CompletionTokens, &u.ReasoningTokens,
			&u.CachedTokens, &u.TotalTokens, &u.Tool, &u.Success, &u.DurationMS)
		l.Usage = append(l.Usage, u)
		return err
	})
	query(`SELECT count(*) FROM states WHERE tenant = $1 AND session_id = $2`, func(row pgx.Row) error { return row.Scan(&l.States) })
	return l
}

func TestSeveralProcessesMayBootAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			s, err := Open(t.Context(), url, 1)
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var times int
	if err := open(t, url).pool.QueryRow(t.Context(), `SELECT count(*) FROM holdfast_state_migrations WHERE version = 1`).Scan(&times); err != nil || times != 1 {
		t.Errorf("the first migration was recorded %d times, %v; want once", times, err)
	}
}

func TestAConnectionThatIsCutIsUnavailableAndThenWellAgain(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	key := session.Key{Tenant: "t", SessionID: "s"}
	cut := func(*session.View) (*session.Change, error) {
		// Every connection of the pool, the command's own among them.
		_, err := s.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		return &session.Change{Session: &session.Session{Key: key}}, err
	}
	err := s.Update(t.Context(), key, session.Need{}, cut)
	if fault.ReasonOf(err) != "STORE_UNAVAILABLE" || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v (%v), want STORE_UNAVAILABLE", err, fault.KindOf(err))
	}
	if _, _, err := s.Session(t.Context(), key); fault.ReasonOf(err) != "SESSION_NOT_FOUND" {
		t.Errorf("after the cut: got %v, want SESSION_NOT_FOUND", err)
	}
}

func TestADatabaseThatIsNotThereYetIsUnavailable(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "postgres://nobody@127.0.0.1:1/none", 1)
	if fault.ReasonOf(err) != "STORE_UNAVAILABLE" {
		t.Errorf("got %v, want STORE_UNAVAILABLE", err)
	}
}

func TestABadURLIsNotQuoted(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "postgres://user:secret@host:port/db", 1)
	if fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v, want CONFIG_INVALID", err)
	}
}
