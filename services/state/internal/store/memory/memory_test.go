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
		return storetest.Subject{Store: s, Rows: func(_ *testing.T, key session.Key) map[string]int { return s.count(key) }}
	})
}

// count counts the rows of a session by the tables of the other stores.
func (m *Store) count(key session.Key) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.sessions[key]
	if r == nil {
		return nil
	}
	counts := map[string]int{
		"sessions": 1, "states": len(r.states), "runs": len(r.runs), "messages": len(r.messages), "checkpoints": len(r.checkpoints),
		"usage_entries": len(r.usage), "calls": len(r.calls), "sub_sessions": len(r.children), "session_facets": len(r.session.Facets()),
		"held_runs": len(r.held),
	}
	if r.journal != nil {
		counts["plans"], counts["results"] = 1, len(r.journal.Results)
	}
	return counts
}
