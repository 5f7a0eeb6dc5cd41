package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var answers = []suiteCase{
	{"concurrent answers to a call: one is accepted", func(h *harness) {
		h.startSuspended(home, "c1")
		commands := make([]session.Submit, parallelism)
		for i := range commands {
			commands[i] = h.submitOf(home, "c1")
			commands[i].Response = []byte(commands[i].NewRunID)
		}
		var taken atomic.Int32
		concurrently(func(i int) {
			answer, err := h.trySubmit(commands[i])
			switch {
			case err != nil:
				h.Errorf("submit %d: %v", i, err)
			case answer.Status == session.Accepted:
				taken.Add(1)
				if answer.Continuation != session.ContinueNewRun || answer.RunID != commands[i].NewRunID {
					h.Errorf("submit %d: got %+v", i, answer)
				}
			case answer.Status != session.AlreadyCompleted || answer.Continuation != session.ContinueLiveRun:
				h.Errorf("submit %d: got %+v", i, answer)
			}
		})
		snapshot := h.snapshot(home)
		if taken.Load() != 1 || snapshot.Session.Turn != 2 || snapshot.Current.RunID != string(snapshot.Calls[0].Response) {
			h.Errorf("%d answers were accepted, %+v", taken.Load(), snapshot)
		}
	}},
	{"concurrent answers to all calls of a step continue it once", func(h *harness) {
		var ids []string
		for i := range parallelism {
			ids = append(ids, fmt.Sprint("c", i))
		}
		h.startSuspended(home, ids...)
		commands := make([]session.Submit, parallelism)
		for i := range commands {
			commands[i] = h.submitOf(home, ids[i])
		}
		var continued atomic.Int32
		concurrently(func(i int) {
			answer, err := h.trySubmit(commands[i])
			if err != nil || answer.Status != session.Accepted {
				h.Errorf("submit %d: got %+v, %v", i, answer, err)
			}
			if answer.Continuation == session.ContinueNewRun {
				continued.Add(1)
			}
		})
		if s := h.snapshot(home).Session; continued.Load() != 1 || s.Turn != 2 || s.Status != session.Active {
			h.Errorf("%d continuations, %+v", continued.Load(), s)
		}
	}},
	{"overdue calls are listed, the longest overdue first", func(h *harness) {
		for i, deadline := range []session.Millis{300, 100, 200, 0, 400} {
			key := session.Key{Tenant: fmt.Sprint("tenant", i%2), SessionID: fmt.Sprint(i)}
			h.start(h.startOf(key))
			c := h.suspendingCommit(h.claimOf(key), 1, "c", "other")
			if deadline > 0 {
				c.Calls[0].DeadlineAt, c.Calls[1].DeadlineAt = h.now+deadline, h.now+deadline+1
			}
			h.commit(c)
		}
		for _, want := range []struct {
			after session.Millis
			limit int
			ids   string
		}{{99, 9, ""}, {100, 9, "1"}, {300, 9, "120"}, {1000, 9, "1204"}, {1000, 2, "12"}} {
			keys, err := h.Store.Overdue(h.Context(), h.now+want.after, want.limit)
			h.must(err)
			ids := ""
			for _, key := range keys {
				ids += key.SessionID
			}
			same(h, fmt.Sprint("overdue after ", want.after), ids, want.ids)
		}
		first := session.Key{Tenant: "tenant1", SessionID: "1"}
		h.submit(h.submitOf(first, "c"))
		h.submit(h.submitOf(first, "other"))
		keys, err := h.Store.Overdue(h.Context(), h.now+1000, 1)
		h.must(err)
		same(h, "overdue once the first is answered", keys, []session.Key{{Tenant: "tenant0", SessionID: "2"}})
	}},
}
