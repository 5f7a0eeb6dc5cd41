package storetest

import (
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// waitingRuns prove how runs wait, begin and end.
var waitingRuns = []suiteCase{
	{"an agent's policy applies to requests without one", func(h *harness) {
		h.start(h.startOf(home))
		_, err := h.tryStart(h.startOf(home))
		h.refuses(err, fault.Conflict, "SESSION_BUSY")
		h.must(h.Store.Announce(h.Context(), executor, []session.Agent{{Type: agent, OnBusy: session.BusyEnqueue}}, h.now))
		unnamed := h.waitingOf(home)
		unnamed.AgentType, unnamed.OnBusy = "", ""
		got := h.start(unnamed)
		if !got.Waiting || got.Run.OnBusy != session.BusyEnqueue {
			h.Errorf("got %+v, want it to wait", got)
		}
		refused := h.startOf(home)
		refused.OnBusy = session.BusyReject
		_, err = h.tryStart(refused)
		h.refuses(err, fault.Conflict, "SESSION_BUSY")
		agents, err := h.Store.Agents(h.Context())
		h.must(err)
		same(h, "agents", agents, []session.Agent{{Type: agent, OnBusy: session.BusyEnqueue}})
	}},
	{"waiting runs survive a crash", func(h *harness) {
		if h.Reopen == nil {
			return
		}
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		waits := h.rollbackOf(home)
		waits.RequestKey, waits.RequestHash = "k", []byte("h")
		waits.Messages[0].Body = []byte{0, 255, '"'}
		h.start(waits)
		h.commit(h.commitOf(ref, 1))
		h.Store = h.Reopen(h.T)
		h.expectWaiting(home, waits.RunID)
		if repeat := h.start(waits); !repeat.Repeated || !repeat.Waiting { // the caller missed the first answer
			h.Errorf("got %+v, want the run that waits", repeat)
		}
		for range 2 { // the executor missed the first answer
			h.finish(ref)
		}
		s, run := h.session(home)
		if run.RunID != waits.RunID || s.MessageCount != 2 {
			h.Errorf("got %+v,\n%+v", s, run)
		}
		same(h, "body of the message", string(h.messages(home)[1].Body), string(waits.Messages[0].Body))
	}},
	{"deleting a session deletes its waiting runs", func(h *harness) {
		h.start(h.startOf(home))
		waits := h.start(h.waitingOf(home)).Run
		h.must(h.delete(home))
		for table, n := range h.Rows(h.T, home) {
			same(h, "rows of "+table, n, 0)
		}
		_, err := h.Store.Waiting(h.Context(), home)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		repeat := h.startOf(home)
		repeat.RunID = waits.RunID // a new session with the id
		h.start(repeat)
		h.expectWaiting(home)
	}},
	{"no message to a busy session is lost or appended twice", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		commands := make([]session.Send, parallelism)
		for i := range commands {
			commands[i] = h.waitingOf(home)
			commands[i].Limits.Waiting = parallelism
		}
		var sent atomic.Int32
		concurrently(func(i int) {
			if _, err := h.tryStart(commands[i]); err != nil {
				h.Errorf("start %d: %v", i, err)
			}
			if sent.Add(1) == parallelism/2 {
				h.finish(ref) // amid the starts
			}
		})
		for range parallelism {
			next, _ := h.claim(executor)
			h.finish(next)
		}
		for _, c := range commands {
			h.expectMessageCount(home, c.Messages[0].ID, 1)
		}
		s, _ := h.session(home)
		if s.Status != session.Completed || s.Turn != parallelism+1 || s.Waiting != 0 {
			h.Errorf("got %+v", s)
		}
	}},
}
