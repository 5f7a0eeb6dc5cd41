package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var claims = []suiteCase{
	{"claims return the oldest runs of the named agents", func(h *harness) {
		for _, id := range []string{"third", "first", "second"} {
			c := h.startOf(session.Key{Tenant: "acme", SessionID: id})
			c.Now += map[string]session.Millis{"first": 1, "second": 2, "third": 3}[id]
			h.start(c)
		}
		h.must(h.Store.Announce(h.Context(), "other", []session.Agent{{Type: "sales"}}, h.now))
		sales := store.Queued{ExecutorID: "other", AgentTypes: []string{"sales"}, Now: h.now + 10}
		none, err := h.Store.UpdateDue(h.Context(), sales, session.Need{}, 10, session.Claim{ExecutorID: "other"}.Decide)
		if err != nil || len(none) != 0 {
			h.Errorf("got %d claims of another agent, %v; want none", len(none), err)
		}
		var order []string
		for _, d := range append(h.claimAll(executor, 2), h.claimAll(executor, 2)...) {
			order = append(order, d.View.Session.SessionID)
		}
		same(h, "order", order, []string{"first", "second", "third"})
	}},
	{"tenants take turns", func(h *harness) {
		h.queueFor("b", "b0")
		delayed, _ := h.claim(executor)
		release := session.Release{ClaimRef: delayed, Delay: 10, Now: h.now}
		h.must(h.send(release.Key, release.Need(), release.Decide))
		h.now++
		h.queueFor("a", "a1", "a2", "a3", "a4", "a5", "a6")
		h.queueFor("b", "b1", "b2")
		h.queueFor("c", "c1", "c2", "c3")
		for i, want := range []struct {
			after   string
			left    int64
			weights map[string]int64
			runs    []string
		}{
			{"", 0, nil, []string{"a1"}},
			{"a", 0, nil, []string{"b0", "c1", "a2", "b1"}},
			{"b", 0, nil, []string{"c2"}},
			{"b", 1, map[string]int64{"b": 2}, []string{"b2"}},
			{"bb", 2, map[string]int64{"a": 2}, []string{"c3", "a3", "a4"}},
			{"a", 1, map[string]int64{"a": 9}, []string{"a5"}},
			{"zz", 0, nil, []string{"a6"}},
			{"", 0, nil, nil},
		} {
			due := store.Queued{
				ExecutorID: executor, AgentTypes: []string{agent}, Now: h.now + 100, After: want.after, Left: want.left, Weights: want.weights,
			}
			got, err := h.Store.UpdateDue(h.Context(), due, session.Need{}, max(len(want.runs), 1),
				session.Claim{ExecutorID: executor, Now: h.now + 100}.Decide)
			h.must(err)
			var runs []string
			for _, d := range got {
				runs = append(runs, d.View.Session.SessionID)
			}
			same(h, fmt.Sprint("claim ", i), runs, want.runs)
		}
	}},
	{"a claim raises the epoch and carries the whole context", func(h *harness) {
		c := h.startOf(home)
		c.NewSession.State = `{"a":1}`
		h.start(c)
		h.now += 5
		ref, d := h.claim(executor)
		s, run := h.session(home)
		if ref.Epoch != 1 || s.Epoch != 1 || run.Epoch != 1 || run.Attempt != 1 || run.Status != session.RunRunning ||
			run.ExecutorID != executor || run.StartedAt != h.now || run.ClaimedAt != h.now {
			h.Errorf("got epoch %d, run %+v", s.Epoch, run)
		}
		if s.Version != 1 {
			h.Errorf("a claim changed the version to %d", s.Version)
		}
		same(h, "change's session", *d.Change.Session, s)
		same(h, "tail", d.View.Tail, h.messages(home))
		if d.View.Journal != nil {
			h.Errorf("got a journal %+v, want none", d.View.Journal)
		}
		if repeat := h.claimAll(executor, 1); len(repeat) != 0 {
			h.Errorf("the run was claimed twice")
		}
	}},
	{"a run that cannot be claimed does not block others", func(h *harness) {
		h.start(h.startOf(at("delayed")))
		ref, _ := h.claim(executor)
		c := session.Release{ClaimRef: ref, Delay: 1000, Now: h.now}
		h.must(h.send(c.Key, c.Need(), c.Decide))
		h.now++
		h.start(h.startOf(at("free")))
		if ref, _ := h.claim(executor); ref.SessionID != "free" {
			h.Errorf("got a claim of %v", ref.Key)
		}
	}},
	{"an agent that is named twice gets each run once", func(h *harness) {
		h.start(h.startOf(home))
		due := store.Queued{ExecutorID: executor, AgentTypes: []string{agent, agent}, Now: h.now}
		got, err := h.Store.UpdateDue(h.Context(), due, session.Need{}, 10, session.Claim{ExecutorID: executor}.Decide)
		if err != nil || len(got) != 1 {
			h.Errorf("got %d claims of one run, %v", len(got), err)
		}
	}},
	{"only a registered executor gets runs", func(h *harness) {
		h.start(h.startOf(home))
		if got := h.claimAll("stranger", 1); len(got) != 0 {
			h.Errorf("a stranger got %d claims", len(got))
		}
		h.now += 5000
		h.requeueSilent()
		if got := h.claimAll(executor, 1); len(got) != 0 {
			h.Errorf("a silent executor got %d claims", len(got))
		}
		h.announce(executor)
		h.claim(executor)
	}},
	{"an executor stays registered until it is silent for too long", func(h *harness) {
		h.now += 900
		h.expectRegistered(executor, true)
		h.now += 900
		h.requeueSilent()
		h.expectRegistered(executor, true)
		h.now += 1001
		h.requeueSilent()
		h.expectRegistered(executor, false)
		h.announce(executor)
		h.expectRegistered(executor, true)
		h.expectRegistered("stranger", false)
	}},
	{"a heartbeat prevents a concurrent unregistration", func(h *harness) {
		h.announce("beats")
		h.announce("dies")
		h.now++
		h.announce("returns")
		since, err := h.Store.LastSeen(h.Context())
		h.must(err)
		same(h, "last heartbeats", since, map[string]session.Millis{executor: h.now - 1, "beats": h.now - 1, "dies": h.now - 1, "returns": h.now})
		unregistered, err := h.Store.UnregisterUnseen(h.Context(), nil)
		if err != nil || len(unregistered) != 0 {
			h.Errorf("got %v, %v of no executor", unregistered, err)
		}
		h.now -= 500 // another replica's clock is behind
		h.expectRegistered("beats", true)
		h.announce("returns")
		delete(since, executor)
		since["stranger"] = h.now
		unregistered, err = h.Store.UnregisterUnseen(h.Context(), since)
		h.must(err)
		same(h, "unregistered", unregistered, []string{"dies"})
		h.expectRegistered("dies", false)
		for _, id := range []string{executor, "beats", "returns"} {
			h.expectRegistered(id, true)
		}
		unregistered, err = h.Store.UnregisterUnseen(h.Context(), since)
		if err != nil || len(unregistered) != 0 {
			h.Errorf("got %v, %v of an unregistered executor", unregistered, err)
		}
	}},
	{"the next run can be claimed once the previous one has ended", func(h *harness) {
		h.start(h.startOf(home))
		first, _ := h.claim(executor)
		h.finish(first)
		_, ended := h.session(home)
		next := h.start(h.startOf(home))
		if next.Run.StartPosition != ended.EndPosition || ended.EndPosition == 0 {
			h.Errorf("got start position %d, want the end of the run before, %d", next.Run.StartPosition, ended.EndPosition)
		}
		if second, _ := h.claim(executor); second.RunID != next.Run.RunID {
			h.Errorf("got run %q, want %q", second.RunID, next.Run.RunID)
		}
	}},
	{"another executor gets a silent executor's run with its journal", func(h *harness) {
		h.start(h.startOf(home))
		old, _ := h.claim(executor)
		ops := []session.StateOp{{Key: "p", Kind: session.OpAppend, Value: "[1]"}}
		h.must(h.tryPlanWith(old, 1, "plan", ops, "c1", "c2"))
		result := session.Result{CallID: "c2", Body: []byte("r2"), Ops: []session.StateOp{{Key: "k", Kind: session.OpReplace, Value: "1"}},
			Usage: []session.Usage{toolUsage("t")}}
		_, err := h.tryResult(old, 1, result)
		h.must(err)
		h.now += 2000
		h.announce("executor-2")
		if n := h.requeueSilent(); n != 1 {
			h.Fatalf("got %d runs of silent executors, want 1", n)
		}
		h.expectStale(old) // a queued run has no owner
		ref, d := h.claim("executor-2")
		want := session.Journal{Step: 1, Plan: []byte("plan"), CallIDs: []string{"c1", "c2"},
			Usage: []session.Usage{modelUsage(5)}, Ops: ops, Results: []session.Result{result}}
		same(h, "journal", *d.View.Journal, want)
		run := d.Change.Runs[0]
		if ref.Epoch != 2 || run.Attempt != 2 || run.StartedAt != h.now-2000 || run.ExecutorID != "executor-2" {
			h.Errorf("got epoch %d, run %+v; want epoch 2, attempt 2, the first start", ref.Epoch, run)
		}
		h.expectStale(old)
		h.commit(h.commitOf(ref, 1))
	}},
	{"runs that an executor does not hold are queued again", func(h *harness) {
		var refs []session.ClaimRef
		for _, id := range []string{"held", "lost", "fresh", "ended"} {
			if id == "fresh" {
				h.now += 100
			}
			h.start(h.startOf(session.Key{Tenant: "acme", SessionID: id}))
			ref, _ := h.claim(executor)
			refs = append(refs, ref)
			if id == "ended" {
				h.finish(ref)
			}
		}
		lost := h.requeueLost(executor, []string{refs[0].RunID}, h.now)
		same(h, "lost", lost, []string{refs[1].RunID})
		reclaimed, _ := h.claim(executor)
		if reclaimed.RunID != refs[1].RunID || reclaimed.Epoch != 2 {
			h.Errorf("got run %q with epoch %d, want the lost run with epoch 2", reclaimed.RunID, reclaimed.Epoch)
		}
	}},
	{"a released run is queued at once", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.must(h.tryPlan(ref, 1, "plan", "c1"))
		h.must(h.tryRelease(ref))
		h.must(h.tryRelease(ref))
		h.expectStale(ref)
		reclaimed, d := h.claim(executor)
		if reclaimed.Epoch != 2 || d.View.Journal == nil {
			h.Errorf("got epoch %d, journal %v; want 2 and the plan", reclaimed.Epoch, d.View.Journal)
		}
		h.refuses(h.tryRelease(ref), fault.Stale, "EPOCH_STALE")
	}},
}

