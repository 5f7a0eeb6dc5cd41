package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var claims = []test{
	{"claims come oldest first, and for the agents named", func(b *bench) {
		for _, id := range []string{"third", "first", "second"} {
			c := b.startOf(session.Key{Tenant: "acme", SessionID: id})
			c.Now += map[string]session.Millis{"first": 1, "second": 2, "third": 3}[id]
			b.start(c)
		}
		b.must(b.Store.Announce(b.Context(), "other", []session.Agent{{Type: "sales"}}, b.now))
		sales := store.Queued{ExecutorID: "other", AgentTypes: []string{"sales"}, Now: b.now + 10}
		none, err := b.Store.UpdateDue(b.Context(), sales, session.Need{}, 10, session.Claim{ExecutorID: "other"}.Decide)
		if err != nil || len(none) != 0 {
			b.Errorf("got %d claims of another agent, %v; want none", len(none), err)
		}
		var order []string
		for _, d := range append(b.claimAll(executor, 2), b.claimAll(executor, 2)...) {
			order = append(order, d.View.Session.SessionID)
		}
		same(b, "order", order, []string{"first", "second", "third"})
	}},
	{"a claim raises the epoch and hands everything over", func(b *bench) {
		c := b.startOf(home)
		c.New.State = `{"a":1}`
		b.start(c)
		b.now += 5
		ref, d := b.claim(executor)
		s, run := b.session(home)
		if ref.Epoch != 1 || s.Epoch != 1 || run.Epoch != 1 || run.Attempt != 1 || run.Status != session.RunRunning ||
			run.ExecutorID != executor || run.StartedAt != b.now || run.ClaimedAt != b.now {
			b.Errorf("got epoch %d, run %+v", s.Epoch, run)
		}
		if s.Version != 1 {
			b.Errorf("a claim changed the version to %d", s.Version)
		}
		same(b, "change's session", *d.Change.Session, s)
		same(b, "tail", d.View.Tail, b.messages(home))
		if d.View.Journal != nil {
			b.Errorf("got a journal %+v, want none", d.View.Journal)
		}
		if again := b.claimAll(executor, 1); len(again) != 0 {
			b.Errorf("the run was claimed twice")
		}
	}},
	{"a run that cannot be claimed stands in nobody's way", func(b *bench) {
		b.start(b.startOf(at("delayed")))
		ref, _ := b.claim(executor)
		c := session.Release{Ref: ref, Delay: 1000, Now: b.now}
		b.must(b.send(c.Key, c.Need(), c.Decide))
		b.now++
		b.start(b.startOf(at("free")))
		if ref, _ := b.claim(executor); ref.SessionID != "free" {
			b.Errorf("got a claim of %v", ref.Key)
		}
	}},
	{"an agent that is named twice gets its runs once", func(b *bench) {
		b.start(b.startOf(home))
		due := store.Queued{ExecutorID: executor, AgentTypes: []string{agent, agent}, Now: b.now}
		got, err := b.Store.UpdateDue(b.Context(), due, session.Need{}, 10, session.Claim{ExecutorID: executor}.Decide)
		if err != nil || len(got) != 1 {
			b.Errorf("got %d claims of one run, %v", len(got), err)
		}
	}},
	{"only an executor that lives gets work", func(b *bench) {
		b.start(b.startOf(home))
		if got := b.claimAll("stranger", 1); len(got) != 0 {
			b.Errorf("a stranger got %d claims", len(got))
		}
		b.now += 5000
		b.silence()
		if got := b.claimAll(executor, 1); len(got) != 0 {
			b.Errorf("a silent executor got %d claims", len(got))
		}
		b.announce(executor)
		b.claim(executor)
	}},
	{"an executor is known until it is silent for too long", func(b *bench) {
		b.now += 900
		b.heard(executor, true)
		b.now += 900
		b.silence()
		b.heard(executor, true)
		b.now += 1001
		b.silence()
		b.heard(executor, false)
		b.announce(executor)
		b.heard(executor, true)
		b.heard("stranger", false)
	}},
	{"only an executor that was not heard since is forgotten for it", func(b *bench) {
		b.announce("beats")
		b.announce("dies")
		b.now++
		b.announce("comes back")
		since, err := b.Store.Heard(b.Context())
		b.must(err)
		same(b, "heard", since, map[string]session.Millis{executor: b.now - 1, "beats": b.now - 1, "dies": b.now - 1, "comes back": b.now})
		gone, err := b.Store.ForgetUnheard(b.Context(), nil)
		if err != nil || len(gone) != 0 {
			b.Errorf("got %v, %v of nobody", gone, err)
		}
		b.now -= 500 // of another replica, whose clock is behind
		b.heard("beats", true)
		b.announce("comes back")
		delete(since, executor)
		since["stranger"] = b.now
		gone, err = b.Store.ForgetUnheard(b.Context(), since)
		b.must(err)
		same(b, "gone", gone, []string{"dies"})
		b.heard("dies", false)
		for _, id := range []string{executor, "beats", "comes back"} {
			b.heard(id, true)
		}
		gone, err = b.Store.ForgetUnheard(b.Context(), since)
		if err != nil || len(gone) != 0 {
			b.Errorf("got %v, %v of one that is gone", gone, err)
		}
	}},
	{"the next run is claimed as soon as the former one has ended", func(b *bench) {
		b.start(b.startOf(home))
		first, _ := b.claim(executor)
		b.finish(first)
		_, ended := b.session(home)
		next := b.start(b.startOf(home))
		if next.Run.StartPosition != ended.EndPosition || ended.EndPosition == 0 {
			b.Errorf("got start position %d, want the end of the run before, %d", next.Run.StartPosition, ended.EndPosition)
		}
		if second, _ := b.claim(executor); second.RunID != next.Run.RunID {
			b.Errorf("got run %q, want %q", second.RunID, next.Run.RunID)
		}
	}},
	{"a silent executor's run goes to another with its journal", func(b *bench) {
		b.start(b.startOf(home))
		old, _ := b.claim(executor)
		ops := []session.StateOp{{Key: "p", Kind: session.Append, Value: "[1]"}}
		b.must(b.tryPlanWith(old, 1, "plan", ops, "c1", "c2"))
		result := session.Result{CallID: "c2", Body: []byte("r2"), Ops: []session.StateOp{{Key: "k", Kind: session.Replace, Value: "1"}},
			Usage: []session.Usage{tool("t")}}
		_, err := b.tryResult(old, 1, result)
		b.must(err)
		b.now += 2000
		b.announce("executor-2")
		if n := b.silence(); n != 1 {
			b.Fatalf("got %d runs of silent executors, want 1", n)
		}
		b.stale(old) // queued: nobody owns it
		ref, d := b.claim("executor-2")
		want := session.Journal{Step: 1, Plan: []byte("plan"), CallIDs: []string{"c1", "c2"},
			Usage: []session.Usage{tokens(5)}, Ops: ops, Results: []session.Result{result}}
		same(b, "journal", *d.View.Journal, want)
		run := d.Change.Runs[0]
		if ref.Epoch != 2 || run.Attempt != 2 || run.StartedAt != b.now-2000 || run.ExecutorID != "executor-2" {
			b.Errorf("got epoch %d, run %+v; want epoch 2, attempt 2, the first start", ref.Epoch, run)
		}
		b.stale(old)
		b.commit(b.commitOf(ref, 1))
	}},
	{"claims that an executor does not hold are lost", func(b *bench) {
		var refs []session.Ref
		for _, id := range []string{"held", "lost", "fresh", "ended"} {
			if id == "fresh" {
				b.now += 100
			}
			b.start(b.startOf(session.Key{Tenant: "acme", SessionID: id}))
			ref, _ := b.claim(executor)
			refs = append(refs, ref)
			if id == "ended" {
				b.finish(ref)
			}
		}
		lost := b.lose(executor, []string{refs[0].RunID}, b.now)
		same(b, "lost", lost, []string{refs[1].RunID})
		again, _ := b.claim(executor)
		if again.RunID != refs[1].RunID || again.Epoch != 2 {
			b.Errorf("got run %q with epoch %d, want the lost run with epoch 2", again.RunID, again.Epoch)
		}
	}},
	{"a released run is queued at once", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.must(b.tryPlan(ref, 1, "plan", "c1"))
		b.must(b.tryRelease(ref))
		b.must(b.tryRelease(ref))
		b.stale(ref)
		again, d := b.claim(executor)
		if again.Epoch != 2 || d.View.Journal == nil {
			b.Errorf("got epoch %d, journal %v; want 2 and the plan", again.Epoch, d.View.Journal)
		}
		b.refuses(b.tryRelease(ref), fault.Stale, "EPOCH_STALE")
	}},
	{"a run that has ended is not released", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.finish(ref)
		b.refuses(b.tryRelease(ref), fault.Stale, "RUN_FINISHED")
	}},
}

