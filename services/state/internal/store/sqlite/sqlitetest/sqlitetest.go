// Package sqlitetest opens stores for tests.
package sqlitetest

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite"
)

// T is a *testing.T, *testing.B or *rapid.T.
type T interface {
	Helper()
	Cleanup(f func())
	Error(args ...any)
	Fatal(args ...any)
}

// Open opens an empty database in memory, with the usual configuration, and closes it when the
// test ends. In a synctest bubble, t has to be the bubble's.
func Open(t T) store.Store {
	t.Helper()
	var commits group.Config
	if err := config.Load(&commits, nil); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(context.Background(), sqlite.InMemory, commits, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Parts()
}
