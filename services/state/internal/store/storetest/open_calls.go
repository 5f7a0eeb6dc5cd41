package storetest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var openCalls = []suiteCase{
	{"open calls of all sessions are listed oldest first, by their properties", func(h *harness) {
		var want []store.OpenCall
		for i := range 12 {
			key := at(fmt.Sprintf("s%02d", 11-i))
			h.now += session.Millis(i % 2)
			user := fmt.Sprintf("u%d", i%3)
			start := h.startOf(key)
			start.NewSession.UserID = user
			h.start(start)
			commit := h.suspendingCommit(h.claimOf(key), 1, "b", "a")
			commit.Calls[0].Kind, commit.Calls[0].ApprovalID, commit.Calls[0].ToolName = session.Approval, "approval", fmt.Sprintf("tool%d", i%2)
			h.commit(commit)
			for _, call := range h.snapshot(key).Calls {
				want = append(want, store.OpenCall{Call: call, RootID: key.SessionID, AgentType: agent, UserID: user})
			}
		}
		slices.SortFunc(want, func(a, b store.OpenCall) int {
			return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.RootID, b.RootID), cmp.Compare(a.CallID, b.CallID))
		})
		for _, q := range []store.CallQuery{
			{}, {UserID: "u1"}, {UserID: "nobody"}, {AgentType: agent}, {AgentType: "sales"}, {ToolName: "tool1"}, {Kind: session.Approval},
			{Kind: session.ClientTool, UserID: "u2"},
			{UserID: "u0", ToolName: "tool0", AgentType: agent, Kind: session.Approval},
		} {
			meets := func(c store.OpenCall) bool {
				return (q.UserID == "" || q.UserID == c.UserID) && (q.AgentType == "" || q.AgentType == c.AgentType) &&
					(q.ToolName == "" || q.ToolName == c.ToolName) && (q.Kind == "" || q.Kind == c.Kind)
			}
			found := slices.DeleteFunc(slices.Clone(want), func(c store.OpenCall) bool { return !meets(c) })
			for _, limit := range []int{1, 5, 100} {
				same(h, fmt.Sprintf("%+v by %d", q, limit), h.openCalls(q, limit), found)
			}
		}
	}},
	{"the calls that others than their starter approve are found by the approver", func(h *harness) {
		var want []store.OpenCall
		for i, starter := range []string{"user:a", "user:b", "", "local", "user:a", "key:web"} {
			key := at(fmt.Sprintf("s%d", 5-i))
			h.now += session.Millis(i % 2)
			start := h.startOf(key)
			start.By.Actor = starter
			h.start(start)
			commit := h.suspendingCommit(h.claimOf(key), 1, "of anybody", "of others")
			commit.Calls[1].Kind, commit.Calls[1].ApprovalID, commit.Calls[1].Approvers = session.Approval, "approval", session.ApproversOthers
			h.commit(commit)
			for _, call := range h.snapshot(key).Calls {
				same(h, "starter of the call", call.StartedBy, starter)
				if call.Approvers == session.ApproversOthers && session.IsIdentified(starter) {
					want = append(want, store.OpenCall{Call: call, RootID: key.SessionID, AgentType: agent})
				}
			}
		}
		slices.SortFunc(want, func(a, b store.OpenCall) int { return a.Place().Compare(b.Place()) })
		for _, actor := range []string{"user:a", "user:b", "key:web", "user:c"} {
			found := slices.DeleteFunc(slices.Clone(want), func(c store.OpenCall) bool { return c.StartedBy == actor })
			for _, limit := range []int{1, 2, 100} {
				same(h, fmt.Sprintf("approvable by %s, by %d", actor, limit), h.openCalls(store.CallQuery{ApprovableBy: actor}, limit), found)
			}
			same(h, "with few examined", h.openCalls(store.CallQuery{ApprovableBy: actor, MaxBytes: 1 << 20, MaxScanned: 1}, 9), found)
		}
		same(h, "of another tool", len(h.openCalls(store.CallQuery{ApprovableBy: "user:c", ToolName: "none"}, 9)), 0)
	}},
	{"a page of open calls has a limit of bytes, and of calls to examine", func(h *harness) {
		var calls []string
		for i := range 10 {
			id := fmt.Sprint("c", i)
			h.startSuspended(at(id), id)
			calls = append(calls, id)
		}
		all := h.openCalls(store.CallQuery{}, 100)
		same(h, "open calls", len(all), len(calls))
		size := len(all[0].Input) // stash and response are empty
		page, next, err := h.Store.OpenCalls(h.Context(), home.Tenant, store.CallQuery{Limit: 9, MaxBytes: 2*size + 1, MaxScanned: 9})
		h.must(err)
		same(h, "calls within the bytes", len(page), 2)
		if next == nil {
			h.Fatal("the short page is the last")
		}
		page, next, err = h.Store.OpenCalls(h.Context(), home.Tenant,
			store.CallQuery{Limit: 9, MaxBytes: 1 << 20, MaxScanned: 4, ToolName: "none"})
		h.must(err)
		same(h, "calls of an unknown tool", len(page), 0)
		same(h, "last examined call", *next, all[3].Place())
		q := store.CallQuery{ToolName: all[0].ToolName, MaxBytes: 1, MaxScanned: 3}
		same(h, "pages of one call", h.openCalls(q, 5), all)
		q.ToolName, q.MaxScanned = "none", 10
		same(h, "no calls", len(h.openCalls(q, 5)), 0)
	}},
	{"only calls that wait for a client are open", func(h *harness) {
		h.startSuspended(home, "answered", "open")
		h.submit(h.submitOf(home, "answered"))
		h.startSuspended(session.Key{Tenant: "other", SessionID: "s1"}, "theirs")
		h.startSuspended(at("aborted"), "dropped")
		h.stop(at("aborted"), session.StopAbort, "")
		h.startSuspended(at("deleted"), "gone")
		h.must(h.delete(at("deleted")))
		h.startTree()
		h.commit(h.suspendingCommit(h.claimOf(at("child")), 1, "below"))
		ids := ""
		for _, c := range h.openCalls(store.CallQuery{}, 1) {
			ids += c.CallID + " of " + c.SessionID + " below " + c.RootID + ", "
		}
		same(h, "open calls", ids, "below of child below root, open of s1 below s1, ")
	}},
}

// openCalls returns all open calls of a query, read in pages.
func (h *harness) openCalls(q store.CallQuery, limit int) (all []store.OpenCall) {
	h.Helper()
	if q.Limit = limit; q.MaxBytes == 0 {
		q.MaxBytes, q.MaxScanned = 1<<20, 1000
	}
	for {
		page, next, err := h.Store.OpenCalls(h.Context(), home.Tenant, q)
		h.must(err)
		if len(page) > limit {
			h.Fatalf("got %d calls, want at most %d", len(page), limit)
		}
		all = append(all, page...)
		if next == nil {
			return all
		}
		q.After = *next
	}
}
