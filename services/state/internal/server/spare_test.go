package server

import (
	"fmt"
	"testing"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// openWithSpare opens a claim stream whose last credits are spare.
func (b *bench) openWithSpare(executorID string, credits, spare int32) *stream {
	b.Helper()
	return b.announcing(&statev1.ClaimRunsRequest{
		ExecutorId: executorID, Agents: []*statev1.Agent{{AgentType: "support", Description: "helps"}}, Credits: credits, SpareCredits: spare,
	})
}

// startOfTenant starts a run in a new session of the tenant.
func (b *bench) startOfTenant(tenant, sessionID string) {
	b.Helper()
	start := startOf(sessionID)
	start.Tenant = tenant
	_, err := b.runs.StartRun(b.Context(), start)
	b.must(err)
}

// receives checks the tenant of the next claim, and returns a reference to it.
func (s *stream) receives(tenant string) *statev1.RunRef {
	s.Helper()
	claim := s.execute()
	if got := claim.GetSession().GetTenant(); got != tenant {
		s.Fatalf("got a run of tenant %q, want one of %q", got, tenant)
	}
	return refTo(claim)
}

func TestATenantThatFillsAllSlotsDelaysNoOther(t *testing.T) {
	t.Parallel()
	const slots, spare, noise = 16, 2, 300
	for _, first := range []string{"its runs are handed over", "its runs are queued"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
				b := open()
				var s *stream
				if first == "its runs are handed over" {
					s = b.openWithSpare("e1", slots+spare, spare)
				} else {
					b.announce()
				}
				for i := range noise {
					b.startOfTenant("noisy", fmt.Sprint("s", i))
				}
				if s == nil {
					s = b.openWithSpare("e1", slots+spare, spare)
				}
				var held []*statev1.RunRef
				for range slots {
					held = append(held, s.receives("noisy"))
				}
				b.startOfTenant("calm", "first")
				b.startOfTenant("calm", "second")
				calm := s.receives("calm") // before any run of the noisy tenant ends
				b.startOfTenant("third", "first")
				third := s.receives("third")

				b.finish(calm)
				b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
				calm = s.receives("calm")
				b.finish(third)
				b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
				b.finish(held[0]) // the calm tenant has its slot now, and all spare ones are free
				b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
				b.startOfTenant("fourth", "first")
				s.receives("fourth")
				b.finish(calm)
				b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
				b.finish(held[1])
				b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
				s.receives("noisy")
			})
		})
	}
}

func TestRunsThatMayNotTakeASpareSlotCostOneLook(t *testing.T) {
	t.Parallel()
	countingLooks(t, time.Hour, func(b *bench, w *lookCounter) {
		s := b.openWithSpare("e1", 2, 1)
		w.looksSince()
		b.start("handed over")
		held := refTo(s.execute())
		w.wants(b, "a run starts while the loop waits", looks{})
		b.queue("a")
		w.wants(b, "a run of a tenant that has a run in progress", looks{1, 0})
		time.Sleep(time.Minute)
		w.wants(b, "a minute later", looks{})
		b.startOfTenant("beta", "b")
		s.receives("beta")
		w.wants(b, "a run of another tenant", looks{1, 0})
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		w.wants(b, "a spare slot", looks{1, 0})
		b.finish(held)
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		s.receives("acme")
		w.wants(b, "a slot", looks{2, 0})
	})
}
