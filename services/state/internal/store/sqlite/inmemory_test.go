package sqlite

import (
	"os"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
)

func TestTheSQLiteStoreConformsInMemory(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		s := open(t, InMemory)
		return storetest.Subject{Store: s.Parts(), Rows: func(t *testing.T, key session.Key) map[string]int { return count(t, s, key) }}
	})
}

func TestTheSQLiteStoreInMemoryAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, func(t testing.TB) store.Store { return open(t, InMemory).Parts() })
}

func TestADatabaseInMemoryMakesNoFilesAndIsNotShared(t *testing.T) { //nolint:paralleltest // it changes the process's folder
	t.Chdir(t.TempDir())
	first, second := open(t, InMemory), open(t, InMemory)
	if err := (registry{first}).Announce(t.Context(), "e", []session.Agent{{Type: "a"}}, 1); err != nil {
		t.Fatal(err)
	}
	mine, err := registry{first}.Agents(t.Context())
	if err != nil || len(mine) != 1 {
		t.Errorf("got %d agents, %v, want the announced one", len(mine), err)
	}
	others, err := registry{second}.Agents(t.Context())
	if err != nil || len(others) != 0 {
		t.Errorf("got %d agents of another store, %v", len(others), err)
	}
	files, err := os.ReadDir(".")
	if err != nil || len(files) != 0 {
		t.Errorf("got the files %v, %v, want none", files, err)
	}
	var mode string
	if err := first.read(t.Context(), func(c *connection) error {
		_, err := c.queryRow(t.Context(), `PRAGMA journal_mode`, nil, &mode)
		return err
	}); err != nil || mode != "memory" {
		t.Errorf("got the journal mode %q, %v, want that it is kept in memory", mode, err)
	}
}
