package postgres

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
)

func TestThePostgresStoreAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, func(t testing.TB) store.Store { return open(t, pgtest.URL(t)).Parts() })
}
