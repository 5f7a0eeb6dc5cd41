package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// resends prove that a repeated request is found without its request key.
var resends = []suiteCase{
	{"a resent message returns the first run", func(h *harness) {
		first := h.startOf(home)
		h.start(first)
		resend := func() {
			h.Helper()
			before := h.snapshot(home)
			c := h.startOf(home)
			c.Messages[0].ID = first.Messages[0].ID
			got := h.start(c)
			if !got.Repeated || got.Waiting || got.Run.RunID != before.Session.CurrentRunID || got.Run.MessageID != first.MessageID {
				h.Errorf("got %+v, want the run %q", got, before.Session.CurrentRunID)
			}
			c.Messages[0].Body = []byte("something else")
			c.Abandon, c.OnBusy, c.Limits = abandonedResponse, session.BusyEnqueue, limits
			_, err := h.tryStart(c)
			h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
			same(h, "snapshot", h.snapshot(home), before)
		}
		resend()
		h.commit(h.suspendingCommit(h.claimOf(home), 1, "c1"))
		resend()
		h.submit(h.submitOf(home, "c1"))
		resend() // another run continues the answer
		h.finish(h.claimOf(home))
		resend()
		h.runTurn(home, 2, "two")
		c := h.startOf(home)
		c.Messages[0].ID = first.Messages[0].ID
		_, err := h.tryStart(c)
		h.refuses(err, fault.Conflict, "RUN_STALE")
	}},
	{"a resent waiting message waits once", func(h *harness) {
		h.start(h.startOf(home))
		first := h.waitingOf(home)
		first.RequestHash = []byte("h")
		h.start(first)
		repeat := h.waitingOf(home)
		repeat.Messages[0].ID, repeat.RequestHash = first.Messages[0].ID, first.RequestHash
		if got := h.start(repeat); !got.Repeated || !got.Waiting || got.Run.RunID != first.RunID {
			h.Errorf("got %+v, want the run that waits", got)
		}
		repeat.RequestHash = []byte("another")
		_, err := h.tryStart(repeat)
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		h.expectWaiting(home, first.RunID)
		h.finish(h.claimOf(home))
		if got := h.start(repeat); !got.Repeated || got.Waiting || got.Run.Status != session.RunQueued {
			h.Errorf("got %+v, want the run that has begun", got)
		}
	}},
	{"a repeated edit returns the first run unless that failed", func(h *harness) {
		first := h.runTurn(home, 1, "one")
		c := h.editOf(home, first.message)
		c.Messages[0].ID, c.Messages[0].Body = first.message, []byte("anew")
		h.start(c)
		repeat := h.editOf(home, first.message)
		repeat.Messages[0].ID, repeat.Messages[0].Body = first.message, []byte("anew")
		if got := h.start(repeat); !got.Repeated || got.Run.RunID != c.RunID {
			h.Errorf("got %+v, want the run of the first edit", got)
		}
		h.fail(h.claimOf(home))
		if got := h.start(repeat); got.Repeated || got.Run.RunID != repeat.RunID {
			h.Errorf("got %+v, want another run", got)
		}
		same(h, "messages", h.messageIDs(home), []string{first.message})
	}},
	{"an edit of an unknown message sends the new one", func(h *harness) {
		first := h.runTurn(home, 1, "one")
		c := h.editOf(home, "unknown")
		h.start(c)
		same(h, "messages", h.messageIDs(home), []string{first.message, first.answer, c.Messages[0].ID})
		c = h.editOf(at("new"), "unknown")
		same(h, "created", h.start(c).Created, true)
	}},
	{"an answer is replaced once", func(h *harness) {
		first := h.runTurn(home, 1, "one")
		second := h.runTurn(home, 2, "two")
		_, old := h.session(home)
		c := h.regenerateOf(home, old.MessageID)
		h.start(c)
		same(h, "messages", h.messageIDs(home), []string{first.message, first.answer, second.message})
		for _, target := range []string{old.MessageID, second.message} { // during the other answer
			if got := h.start(h.regenerateOf(home, target)); !got.Repeated || got.Run.RunID != c.RunID {
				h.Errorf("got %+v for %q, want the run that replaces it", got, target)
			}
		}
		h.finish(h.claimOf(home))
		if got := h.start(h.regenerateOf(home, old.MessageID)); !got.Repeated || got.Run.RunID != c.RunID {
			h.Errorf("got %+v, want the run that has replaced it", got)
		}
		h.runTurn(home, 3, "three")
		_, err := h.tryStart(h.regenerateOf(home, old.MessageID))
		h.refuses(err, fault.Conflict, "RUN_STALE")
	}},
}
