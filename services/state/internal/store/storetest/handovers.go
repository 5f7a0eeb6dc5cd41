package storetest

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// fataler is what both kinds of tests have.
type fataler interface {
	Fatalf(format string, args ...any)
}

// carries fails the test unless the store has what the claim says that it has written,
// and what else it carries.
func carries(ctx interface{ Context() context.Context }, t fataler, s store.Store, c session.HandOver, made store.Decided) {
	run := made.Change.Runs[0]
	need := session.Need{RunID: run.RunID, State: true, Journal: true, Calls: true, Tail: c.Tail}
	target := session.Target{Key: made.Change.Session.Key, Need: need}
	var got *session.View
	if err := s.Update(ctx.Context(), []session.Target{target}, weight, func(views []*session.View) ([]*session.Change, error) {
		got = views[0]
		return nil, nil
	}); err != nil {
		t.Fatalf("read what was handed over: %v", err)
	}
	for what, pair := range map[string][2]any{
		"session": {got.Session, made.Change.Session}, "run": {got.Run, &run},
		"journal": {got.Journal, made.View.Journal}, "calls": {got.Calls, made.View.Calls}, "messages": {got.Tail, made.View.Tail},
	} {
		alike(t, what, pair[0], pair[1])
	}
}

// startHanded starts a run and hands it over. made is nil when it is queued.
func (b *bench) startHanded(c intent, to string) (started session.Started, made *store.Decided) {
	b.Helper()
	over := handOver(to, b.now)
	f := session.Family{Now: b.now, NewID: func() string { return b.id("run") }}
	b.must(sendThen(b, b.Store, f, keyOf(c), over.Need(c.Need()), keeping(&started, c.Decide), handed(over, &made)))
	return started, made
}

func (b *bench) handedRef(made *store.Decided) session.Ref {
	b.Helper()
	if made == nil {
		b.Fatal("the run was queued, not handed over")
	}
	return refOf(*made)
}

var handsOver = []test{
	{"a run that is handed over is as one that was queued and claimed", func(b *bench) {
		keys := []session.Key{home, at("s2")}
		for i, key := range keys {
			c := b.startOf(key)
			c.New.State, c.Traceparent, c.RequestKey, c.RequestHash, c.RunID, c.MessageID = `{"n": 1}`, "00-aa-bb-01", "k", []byte("h"), "r", "m"
			c.Messages[0].ID, c.Messages[0].RunID = "m1", "r"
			if i == 0 {
				_, made := b.startHanded(c, executor)
				b.handedRef(made)
				carries(b, b, b.Store, handOver(executor, b.now), *made)
			} else {
				b.start(c)
				b.claim(executor)
			}
		}
		first, run := b.session(keys[0])
		second, other := b.session(keys[1])
		second.Key, second.RootID = first.Key, first.RootID
		same(b, "session", first, second)
		same(b, "run", run, other)
		same(b, "messages", b.messages(keys[0]), b.messages(keys[1]))
		if len(b.claimAll(executor, 10)) != 0 {
			b.Error("a run that was handed over is due")
		}
	}},
	{"a run that is handed over goes on as any other, and so does the next", func(b *bench) {
		_, made := b.startHanded(b.startOf(home), executor)
		ref := b.handedRef(made)
		b.commit(b.commitOf(ref, 1))
		b.finish(ref)
		b.force(home, session.Paused)
		c := b.resumeOf(home)
		c.Messages = b.startOf(home).Messages
		c.Append = []session.Message{{ID: "sys", Role: "system", Body: []byte("s")}}
		c.Ops = []session.StateOp{{Key: "k", Kind: session.Replace, Value: `"v"`}}
		_, made = b.startHanded(c, executor)
		if again := b.handedRef(made); again.Epoch != 2 {
			b.Errorf("got epoch %d, want 2", again.Epoch)
		}
		carries(b, b, b.Store, handOver(executor, b.now), *made)
		if n := len(made.View.Tail); n != 3 { // of four
			b.Errorf("got %d messages, want the last 3", n)
		}
	}},
	{"nothing is handed to an executor that is not registered", func(b *bench) {
		if _, made := b.startHanded(b.startOf(home), "stranger"); made != nil {
			b.Errorf("got %+v", made.Change)
		}
		b.must(b.forget())
		if _, made := b.startHanded(b.startOf(at("s2")), executor); made != nil {
			b.Errorf("got %+v of one that was forgotten", made.Change)
		}
		b.announce(executor)
		if n := len(b.claimAll(executor, 10)); n != 2 {
			b.Errorf("got %d queued runs, want 2", n)
		}
	}},
	{"a repeated request is handed over once", func(b *bench) {
		c := b.startOf(home)
		c.RequestKey, c.RequestHash = "k", []byte("h")
		_, made := b.startHanded(c, executor)
		ref := b.handedRef(made)
		started, made := b.startHanded(c, executor)
		if !started.Repeated || started.Run.RunID != ref.RunID || started.Run.Status != session.RunRunning || made != nil {
			b.Errorf("got %+v, %v; want the first run, handed over before", started, made)
		}
	}},
	{"a run that was handed to an executor that falls silent is queued again", func(b *bench) {
		_, made := b.startHanded(b.startOf(home), executor)
		b.handedRef(made)
		b.now += 1001
		b.announce("another")
		if n := b.silence(); n != 1 {
			b.Fatalf("got %d runs, want 1", n)
		}
		if ref, _ := b.claim("another"); ref.Epoch != 2 {
			b.Errorf("got epoch %d, want 2", ref.Epoch)
		}
	}},
}

// forget strikes all executors off.
func (b *bench) forget() error {
	_, err := b.Store.Forget(b.Context(), b.now+1)
	return err
}
