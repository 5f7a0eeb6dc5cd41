package scheduler

import (
	"sync"

	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// turn is where this replica is in going round the tenants. The next claim goes on there, so that each
// tenant has its turn even if claims take one run at a time.
type turn struct {
	mu      sync.Mutex
	tenant  string           // whose run was claimed last
	claimed int64            // runs of its turn
	weights map[string]int64 // runs of a turn; 1 for others
}

// last returns the tenant, and how many runs are left of its turn.
func (t *turn) last() (tenant string, left int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tenant, max(t.weights[t.tenant]-t.claimed, 0)
}

// pass notes the claimed runs, in the order of their turns.
func (t *turn) pass(runs []store.Decided) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range runs {
		tenant := r.View.Session.Tenant
		if tenant != t.tenant || t.claimed >= max(t.weights[tenant], 1) {
			t.tenant, t.claimed = tenant, 0
		}
		t.claimed++
	}
}
