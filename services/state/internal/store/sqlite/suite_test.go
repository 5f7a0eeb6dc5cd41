package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/blobtest"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

func TestTheSQLiteStoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, subject)
}

func TestTheRulesHoldOnTheSQLiteStore(t *testing.T) {
	t.Parallel()
	storetest.RunScenarios(t, subject)
}

func subject(t *testing.T) storetest.Subject {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a file? #1 %20 .db")
	s := open(t, path)
	return storetest.Subject{
		Store: s.Parts(),
		Rows:  func(t *testing.T, key session.Key) map[string]int { return count(t, s, key) },
		Reopen: func(t *testing.T) store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, path)
			return s.Parts()
		},
	}
}

// count counts the rows of a session by table.
func count(t *testing.T, s *Store, key session.Key) map[string]int {
	t.Helper()
	counts := map[string]int{}
	err := s.read(t.Context(), func(c *connection) error {
		for _, table := range append(table.OfSession(), "session_facets") {
			var n int
			if _, err := c.queryRow(t.Context(), `SELECT count(*) FROM `+table+` WHERE tenant = ? AND session_id = ?`,
				arguments(key.Tenant, key.SessionID), &n); err != nil {
				return err
			}
			counts[table] = n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

func TestTheSQLiteBlobsConform(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) store.Blobs { return open(t, filepath.Join(t.TempDir(), "blobs.db")).Parts().Blobs })
}