func (b *bench) heard(executorID string, want bool) {
	b.Helper()
	known, err := b.Store.Beat(b.Context(), executorID, b.now)
	if err != nil || known != want {
		b.Errorf("heartbeat of %s: got known %v, %v; want %v", executorID, known, err, want)
	}
}

// lose takes back what the executor does not hold, and returns the runs.
func (b *bench) lose(executorID string, held []string, before session.Millis) []string {
	b.Helper()
	due := store.Lost{ExecutorID: executorID, Held: held, ClaimedBefore: before}
	c := session.RequeueLost{ExecutorID: executorID, Held: held, ClaimedBefore: before, Now: b.now}
	freed, err := b.Store.UpdateDue(b.Context(), due, session.Need{}, 10, c.Decide)
	b.must(err)
	var runs []string
	for _, d := range freed {
		runs = append(runs, d.View.Run.RunID)
	}
	return runs
}

// stale fails the test unless every write of the claim is refused.
func (b *bench) stale(ref session.Ref) {
	b.Helper()
	before, _ := b.session(ref.Key)
	b.refuses(b.tryPlan(ref, 1, "plan", "c1", "c2"), fault.Stale, "EPOCH_STALE")
	_, err := b.tryResult(ref, 1, session.Result{CallID: "c1"})
	b.refuses(err, fault.Stale, "EPOCH_STALE")
	_, err = b.tryCommit(b.commitOf(ref, 1))
	b.refuses(err, fault.Stale, "EPOCH_STALE")
	_, err = b.tryFinish(ref, completed)
	b.refuses(err, fault.Stale, "EPOCH_STALE")
	after, _ := b.session(ref.Key)
	same(b, "session after stale writes", after, before)
}
