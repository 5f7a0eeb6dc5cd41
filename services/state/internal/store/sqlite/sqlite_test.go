package sqlite

import (
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
)

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
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

func TestTheSQLiteStoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		path := filepath.Join(t.TempDir(), "a file? #1 %20 .db")
		s := open(t, path)
		return storetest.Subject{
			Store:  s,
			Ledger: func(t *testing.T, key session.Key) storetest.Ledger { return ledger(t, s.reader, key) },
			Reopen: func(t *testing.T) store.Store {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				return open(t, path)
			},
		}
	})
}

func ledger(t *testing.T, db *sql.DB, key session.Key) (l storetest.Ledger) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT checkpoint_id, run_id, step, epoch, version, message_count, stream_sequence, status,
		state_version, warnings, created_at FROM checkpoints WHERE tenant = ? AND session_id = ? ORDER BY step`, key.Tenant, key.SessionID)
	err = collect(rows, err, func(row scanner) error {
		var c session.Checkpoint
		err := row.Scan(&c.ID, &c.RunID, &c.Step, &c.Epoch, &c.Version, &c.MessageCount, &c.StreamSequence, &c.Status,
			&c.StateVersion, store.In(&c.Warnings), &c.CreatedAt)
		l.Checkpoints = append(l.Checkpoints, c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, err = db.QueryContext(t.Context(), `SELECT run_id, step, position, recorded_at, model, prompt_tokens, completion_tokens, reasoning_tokens,
		cached_tokens, total_tokens, tool, success, duration_ms FROM usage_entries WHERE tenant = ? AND session_id = ? ORDER BY step, position`,
		key.Tenant, key.SessionID)
	err = collect(rows, err, func(row scanner) error {
		var u session.UsageEntry
		err := row.Scan(&u.RunID, &u.Step, &u.Position, &u.At, &u.Model, &u.PromptTokens, &u.CompletionTokens, &u.ReasoningTokens,
			&u.CachedTokens, &u.TotalTokens, &u.Tool, &u.Success, &u.DurationMS)
		l.Usage = append(l.Usage, u)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.QueryRowContext(t.Context(), `SELECT count(*) FROM states WHERE tenant = ? AND session_id = ?`, key.Tenant, key.SessionID).Scan(&l.States)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSeveralProcessesMayBootAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			s, err := Open(t.Context(), path)
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
}

func TestEveryCommitIsSyncedToTheDisk(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	var journal string
	var synchronous int
	if err := s.writer.QueryRowContext(t.Context(), `PRAGMA journal_mode`).Scan(&journal); err != nil {
		t.Fatal(err)
	}
	if err := s.writer.QueryRowContext(t.Context(), `PRAGMA synchronous`).Scan(&synchronous); err != nil {
		t.Fatal(err)
	}
	const full = 2 // https://www.sqlite.org/pragma.html#pragma_synchronous
	if journal != "wal" || synchronous != full {
		t.Errorf("got journal_mode %s, synchronous %d; want wal, %d", journal, synchronous, full)
	}
}
