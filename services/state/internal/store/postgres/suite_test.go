package postgres

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/blobtest"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
)

func TestThePostgresStoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, subject)
}

func TestTheRulesHoldOnThePostgresStore(t *testing.T) {
	t.Parallel()
	storetest.RunScenarios(t, subject)
}

func subject(t *testing.T) storetest.Subject {
	t.Helper()
	url := pgtest.URL(t)
	s := open(t, url)
	return storetest.Subject{
		Store:  s.Parts(),
		Rows:   func(t *testing.T, key session.Key) map[string]int { return rowsOf(t, s, key) },
		Reopen: func(t *testing.T) store.Store { return open(t, url).Parts() },
		Second: func(t *testing.T) store.Store { return open(t, url).Parts() },
	}
}

// rowsOf counts the rows of a session by table.
func rowsOf(t *testing.T, s *Store, key session.Key) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, table := range []string{
		"sessions", "states", "runs", "messages", "plans", "results", "checkpoints", "usage_entries", "calls", "sub_sessions", "session_facets", "held_runs",
	} {
		if n := ask[int](t, s, `SELECT count(*) FROM `+table+` WHERE tenant = $1 AND session_id = $2`, key.Tenant, key.SessionID); n > 0 {
			counts[table] = n
		}
	}
	return counts
}

func TestThePostgresBlobsConform(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) store.Blobs { return open(t, pgtest.URL(t)).Parts().Blobs })
}
