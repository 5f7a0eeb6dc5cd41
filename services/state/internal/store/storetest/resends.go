package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// resends are about requests that come once more under other request keys.
var resends = []test{
	{"a message that is sent twice gets the run of the first", func(b *bench) {
		first := b.startOf(home)
		b.start(first)
		again := func() {
			b.Helper()
			before := b.snapshot(home)
			c := b.startOf(home)
			c.Messages[0].ID = first.Messages[0].ID
			got := b.start(c)
			if !got.Repeated || got.Waiting || got.Run.RunID != before.Session.CurrentRunID || got.Run.MessageID != first.MessageID {
				b.Errorf("got %+v, want the run %q", got, before.Session.CurrentRunID)
			}
			c.Messages[0].Body = []byte("something else")
			c.Abandon, c.OnBusy, c.Limits = gone, session.BusyEnqueue, limits
			_, err := b.try(c)
			b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
			same(b, "snapshot", b.snapshot(home), before)
		}
		again()
		b.commit(b.suspending(b.claimOf(home), 1, "c1"))
		again()
		b.submit(b.submitOf(home, "c1"))
		again() // its answer goes on in another run
		b.finish(b.claimOf(home))
		again()
		b.talk(home, 2, "two")
		c := b.startOf(home)
		c.Messages[0].ID = first.Messages[0].ID
		_, err := b.try(c)
		b.refuses(err, fault.Conflict, "RUN_STALE")
	}},
	{"a message that waits is sent twice and waits once", func(b *bench) {
		b.start(b.startOf(home))
		first := b.waitingOf(home)
		first.RequestHash = []byte("h")
		b.start(first)
		again := b.waitingOf(home)
		again.Messages[0].ID, again.RequestHash = first.Messages[0].ID, first.RequestHash
		if got := b.start(again); !got.Repeated || !got.Waiting || got.Run.RunID != first.RunID {
			b.Errorf("got %+v, want the run that waits", got)
		}
		again.RequestHash = []byte("another")
		_, err := b.try(again)
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		b.waiting(home, first.RunID)
		b.finish(b.claimOf(home))
		if got := b.start(again); !got.Repeated || got.Waiting || got.Run.Status != session.RunQueued {
			b.Errorf("got %+v, want the run that has begun", got)
		}
	}},
	{"an edit that stands is not made twice, unless its answer has failed", func(b *bench) {
		first := b.talk(home, 1, "one")
		c := b.editOf(home, first.message)
		c.Messages[0].ID, c.Messages[0].Body = first.message, []byte("anew")
		b.start(c)
		again := b.editOf(home, first.message)
		again.Messages[0].ID, again.Messages[0].Body = first.message, []byte("anew")
		if got := b.start(again); !got.Repeated || got.Run.RunID != c.RunID {
			b.Errorf("got %+v, want the run of the first edit", got)
		}
		b.fail(b.claimOf(home))
		if got := b.start(again); got.Repeated || got.Run.RunID != again.RunID {
			b.Errorf("got %+v, want another run", got)
		}
		same(b, "messages", b.said(home), []string{first.message})
	}},
	{"an edit of a message that is not there sends what it brings", func(b *bench) {
		first := b.talk(home, 1, "one")
		c := b.editOf(home, "nobody")
		b.start(c)
		same(b, "messages", b.said(home), []string{first.message, first.answer, c.Messages[0].ID})
		c = b.editOf(at("new"), "nobody")
		same(b, "created", b.start(c).Created, true)
	}},
	{"an answer is replaced once", func(b *bench) {
		first := b.talk(home, 1, "one")
		second := b.talk(home, 2, "two")
		_, old := b.session(home)
		c := b.regenerateOf(home, old.MessageID)
		b.start(c)
		same(b, "messages", b.said(home), []string{first.message, first.answer, second.message})
		for _, target := range []string{old.MessageID, second.message} { // while the other is written
			if got := b.start(b.regenerateOf(home, target)); !got.Repeated || got.Run.RunID != c.RunID {
				b.Errorf("got %+v for %q, want the run that replaces it", got, target)
			}
		}
		b.finish(b.claimOf(home))
		if got := b.start(b.regenerateOf(home, old.MessageID)); !got.Repeated || got.Run.RunID != c.RunID {
			b.Errorf("got %+v, want the run that has replaced it", got)
		}
		b.talk(home, 3, "three")
		_, err := b.try(b.regenerateOf(home, old.MessageID))
		b.refuses(err, fault.Conflict, "RUN_STALE")
	}},
}
