package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
)

func TestTheSQLiteStoreAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, func(t testing.TB) store.Store { return open(t, filepath.Join(t.TempDir(), "state.db")).Parts() })
}
