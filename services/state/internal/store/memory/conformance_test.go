package memory

import (
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
)

func TestTheMemoryStoreDoesWhatAPlainModelSays(t *testing.T) {
	t.Parallel()
	storetest.Machine(t, func(testing.TB) store.Store { return New() })
}
