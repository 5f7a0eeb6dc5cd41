package httpapi

import (
	"fmt"
	"testing"
)

func TestATenantThatTakesAPoolLocksNoOtherOut(t *testing.T) {
	t.Parallel()
	p := NewPool(100, 10, 4)
	take := func(tenant string, n int64, want bool) {
		t.Helper()
		if got := p.Take(tenant, n); got != want {
			t.Errorf("%d for %s of %d: got %t, want %t", n, tenant, p.taken, got, want)
		}
	}
	take("noisy", 97, true)
	take("noisy", 4, false)
	take("noisy", 3, true)
	take("noisy", 1, false)
	take("calm", 5, false)
	take("calm", 3, true)
	take("calm", 1, true)
	take("calm", 1, false)
	take("another", 4, true)
	take("a third", 3, false)
	take("a third", 2, true)
	p.Give("noisy", 6)
	take("noisy", 1, false) // the pool is still fuller than its bound
	p.Give("noisy", 94)
	take("calm", 90, true)
	for tenant, n := range map[string]int64{"calm": 94, "another": 4, "a third": 2} {
		p.Give(tenant, n)
	}
	if p.taken != 0 || len(p.by) != 0 {
		t.Errorf("%d are taken, by %v, though all were given back", p.taken, p.by)
	}
}

func TestTheSparePartOfAPoolHasRoomForOne(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		size    int64
		percent int
		each    int64
		spare   int64
	}{{100, 10, 4, 10}, {101, 10, 4, 11}, {100, 10, 40, 40}, {100, 0, 40, 0}, {1, 10, 1, 1}} {
		p := NewPool(tt.size, tt.percent, tt.each)
		p.Take("noisy", tt.size)
		var got int64
		for i := 0; p.Take(fmt.Sprint("tenant ", i), 1); i++ {
			got++
		}
		if got != tt.spare {
			t.Errorf("a pool of %d with %d percent and %d for each: other tenants got %d, want %d", tt.size, tt.percent, tt.each, got, tt.spare)
		}
	}
}

func TestAPoolThatIsNilHasNoBound(t *testing.T) {
	t.Parallel()
	var p *Pool
	if !p.Take("a", 1<<60) {
		t.Error("got a bound")
	}
	p.Give("a", 1<<60)
}
