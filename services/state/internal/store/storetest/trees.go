package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var trees = []test{
	{"a session goes with everything that belongs to it", func(b *bench) {
		key := b.busy(home)
		other := b.busy(session.Key{Tenant: "other", SessionID: home.SessionID})
		before, rows := b.snapshot(other), b.Rows(b.T, other)
		if rows["states"] == 0 || rows["messages"] == 0 || rows["calls"] == 0 {
			b.Fatalf("got rows %v of a busy session", rows)
		}
		b.must(b.delete(key))
		b.gone(key)
		same(b, "another tenant's session", b.snapshot(other), before)
		same(b, "another tenant's rows", b.Rows(b.T, other), rows)
		b.refuses(b.delete(key), fault.NotFound, "SESSION_NOT_FOUND")
		started := b.start(b.startOf(key)) // as if there had never been one
		if s := started.Session; !started.Created || s.Version != 1 || s.Turn != 1 || s.Epoch != 0 {
			b.Errorf("got %+v", s)
		}
		same(b, "messages of the new session", len(b.messages(key)), 1)
		b.suspendAgain(key)
	}},
	{"a tree goes as a whole", func(b *bench) {
		b.tree()
		for _, id := range []string{"root", "child", "grandchild"} {
			b.commit(b.suspending(b.claimOf(at(id)), 1, "call of "+id))
		}
		b.finish(b.claimOf(at("other")))
		b.must(b.putChild(at("root"), session.Child{SessionID: "far", AgentType: agent, Status: session.Active, Location: session.Remote, Remote: `{}`}))
		b.create(b.createOf(at("far"))) // a session of ours that has the remote one's id
		b.create(b.createOf(at("stranger")))
		b.must(b.delete(at("root")))
		for _, id := range []string{"root", "child", "other", "grandchild"} {
			b.gone(at(id))
		}
		for _, id := range []string{"far", "stranger"} {
			b.snapshot(at(id))
		}
		if got := b.claimAll(executor, 9); len(got) != 0 {
			b.Errorf("got %d claims of a tree that is gone", len(got))
		}
	}},
	{"a parent learns that its child is gone", func(b *bench) {
		b.tree()
		b.await("child", "other")
		b.must(b.delete(at("other")))
		b.gone(at("other"))
		b.now += 3
		b.must(b.delete(at("child")))
		b.gone(at("grandchild"))
		root := b.snapshot(at("root"))
		if root.Session.Status != session.Active || root.Current.Entry != session.EntryContinuation {
			b.Errorf("got %+v", root.Session)
		}
		for _, child := range root.Children {
			if child.Status != session.Failed || child.CompletedAt == 0 {
				b.Errorf("got %+v", child)
			}
		}
	}},
	{"an owner of a session that is gone is refused", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.must(b.tryPlan(ref, 1, "plan", "c1"))
		b.must(b.delete(home))
		_, err := b.tryCommit(b.commitOf(ref, 1))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		b.start(b.startOf(home))
		_, err = b.tryCommit(b.commitOf(ref, 1))
		b.refuses(err, fault.NotFound, "RUN_NOT_FOUND")
	}},
	{"a sub-session's location never changes", func(b *bench) {
		b.tree()
		far := session.Child{SessionID: "far", AgentType: agent, Status: session.Active, Mode: session.Persistent, Location: session.Remote, Remote: `{"url":1}`, StartedAt: 5}
		b.must(b.putChild(at("root"), far))
		for _, wrong := range []session.Child{{SessionID: "far", Location: session.Local}, {SessionID: "child", Location: session.Remote}} {
			b.refuses(b.putChild(at("root"), wrong), fault.Conflict, "LOCATION_FIXED")
		}
		b.refuses(b.putChild(at("root"), session.Child{SessionID: "new", Location: session.Local}), fault.Conflict, "CHILD_UNKNOWN")
		b.refuses(b.putChild(at("nobody"), far), fault.NotFound, "SESSION_NOT_FOUND")
		ref := b.claimOf(at("root"))
		c := b.suspending(ref, 1)
		c.Outcome.Status = session.RunSuspendedAwaitingChildren
		c.Suspension.Children = map[string]session.ChildWait{"far": {CallID: "c"}}
		b.commit(c)
		far.Status, far.CompletedAt = session.Completed, b.now
		b.must(b.putChild(at("root"), far))
		root := b.snapshot(at("root"))
		same(b, "root that waited for it", root.Session.Status, session.Active)
		same(b, "children counted", root.Session.Children, int32(3))
		for _, child := range root.Children {
			if child.SessionID == "far" {
				same(b, "remote child", child, far)
			}
		}
	}},
	{"expired sessions are found, the longest expired first, and end once", func(b *bench) {
		for i, expires := range []session.Millis{30, 10, 0, 20, 40} {
			c := b.createOf(session.Key{Tenant: fmt.Sprint("tenant", i%2), SessionID: fmt.Sprint(i)})
			if expires > 0 {
				c.ExpiresAt = b.now + expires
			}
			b.create(c)
		}
		for _, want := range []struct {
			after session.Millis
			limit int
			ids   string
		}{{9, 9, ""}, {10, 9, "1"}, {30, 9, "130"}, {99, 9, "1304"}, {99, 2, "13"}} {
			keys, err := b.Store.Expired(b.Context(), b.now+want.after, want.limit)
			b.must(err)
			ids := ""
			for _, key := range keys {
				ids += key.SessionID
			}
			same(b, fmt.Sprint("expired after ", want.after), ids, want.ids)
		}
		first := session.Key{Tenant: "tenant1", SessionID: "1"}
		b.now += 9
		for _, want := range []session.Expired{session.ExpiryNotDue, session.ExpiryMarked, session.ExpiryAlreadyTerminal} {
			got, err := b.expire(first)
			b.must(err)
			same(b, "expiry", got, want)
			b.now++
		}
		s := b.snapshot(first).Session
		if s.Status != session.Failed || s.Failure.Reason != session.SessionExpired || s.Version != 2 {
			b.Errorf("got %+v", s)
		}
		keys, err := b.Store.Expired(b.Context(), b.now+99, 1)
		b.must(err)
		same(b, "expired once the first has ended", keys, []session.Key{{Tenant: "tenant1", SessionID: "3"}})
	}},
	{"a session that expires while it waits loses its calls, and its parent learns of it", func(b *bench) {
		b.tree()
		b.await("child")
		c := b.suspending(b.claimOf(at("child")), 1, "c1")
		c.ExpireAfter = 10
		b.commit(c)
		keys, err := b.Store.Expired(b.Context(), b.now+10, 9)
		b.must(err)
		same(b, "expired", keys, []session.Key{at("child")})
		b.now += 10
		got, err := b.expire(at("child"))
		b.must(err)
		same(b, "expiry", got, session.ExpiryMarked)
		same(b, "calls", len(b.snapshot(at("root")).Calls), 0)
		same(b, "grandchild", b.snapshot(at("grandchild")).Session.Failure.Reason, session.ParentFailed)
		same(b, "root", b.snapshot(at("root")).Session.Status, session.Active)
	}},
}

