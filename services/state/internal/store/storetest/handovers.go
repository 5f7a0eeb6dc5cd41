package storetest

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// failer is a test of the suite or a history.
type failer interface {
	Fatalf(format string, args ...any)
}

// expectClaim fails the test unless the claim's rows are stored.
func expectClaim(ctx interface{ Context() context.Context }, t failer, s store.Store, c session.HandOver, made store.Decided) {
	run := made.Change.Runs[0]
	need := session.Need{RunID: run.RunID, State: true, Journal: true, Calls: true, Tail: c.Tail}
	target := session.Target{Key: made.Change.Session.Key, Need: need}
	var got *session.View
	if err := s.Update(ctx.Context(), []session.Target{target}, weight, func(views []*session.View) ([]*session.Change, error) {
		got = views[0]
		return nil, nil
	}); err != nil {
		t.Fatalf("read the handed-over run: %v", err)
	}
	for what, pair := range map[string][2]any{
		"session": {got.Session, made.Change.Session}, "run": {got.Run, &run},
		"journal": {got.Journal, made.View.Journal}, "calls": {got.Calls, made.View.Calls}, "messages": {got.Tail, made.View.Tail},
	} {
		mustEqual(t, what, pair[0], pair[1])
	}
}

// startHandedOver starts a run and hands it over. made is nil if the run was queued.
func (h *harness) startHandedOver(c intent, to string) (started session.Started, made *store.Decided) {
	h.Helper()
	claim := handOver(to, h.now)
	f := session.Family{Now: h.now, NewID: func() string { return h.id("run") }}
	h.must(sendThen(h, h.Store, f, keyOf(c), claim.Need(c.Need()), capturingWide(&started, c.Decide), withHandOver(claim, &made)))
	return started, made
}

func (h *harness) expectHandOver(made *store.Decided) session.ClaimRef {
	h.Helper()
	if made == nil {
		h.Fatal("the run was queued and not handed over")
	}
	return refOf(*made)
}

var handovers = []suiteCase{
	{"a handover equals a queued run and a claim", func(h *harness) {
		keys := []session.Key{home, at("s2")}
		for i, key := range keys {
			c := h.startOf(key)
			c.NewSession.State, c.Traceparent, c.RequestKey, c.RequestHash, c.RunID, c.MessageID = `{"n": 1}`, "00-aa-bb-01", "k", []byte("h"), "r",
				"m"
			c.Messages[0].ID, c.Messages[0].RunID = "m1", "r"
			if i == 0 {
				_, made := h.startHandedOver(c, executor)
				h.expectHandOver(made)
				expectClaim(h, h, h.Store, handOver(executor, h.now), *made)
			} else {
				h.start(c)
				h.claim(executor)
			}
		}
		first, run := h.session(keys[0])
		second, other := h.session(keys[1])
		second.Key, second.RootID = first.Key, first.RootID
		same(h, "session", first, second)
		same(h, "run", run, other)
		same(h, "messages", h.messages(keys[0]), h.messages(keys[1]))
		if len(h.claimAll(executor, 10)) != 0 {
			h.Error("a handed-over run is due")
		}
	}},
	{"a handed-over run and its successor commit as any other", func(h *harness) {
		_, made := h.startHandedOver(h.startOf(home), executor)
		ref := h.expectHandOver(made)
		h.commit(h.commitOf(ref, 1))
		h.finish(ref)
		h.forceStatus(home, session.Paused)
		c := h.resumeOf(home)
		c.Messages = h.startOf(home).Messages
		c.Append = []session.Message{{ID: "sys", Role: "system", Body: []byte("s")}}
		c.Ops = []session.StateOp{{Key: "k", Kind: session.OpReplace, Value: `"v"`}}
		_, made = h.startHandedOver(c, executor)
		if reclaimed := h.expectHandOver(made); reclaimed.Epoch != 2 {
			h.Errorf("got epoch %d, want 2", reclaimed.Epoch)
		}
		expectClaim(h, h, h.Store, handOver(executor, h.now), *made)
		if n := len(made.View.Tail); n != 3 { // of four messages
			h.Errorf("got %d messages, want the last 3", n)
		}
	}},
	{"only a registered executor gets a handover", func(h *harness) {
		if _, made := h.startHandedOver(h.startOf(home), "stranger"); made != nil {
			h.Errorf("got %+v", made.Change)
		}
		h.must(h.unregisterAll())
		if _, made := h.startHandedOver(h.startOf(at("s2")), executor); made != nil {
			h.Errorf("got %+v of an unregistered executor", made.Change)
		}
		h.announce(executor)
		if n := len(h.claimAll(executor, 10)); n != 2 {
			h.Errorf("got %d queued runs, want 2", n)
		}
	}},
	{"a repeated request is handed over once", func(h *harness) {
		c := h.startOf(home)
		c.RequestKey, c.RequestHash = "k", []byte("h")
		_, made := h.startHandedOver(c, executor)
		ref := h.expectHandOver(made)
		started, made := h.startHandedOver(c, executor)
		if !started.Repeated || started.Run.RunID != ref.RunID || started.Run.Status != session.RunRunning || made != nil {
			h.Errorf("got %+v, %v; want the first run, already handed over", started, made)
		}
	}},
	{"a handed-over run of a silent executor is queued again", func(h *harness) {
		_, made := h.startHandedOver(h.startOf(home), executor)
		h.expectHandOver(made)
		h.now += 1001
		h.announce("another")
		if n := h.requeueSilent(); n != 1 {
			h.Fatalf("got %d runs, want 1", n)
		}
		if ref, _ := h.claim("another"); ref.Epoch != 2 {
			h.Errorf("got epoch %d, want 2", ref.Epoch)
		}
	}},
}

// unregisterAll unregisters all executors.
func (h *harness) unregisterAll() error {
	_, err := h.Store.UnregisterSilent(h.Context(), h.now+1)
	return err
}
