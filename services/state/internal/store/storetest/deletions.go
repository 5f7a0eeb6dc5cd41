package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var deletions = []suiteCase{
	{"deleting a session deletes all its rows", func(h *harness) {
		key := h.populateSession(home)
		other := h.populateSession(session.Key{Tenant: "other", SessionID: home.SessionID})
		before, rows := h.snapshot(other), h.Rows(h.T, other)
		if rows["states"] == 0 || rows["messages"] == 0 || rows["calls"] == 0 {
			h.Fatalf("got rows %v of a busy session", rows)
		}
		h.must(h.delete(key))
		h.expectDeleted(key)
		same(h, "another tenant's session", h.snapshot(other), before)
		same(h, "another tenant's rows", h.Rows(h.T, other), rows)
		h.refuses(h.delete(key), fault.NotFound, "SESSION_NOT_FOUND")
		started := h.start(h.startOf(key)) // as a new session
		if s := started.Session; !started.Created || s.Version != 1 || s.Turn != 1 || s.Epoch != 0 {
			h.Errorf("got %+v", s)
		}
		same(h, "messages of the new session", len(h.messages(key)), 1)
		h.reuseCallIDs(key)
	}},
	{"deleting a session deletes its sub-sessions", func(h *harness) {
		h.startTree()
		for _, id := range []string{"root", "child", "grandchild"} {
			h.commit(h.suspendingCommit(h.claimOf(at(id)), 1, "call of "+id))
		}
		h.finish(h.claimOf(at("other")))
		h.must(h.putChild(at("root"), session.Child{SessionID: "far", AgentType: agent, Status: session.Active, Location: session.Remote,
			Remote: `{}`}))
		h.create(h.createOf(at("far"))) // a local session with the id of the remote one
		h.create(h.createOf(at("stranger")))
		h.must(h.delete(at("root")))
		for _, id := range []string{"root", "child", "other", "grandchild"} {
			h.expectDeleted(at(id))
		}
		for _, id := range []string{"far", "stranger"} {
			h.snapshot(at(id))
		}
		if got := h.claimAll(executor, 9); len(got) != 0 {
			h.Errorf("got %d claims of deleted sessions", len(got))
		}
	}},
	{"expired sessions are listed, the longest expired first, and end once", func(h *harness) {
		for i, expires := range []session.Millis{30, 10, 0, 20, 40} {
			c := h.createOf(session.Key{Tenant: fmt.Sprint("tenant", i%2), SessionID: fmt.Sprint(i)})
			if expires > 0 {
				c.ExpiresAt = h.now + expires
			}
			h.create(c)
		}
		for _, want := range []struct {
			after session.Millis
			limit int
			ids   string
		}{{9, 9, ""}, {10, 9, "1"}, {30, 9, "130"}, {99, 9, "1304"}, {99, 2, "13"}} {
			keys, err := h.Store.Expired(h.Context(), h.now+want.after, want.limit)
			h.must(err)
			ids := ""
			for _, key := range keys {
				ids += key.SessionID
			}
			same(h, fmt.Sprint("expired after ", want.after), ids, want.ids)
		}
		first := session.Key{Tenant: "tenant1", SessionID: "1"}
		h.now += 9
		for _, want := range []session.ExpiryResult{session.ExpiryNotDue, session.ExpiryMarked, session.ExpiryAlreadyTerminal} {
			got, err := h.expire(first)
			h.must(err)
			same(h, "expiry", got, want)
			h.now++
		}
		s := h.snapshot(first).Session
		if s.Status != session.Failed || s.Failure.Reason != session.SessionExpired || s.Version != 2 {
			h.Errorf("got %+v", s)
		}
		keys, err := h.Store.Expired(h.Context(), h.now+99, 1)
		h.must(err)
		same(h, "expired once the first has ended", keys, []session.Key{{Tenant: "tenant1", SessionID: "3"}})
	}},
}

// populateSession runs a session with rows in every table.
func (h *harness) populateSession(key session.Key) session.Key {
	h.Helper()
	c := h.startOf(key)
	c.NewSession.UserID, c.NewSession.Tags, c.NewSession.Metadata, c.NewSession.State = "u", []string{"a", "b"}, map[string]string{"k": "v"},
		`{"n":1}`
	h.start(c)
	ref := h.claimOf(key)
	commit := h.commitOf(ref, 1)
	commit.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "2"}}
	commit.Calls = h.suspendingCommit(ref, 1, "c1", "c2").Calls
	commit.Children = []session.Child{{SessionID: "far", AgentType: agent, Status: session.Active, Location: session.Remote, Remote: `{}`}}
	commit.Usage = []session.Usage{modelUsage(1)}
	h.commit(commit)
	h.submit(h.submitOf(key, "c2"))
	commit = h.commitOf(ref, 2)
	commit.Consume = []session.Consume{{CallID: "c2", Revision: 1}}
	h.commit(commit)
	h.must(h.tryPlan(ref, 3, "plan", "c3"))
	_, err := h.tryResult(ref, 3, session.Result{CallID: "c3", Body: []byte("r")})
	h.must(err)
	h.recordUsage(key, "", toolUsage("t"))
	h.must(h.writeStore(key, put("k", "1")))
	return key
}

// reuseCallIDs suspends on the call ids of populateSession.
func (h *harness) reuseCallIDs(key session.Key) {
	h.Helper()
	h.commit(h.suspendingCommit(h.claimOf(key), 1, "c1", "c2"))
	same(h, "calls of the new session", len(h.snapshot(key).Calls), 2)
}

// expectDeleted fails the test if a row of the session remains.
func (h *harness) expectDeleted(key session.Key) {
	h.Helper()
	for table, n := range h.Rows(h.T, key) {
		if n != 0 {
			h.Errorf("%d rows of %v remain in %s", n, key, table)
		}
	}
	_, err := h.Store.Session(h.Context(), key)
	h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	list, err := h.Store.Sessions(h.Context(), key.Tenant, store.SessionQuery{Limit: 100})
	h.must(err)
	for _, s := range list {
		if s.Key == key {
			h.Errorf("session %v is listed", key)
		}
	}
	sums, err := h.Store.UsageSums(h.Context(), key.Tenant, store.UsageQuery{Sessions: []string{key.SessionID}}, 10)
	if err != nil || len(sums) != 0 {
		h.Errorf("got sums %+v, %v of a deleted session", sums, err)
	}
}