// busy runs a session that has rows in every table.
func (b *bench) busy(key session.Key) session.Key {
	b.Helper()
	c := b.startOf(key)
	c.New.UserID, c.New.Tags, c.New.Metadata, c.New.State = "u", []string{"a", "b"}, map[string]string{"k": "v"}, `{"n":1}`
	b.start(c)
	ref := b.claimOf(key)
	commit := b.commitOf(ref, 1)
	commit.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: "2"}}
	commit.Calls = b.suspending(ref, 1, "c1", "c2").Calls
	commit.Children = []session.Child{{SessionID: "far", AgentType: agent, Status: session.Active, Location: session.Remote, Remote: `{}`}}
	commit.Usage = []session.Usage{tokens(1)}
	b.commit(commit)
	b.submit(b.submitOf(key, "c2"))
	commit = b.commitOf(ref, 2)
	commit.Consume = []session.Consume{{CallID: "c2", Revision: 1}}
	b.commit(commit)
	b.must(b.tryPlan(ref, 3, "plan", "c3"))
	_, err := b.tryResult(ref, 3, session.Result{CallID: "c3", Body: []byte("r")})
	b.must(err)
	b.recordUsage(key, "", tool("t"))
	return key
}

// suspendAgain uses the ids again that a busy session had.
func (b *bench) suspendAgain(key session.Key) {
	b.Helper()
	b.commit(b.suspending(b.claimOf(key), 1, "c1", "c2"))
	same(b, "calls of the new session", len(b.snapshot(key).Calls), 2)
}

// gone fails the test unless nothing is left of the session.
func (b *bench) gone(key session.Key) {
	b.Helper()
	for table, n := range b.Rows(b.T, key) {
		if n != 0 {
			b.Errorf("%d rows of %v are left in %s", n, key, table)
		}
	}
	_, err := b.Store.Session(b.Context(), key)
	b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	list, err := b.Store.Sessions(b.Context(), key.Tenant, store.SessionQuery{Limit: 100})
	b.must(err)
	for _, s := range list {
		if s.Key == key {
			b.Errorf("session %v is listed", key)
		}
	}
	sums, err := b.Store.UsageSums(b.Context(), key.Tenant, store.UsageQuery{Sessions: []string{key.SessionID}}, 10)
	if err != nil || len(sums) != 0 {
		b.Errorf("got sums %+v, %v of a session that is gone", sums, err)
	}
}
