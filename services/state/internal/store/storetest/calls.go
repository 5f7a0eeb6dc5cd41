package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var calls = []suiteCase{
	{"a suspending step is visible as a whole", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		c := h.suspendingCommit(ref, 1, "c1", "c2")
		c.Calls[1].Kind, c.Calls[1].ApprovalID, c.Calls[1].Stash, c.Calls[1].DeadlineAt = session.Approval, "a2", []byte("stash"), h.now+90
		c.Suspension.Tracing = &session.Tracing{TraceID: "t", RootSpanID: "s"}
		c.ExpireAfter = 50
		checkpoint := h.commit(c)
		snapshot := h.snapshot(home)
		s := snapshot.Session
		if s.Status != session.SuspendedClientTool || s.StepCount != 1 || s.MessageCount != 2 || s.CheckpointID != checkpoint.ID ||
			s.ExpiresAt != h.now+90 {
			h.Errorf("got %+v", s)
		}
		same(h, "suspension", s.Suspension, c.Suspension)
		same(h, "run", snapshot.Current.Status, session.RunSuspendedClientTool)
		var want []session.Call
		for _, call := range c.Calls {
			call.SessionID, call.RunID, call.Step, call.CreatedAt = home.SessionID, ref.RunID, 1, h.now
			want = append(want, call)
		}
		same(h, "calls", snapshot.Calls, want)
		same(h, "checkpoint's status", checkpoint.Status, session.SuspendedClientTool)
		same(h, "answer to the repetition", h.commit(c), checkpoint)
		same(h, "owners", h.owners(home, "c2", "c3", "c1", "c2"), map[string]string{"c1": home.SessionID, "c2": home.SessionID})
		same(h, "owners of no calls", len(h.owners(home)), 0)
		_, err := h.Store.Owners(h.Context(), at("unknown"), []string{"c1"})
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = h.tryStart(h.startOf(home))
		h.refuses(err, fault.Conflict, "SESSION_SUSPENDED")
	}},
	{"call ids are unique in a family", func(h *harness) {
		h.startTree()
		ref := h.claimOf(at("child"))
		h.commit(h.suspendingCommit(ref, 1, "c1"))
		root := h.claimOf(at("root"))
		for _, ids := range [][]string{{"c1"}, {"c2", "c2"}} {
			_, err := h.tryCommit(h.suspendingCommit(root, 1, ids...))
			h.refuses(err, fault.Conflict, "CALL_EXISTS")
		}
		h.commit(h.suspendingCommit(root, 1, "c2"))
		h.startSuspended(at("stranger"), "c1")
		for _, key := range []session.Key{at("root"), at("child"), at("grandchild")} {
			same(h, "owners", h.owners(key, "c1", "c2"), map[string]string{"c1": "child", "c2": "root"})
			same(h, "awaited calls of the family", h.snapshot(key).AwaitedCalls, 2)
		}
		same(h, "owners among strangers", h.owners(at("stranger"), "c1", "c2"), map[string]string{"c1": "stranger"})
		ids := ""
		for _, call := range h.snapshot(at("root")).Calls {
			ids += call.CallID + " of " + call.SessionID + ", "
		}
		same(h, "calls of the root's whole family", ids, "c1 of child, c2 of root, ")
		same(h, "calls of the child", len(h.snapshot(at("child")).Calls), 1)
		same(h, "calls of the grandchild", len(h.snapshot(at("grandchild")).Calls), 0)
	}},
	{"calls are ordered by creation time, then id", func(h *harness) {
		h.startSuspended(home, "z", "y")
		h.stop(home, session.StopInterrupt, "")
		h.now++
		h.start(h.startOf(home))
		h.commit(h.suspendingCommit(h.claimOf(home), 2, "b", "a"))
		ids := ""
		for _, call := range h.snapshot(home).Calls {
			ids += call.CallID
		}
		same(h, "order", ids, "yzab")
	}},
}

// owners returns the owning sessions by call id.
func (h *harness) owners(key session.Key, callIDs ...string) map[string]string {
	h.Helper()
	owners, err := h.Store.Owners(h.Context(), key, callIDs)
	h.must(err)
	return owners
}
