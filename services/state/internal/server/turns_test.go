package server

import (
	"fmt"
	"slices"
	"testing"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// claimed executes n runs, one after the other, and returns their tenants.
func (s *stream) claimed(n int) (tenants []string) {
	s.Helper()
	for range n {
		s.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		claim := s.execute()
		s.finish(refTo(claim))
		tenants = append(tenants, claim.GetSession().GetTenant())
	}
	return tenants
}

func TestALongQueueOfOneTenantDelaysNoOther(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Scheduler.TenantWeights = map[string]int64{"weighty": 2} })
		s := b.open("e1", 0)
		for tenant, runs := range map[string]int{"noisy": 300, "calm": 2, "weighty": 3} {
			for i := range runs {
				start := startOf(fmt.Sprint("s", i))
				start.Tenant = tenant
				_, err := b.runs.StartRun(t.Context(), start)
				b.must(err)
			}
		}
		want := []string{"calm", "noisy", "weighty", "weighty", "calm", "noisy", "weighty", "noisy", "noisy"}
		if got := s.claimed(len(want)); !slices.Equal(got, want) {
			t.Errorf("one at a time: got the turns %q, want %q", got, want)
		}
	})
}

func TestATurnHasAsManyRunsAsTheTenantsWeight(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(func(c *Config) { c.Scheduler.TenantWeights = map[string]int64{"weighty": 2} })
		s := b.open("e1", 0)
		for _, tenant := range []string{"weighty", "noisy"} {
			for i := range 6 {
				start := startOf(fmt.Sprint("s", i))
				start.Tenant = tenant
				_, err := b.runs.StartRun(t.Context(), start)
				b.must(err)
			}
		}
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 6}))
		count := map[string]int{}
		for range 6 {
			count[s.execute().GetSession().GetTenant()]++
		}
		if count["weighty"] != 4 || count["noisy"] != 2 {
			t.Errorf("got %v, want 4 runs of the tenant with weight 2, and 2 of the other", count)
		}
	})
}
