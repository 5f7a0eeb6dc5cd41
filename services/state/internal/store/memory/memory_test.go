package memory

import (
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
)

func TestTheMemoryStoreConforms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) storetest.Subject {
		s := New()
		return storetest.Subject{Store: s, Ledger: func(_ *testing.T, key session.Key) storetest.Ledger {
			r := s.sessions[key]
			return storetest.Ledger{Checkpoints: r.checkpoints, Usage: r.usage, States: len(r.states)}
		}}
	})
}