func (h *harness) expectRegistered(executorID string, want bool) {
	h.Helper()
	known, err := h.Store.Heartbeat(h.Context(), executorID, h.now)
	if err != nil || known != want {
		h.Errorf("heartbeat of %s: got known %v, %v; want %v", executorID, known, err, want)
	}
}

// requeueLost requeues the runs that the executor does not hold, and returns their ids.
func (h *harness) requeueLost(executorID string, held []string, before session.Millis) []string {
	h.Helper()
	due := store.LostClaims{ExecutorID: executorID, HeldRunIDs: held, ClaimedBefore: before}
	c := session.RequeueLost{ExecutorID: executorID, HeldRunIDs: held, ClaimedBefore: before, Now: h.now}
	freed, err := h.Store.UpdateDue(h.Context(), due, session.Need{}, 10, c.Decide)
	h.must(err)
	var runs []string
	for _, d := range freed {
		runs = append(runs, d.View.Run.RunID)
	}
	return runs
}

// expectStale fails the test unless every write of the claim is stale.
func (h *harness) expectStale(ref session.ClaimRef) {
	h.Helper()
	before, _ := h.session(ref.Key)
	h.refuses(h.tryPlan(ref, 1, "plan", "c1", "c2"), fault.Stale, "EPOCH_STALE")
	_, err := h.tryResult(ref, 1, session.Result{CallID: "c1"})
	h.refuses(err, fault.Stale, "EPOCH_STALE")
	_, err = h.tryCommit(h.commitOf(ref, 1))
	h.refuses(err, fault.Stale, "EPOCH_STALE")
	_, err = h.tryFinish(ref, completed)
	h.refuses(err, fault.Stale, "EPOCH_STALE")
	after, _ := h.session(ref.Key)
	same(h, "session after stale writes", after, before)
}

// queueFor begins runs of a tenant, the first one earliest.
func (h *harness) queueFor(tenant string, sessions ...string) {
	h.Helper()
	for i, id := range sessions {
		c := h.startOf(session.Key{Tenant: tenant, SessionID: id})
		c.Now += session.Millis(i)
		h.start(c)
	}
}
