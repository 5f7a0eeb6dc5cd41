package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var caps = []suiteCase{
	{"a higher priority is claimed first, and the oldest run within one", func(h *harness) {
		for i, p := range []int32{0, -5, 7, 0, 7} {
			h.queueWith(session.Key{Tenant: "acme", SessionID: fmt.Sprint("p", p, " at ", i)}, "", p, session.Millis(i))
		}
		h.queueWith(session.Key{Tenant: "beta", SessionID: "beta's"}, "", -100, 9)
		same(h, "order", h.claimed(nil, 1, ""), []string{"p7 at 2"})
		same(h, "order after acme", h.claimed(nil, 9, "acme"), []string{"beta's", "p7 at 4", "p0 at 0", "p0 at 3", "p-5 at 1"})
	}},
	{"a continuation and a child inherit the priority and the user", func(h *harness) {
		h.queueWith(home, "u1", 5, 0)
		ref, _ := h.claim(executor)
		if _, run := h.session(home); run.Priority != 5 || run.UserID != "u1" {
			h.Errorf("got the priority %d and the user %q, want 5 and u1", run.Priority, run.UserID)
		}
		c := h.awaitingCommit(ref, 1, "child")
		c.NewChildren = []session.NewChild{
			{SessionID: "child", AgentType: agent, CallID: "call of child", Mode: session.Ephemeral, RunID: "child's", MessageID: "child's ui",
				State: "{}"},
		}
		h.commit(c)
		if _, run := h.session(at("child")); run.Priority != 5 || run.UserID != "u1" {
			h.Errorf("got the priority %d and the user %q of the child, want 5 and u1", run.Priority, run.UserID)
		}
		child, _ := h.claim(executor)
		h.finish(child)
		if _, run := h.session(home); run.Entry != session.EntryContinuation || run.Priority != 5 || run.UserID != "u1" {
			h.Errorf("got %+v, want a continuation with the priority 5 of u1", run)
		}
	}},
	{"a tenant and a user run as many runs as their caps", func(h *harness) {
		caps := &store.Caps{Tenant: 3, User: 2, Tenants: map[string]store.TenantCaps{"free": {Users: map[string]int64{"slow": 1}}}}
		for i := range 4 {
			for _, user := range []string{"u1", "u2", ""} {
				h.queueWith(session.Key{Tenant: "acme", SessionID: fmt.Sprint(user, i)}, user, 0, session.Millis(i))
			}
			h.queueWith(session.Key{Tenant: "free", SessionID: fmt.Sprint("slow", i)}, "slow", 9, session.Millis(i))
			h.queueWith(session.Key{Tenant: "free", SessionID: fmt.Sprint("any", i)}, "any", 0, session.Millis(i))
		}
		var all []string
		for { // the runs of a user at its cap may hide others
			got := h.claimed(caps, 16, "")
			if all = append(all, got...); len(got) == 0 {
				break
			}
		}
		count := map[string]int{}
		for _, id := range all {
			count[strings.TrimRight(id, "0123456789")]++ // u1 and u2 become u
		}
		if count["u"]+count[""] != 3 || count["u"] < 2 || count["slow"] != 1 || count["any"] != 4 {
			h.Errorf("got %q, want three runs of acme, one of the slow user, and all of the other one", all)
		}
		h.finish(h.newestClaim(session.Key{Tenant: "free", SessionID: "slow0"}))
		same(h, "after the end of a run", h.claimed(caps, 16, ""), []string{"slow1"})
		same(h, "at the caps", len(h.claimed(caps, 16, "")), 0)
		if got := h.claimed(nil, 16, ""); len(got) == 0 {
			h.Errorf("without caps, nothing was claimed")
		}
	}},
	{"delayed runs count, and those at a cap delay no others", func(h *harness) {
		caps := &store.Caps{Tenants: map[string]store.TenantCaps{"acme": {Tenant: 1}}}
		for i := range 6 {
			h.queueWith(session.Key{Tenant: "acme", SessionID: fmt.Sprint("a", i)}, "", 0, session.Millis(i))
		}
		for range 5 {
			ref, _ := h.claim(executor)
			release := session.Release{ClaimRef: ref, Delay: 10, Now: h.now}
			h.must(h.send(release.Key, release.Need(), release.Decide))
			h.now++
		}
		h.queueWith(session.Key{Tenant: "beta", SessionID: "b0"}, "", 0, 0)
		h.now += 100
		same(h, "first", h.claimed(caps, 1, "beta"), []string{"a0"})
		same(h, "second", h.claimed(caps, 1, "acme"), []string{"b0"})
		same(h, "third", len(h.claimed(caps, 4, "acme")), 0)
	}},
	{"claims at the same time keep the caps together", func(h *harness) {
		stores := []store.Store{h.Store, h.Store}
		if h.Second != nil {
			stores[1] = h.Second(h.T)
		}
		const runs, most, ofUser = 24, 5, 2
		caps := &store.Caps{Tenant: most, User: ofUser}
		for i := range runs {
			h.queueWith(session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)}, fmt.Sprint("u", i%4), 0, session.Millis(i))
		}
		for round := range 4 {
			var wg sync.WaitGroup
			var mu sync.Mutex
			var refs []session.ClaimRef
			users := map[string]int{}
			for i := range 8 {
				wg.Go(func() {
					for {
						due := store.Queued{ExecutorID: executor, AgentTypes: []string{agent}, Now: h.now + 100, Caps: caps}
						got, err := stores[i%2].UpdateDue(h.Context(), due, session.Need{}, 2, session.Claim{ExecutorID: executor, Now: h.now + 100}.Decide)
						if err != nil {
							h.Error(err)
						}
						if len(got) == 0 {
							return
						}
						mu.Lock()
						for _, d := range got {
							run := d.Change.Runs[0]
							users[run.UserID]++
							refs = append(refs, session.ClaimRef{Key: d.View.Session.Key, RunID: run.RunID, Epoch: run.Epoch})
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if len(refs) > most {
				h.Fatalf("round %d: %d runs run at once, want at most %d", round, len(refs), most)
			}
			for user, n := range users {
				if n > ofUser {
					h.Errorf("round %d: %d runs of %s run at once, want at most %d", round, n, user, ofUser)
				}
			}
			for _, ref := range refs {
				h.finish(ref)
			}
		}
	}},
	{"pending runs are counted up to a number", func(h *harness) {
		for i := range 3 {
			h.queueWith(at(fmt.Sprint("s", i)), []string{"u1", "u2", ""}[i], 0, session.Millis(i))
		}
		h.start(h.waitingOf(at("s0")))
		for _, c := range []struct {
			user string
			most int64
			want int64
		}{{"", 9, 4}, {"", 2, 2}, {"u1", 9, 2}, {"u1", 1, 1}, {"u2", 9, 1}, {"nobody", 9, 0}} {
			got, err := h.Store.PendingRuns(h.Context(), home.Tenant, c.user, c.most)
			h.must(err)
			if got != c.want {
				h.Errorf("got %d of user %q up to %d, want %d", got, c.user, c.most, c.want)
			}
		}
		h.claim(executor)
		got, err := h.Store.PendingRuns(h.Context(), home.Tenant, "", 9)
		if h.must(err); got != 3 {
			h.Errorf("got %d after a claim, want 3", got)
		}
	}},
	{"queued runs are counted by agent, up to a limit", func(h *harness) {
		expect := func(most int64, want map[string]store.QueuedRuns) {
			h.Helper()
			got, err := h.Store.QueuedRuns(h.Context(), home.Tenant, most)
			h.must(err)
			same(h, "queued runs", got, want)
		}
		expect(9, map[string]store.QueuedRuns{})
		h.announceTypes("executor-2", agent, "sales")
		first := h.now
		for _, id := range []string{"s0", "s1", "s2"} {
			h.start(h.startOf(at(id)))
			h.now++
		}
		h.start(h.waitingOf(at("s0"))) // waits for its turn
		other := h.startOf(at("s3"))
		other.AgentType = "sales"
		h.start(other)
		expect(9, map[string]store.QueuedRuns{agent: {Runs: 3, Oldest: first}, "sales": {Runs: 1, Oldest: first + 3}})
		h.claim(executor) // the oldest
		expect(9, map[string]store.QueuedRuns{agent: {Runs: 2, Oldest: first + 1}, "sales": {Runs: 1, Oldest: first + 3}})
		got, err := h.Store.QueuedRuns(h.Context(), home.Tenant, 1)
		h.must(err)
		if len(got) != 1 {
			h.Errorf("got %v up to 1, want one run", got)
		}
	}},
	{"running runs are counted", func(h *harness) {
		for i, user := range []string{"u1", "u2", "u1", ""} {
			h.queueWith(at(fmt.Sprint("s", i)), user, 0, session.Millis(i))
		}
		h.now += 10
		expect := func(all, one int64) {
			for user, want := range map[string]int64{"": all, "u1": one, "nobody": 0} {
				got, err := h.Store.RunningRuns(h.Context(), home.Tenant, user)
				if h.must(err); got != want {
					h.Errorf("got %d of user %q, want %d", got, user, want)
				}
			}
		}
		expect(0, 0)
		for range 3 {
			h.claim(executor)
		}
		expect(3, 2)
		h.finish(h.newestClaim(at("s0")))
		expect(2, 1)
	}},
	{"the backlog has the due runs and the suspended sessions", func(h *harness) {
		for i := range 3 {
			h.queueWith(at(fmt.Sprint("s", i)), "", 0, session.Millis(i))
		}
		for _, c := range []struct{ most, want int64 }{{9, 3}, {2, 2}} {
			got, err := h.Store.Backlog(h.Context(), h.now+100, c.most)
			if h.must(err); got.Queued != c.want || got.OldestQueued < h.now || got.OldestQueued > h.now+100 {
				h.Errorf("got %+v up to %d, want %d runs", got, c.most, c.want)
			}
		}
		key := at("suspended")
		h.start(h.startOf(key))
		c := h.suspendingCommit(h.claimOf(key), 1, "tool")
		c.ExpireAfter = 1000
		h.commit(c)
		got, err := h.Store.Backlog(h.Context(), h.now+100, 9)
		h.must(err)
		none := store.SuspendedSessions{}
		if one := got.Suspended[session.SuspendedClientTool]; one.Sessions != 1 || one.Oldest == 0 {
			h.Errorf("got %+v, want one suspended session", got)
		}
		if len(got.Suspended) != 3 || got.Suspended[session.SuspendedStepPartial] != none ||
			got.Suspended[session.SuspendedAwaitingChildren] != none {
			h.Errorf("got %+v, want zeros for the other statuses", got)
		}
	}},
	{"stored bytes are those of messages and files", func(h *harness) {
		c := h.startOf(home)
		c.Messages[0].Body = []byte("1234567")
		h.start(c)
		h.addFile(home.Tenant, "file_1", "photo")
		got, err := h.Store.StoredBytes(h.Context(), home.Tenant)
		if h.must(err); got != int64(7+len("photo")) {
			h.Errorf("got %d, want %d", got, 7+len("photo"))
		}
	}},
}

// queueWith begins a run of a user with a priority, later than the clock.
func (h *harness) queueWith(key session.Key, userID string, priority int32, later session.Millis) {
	h.Helper()
	c := h.startOf(key)
	c.NewSession.UserID, c.Priority, c.Now = userID, priority, c.Now+later
	h.start(c)
}

// claimed claims at most limit runs, after the turn of a tenant, and returns their sessions.
func (h *harness) claimed(caps *store.Caps, limit int, after string) (sessions []string) {
	h.Helper()
	due := store.Queued{ExecutorID: executor, AgentTypes: []string{agent}, Now: h.now + 100, After: after, Caps: caps}
	got, err := h.Store.UpdateDue(h.Context(), due, session.Need{}, limit, session.Claim{ExecutorID: executor, Now: h.now + 100}.Decide)
	h.must(err)
	for _, d := range got {
		sessions = append(sessions, d.View.Session.SessionID)
	}
	return slices.Clip(sessions)
}

// newestClaim returns the newest claim of a session.
func (h *harness) newestClaim(key session.Key) session.ClaimRef {
	h.Helper()
	s, run := h.session(key)
	return session.ClaimRef{Key: key, RunID: run.RunID, Epoch: s.Epoch}
}
