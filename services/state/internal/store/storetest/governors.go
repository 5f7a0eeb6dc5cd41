package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/services/state/internal/governor"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var governors = []suiteCase{
	{"a governor and its leases are stored whole", func(h *harness) {
		state := governor.State{
			Clock: 70_001, Paused: 80_000,
			Spent: []governor.Slot{{Start: 68_000, Requests: 2, Tokens: 30}, {Start: 70_000, Requests: 1}},
			Queue: []governor.Ticket{{LeaseID: "w\"1", Tokens: 5, Expires: 72_000}},
		}
		lease := governor.Lease{Executor: executor, Slot: 70_000, Tokens: 7, Expires: 90_000}
		h.governors(h.Store, []string{"p/ü", "p"}, "l1", func(g []*governor.Governor) {
			same(h, "new governors", []governor.Governor{*g[0], *g[1]}, []governor.Governor{{}, {}})
			g[0].State, g[0].Lease = state, &lease
			g[1].Clock = 1
		})
		s := h.Store
		if h.Reopen != nil {
			s = h.Reopen(h.T)
		}
		h.governors(s, []string{"p", "p/ü", "other"}, "l1", func(g []*governor.Governor) {
			same(h, "governors", []governor.Governor{*g[0], *g[1], *g[2]},
				[]governor.Governor{{State: governor.State{Clock: 1}}, {State: state, Lease: &lease}, {}})
		})
		h.governors(s, []string{"p/ü"}, "l2", func(g []*governor.Governor) {
			same(h, "governor of another call", *g[0], governor.Governor{State: state, Running: 1})
		})
		h.governors(s, []string{"p/ü"}, "l1", func(g []*governor.Governor) { g[0].State, g[0].Lease = governor.State{}, nil })
		h.governors(s, []string{"p/ü"}, "l2", func(g []*governor.Governor) {
			same(h, "governor after the release", *g[0], governor.Governor{})
		})
	}},
	{"leases end with their time and with their executor", func(h *harness) {
		h.announce("executor-2")
		for id, lease := range map[string]governor.Lease{
			"lasts": {Executor: executor, Expires: 101}, "expired": {Executor: executor, Expires: 100},
			"dies": {Executor: "executor-2", Expires: 101}, "unknown": {Executor: "never announced", Expires: 101},
		} {
			h.governors(h.Store, []string{"p"}, id, func(g []*governor.Governor) { g[0].Lease = &lease })
		}
		running := func(now governor.Millis, want int64) {
			h.Helper()
			h.must(h.Store.UpdateGovernors(h.Context(), []string{"p"}, "asks", now,
				func(g []*governor.Governor) { same(h, "running", g[0].Running, want) }))
		}
		running(99, 3)
		running(100, 2)
		_, err := h.Store.UnregisterUnseen(h.Context(), map[string]session.Millis{"executor-2": h.now})
		h.must(err)
		running(100, 1)
		running(101, 0)
	}},
	{"a governor keeps its limit over two replicas", func(h *harness) {
		replicas := h.replicaPair()
		limits := []governor.Limits{{Concurrency: 3, Requests: 20}, {Requests: 1_000}}
		var running, granted atomic.Int64
		concurrently(func(i int) {
			s := replicas[i%2]
			names := []string{"p", "p/model"}
			limits := limits
			if i%3 == 0 { // the other order locks the same rows
				names, limits = []string{names[1], names[0]}, []governor.Limits{limits[1], limits[0]}
			}
			for n := range 6 {
				id := fmt.Sprint("lease-", i, "-", n)
				var wait governor.Millis
				h.governors(s, names, id, func(g []*governor.Governor) {
					// Each asks without a place in the queue, so that room is never reserved.
					g[0].Queue, g[1].Queue = nil, nil
					wait = governor.Acquire(g, limits, governor.Call{LeaseID: id, Executor: executor, TTL: 1_000}, 5_000)
				})
				if wait > 0 {
					continue
				}
				granted.Add(1)
				if now := running.Add(1); now > 3 {
					h.Errorf("%d calls run, want at most 3", now)
				}
				running.Add(-1)
				h.governors(s, names, id, func(g []*governor.Governor) { governor.Release(g, id, nil, 0, 5_000) })
			}
		})
		h.governors(h.Store, []string{"p", "p/model"}, "", func(g []*governor.Governor) {
			if got := granted.Load(); got < 3 || got > 20 || g[0].Running != 0 || len(g[0].Spent) != 1 || g[0].Spent[0].Requests != got ||
				g[1].Spent[0].Requests != got {
				h.Errorf("%d calls were granted, and the governors are %+v and %+v", got, g[0], g[1])
			}
		})
	}},
}

// governors updates governors at a time before all leases expire.
func (h *harness) governors(s store.Store, names []string, leaseID string, decide func([]*governor.Governor)) {
	h.Helper()
	if err := s.UpdateGovernors(h.Context(), names, leaseID, 50, decide); err != nil {
		h.Errorf("update the governors %v: %v", names, err)
	}
}
