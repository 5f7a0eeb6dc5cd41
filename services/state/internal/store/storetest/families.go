package storetest

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var families = []suiteCase{
	{"a child and its reference in the parent are written together", func(h *harness) {
		h.start(h.startOf(at("root")))
		c := h.createOf(at("child"))
		c.ParentID, c.Child = "root", session.Child{CallID: "c1", Mode: session.Persistent, Name: "critic"}
		h.now++
		c.Now = h.now
		h.create(c)
		child, root := h.snapshot(at("child")).Session, h.snapshot(at("root"))
		if child.ParentID != "root" || child.RootID != "root" || child.Status != session.Paused {
			h.Errorf("got %+v", child)
		}
		want := session.Child{
			SessionID: "child", AgentType: agent, CallID: "c1", Status: session.Paused, Mode: session.Persistent, Name: "critic", Location: session.Local, StartedAt: h.now,
		}
		same(h, "children", root.Children, []session.Child{want})
		if root.Session.Children != 1 || root.Session.Version != 2 {
			h.Errorf("got %+v", root.Session)
		}
		start := h.startOf(at("started"))
		start.NewSession.ParentID, start.NewSession.Child = "child", session.Child{CallID: "c2"}
		h.start(start)
		grandchild := h.snapshot(at("started")).Session
		if grandchild.RootID != "root" || grandchild.ParentID != "child" || grandchild.Status != session.Active {
			h.Errorf("got %+v", grandchild)
		}
		row := h.snapshot(at("child")).Children[0]
		if row.Status != session.Active || row.CallID != "c2" || row.Mode != session.Ephemeral || row.Location != session.Local {
			h.Errorf("got %+v", row)
		}
		repeat := c
		_, err := h.tryCreate(repeat)
		h.refuses(err, fault.Conflict, "SESSION_EXISTS")
		for _, parent := range []string{"unknown", "orphan"} {
			c.Key, c.ParentID = at("orphan"), parent
			_, err = h.tryCreate(c)
			h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		}
		_, err = h.Store.Session(h.Context(), at("orphan"))
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		same(h, "children after refusals", h.snapshot(at("root")).Children, []session.Child{want})
	}},
	{"concurrently created children are all referenced by their parent", func(h *harness) {
		h.create(h.createOf(at("root")))
		commands := make([]session.Create, parallelism)
		for i := range commands {
			commands[i] = h.createOf(at(fmt.Sprint("child ", i)))
			commands[i].ParentID = "root"
		}
		concurrently(func(i int) {
			if _, err := h.tryCreate(commands[i]); err != nil {
				h.Errorf("create %d: %v", i, err)
			}
		})
		root := h.snapshot(at("root"))
		if len(root.Children) != parallelism || root.Session.Children != parallelism || root.Session.Version != parallelism+1 {
			h.Errorf("got %d children, %+v", len(root.Children), root.Session)
		}
	}},
	{"the sessions of a tree are limited until they end", func(h *harness) {
		h.create(h.createOf(at("root")))
		child := func(id, parent string) session.Create {
			c := h.createOf(at(id))
			c.ParentID, c.MaxTree = parent, 4
			return c
		}
		h.create(child("a", "root"))
		h.create(child("b", "a"))
		h.create(child("c", "b"))
		for _, parent := range []string{"root", "c"} {
			_, err := h.tryCreate(child("d", parent))
			h.refuses(err, fault.Conflict, "TREE_TOO_LARGE")
		}
		h.create(h.createOf(at("another root")))
		h.create(child("its child", "another root"))
		_, err := h.setStatus(session.SetStatus{Key: at("c"), Status: session.Completed, Now: h.now})
		h.must(err)
		h.create(child("d", "b"))
		_, err = h.tryCreate(child("e", "root"))
		h.refuses(err, fault.Conflict, "TREE_TOO_LARGE")
	}},
	{"a family is listed parents first", func(h *harness) {
		h.startTree()
		for _, want := range []struct {
			of    string
			limit int
			ids   string
		}{{"root", 9, "root child other grandchild "}, {"root", 2, "root child "}, {"child", 9, "child grandchild "}, {"grandchild", 9, "grandchild "}} {
			keys, err := h.Store.Family(h.Context(), at(want.of), want.limit)
			h.must(err)
			place := map[string]int{}
			for i, key := range keys {
				place[key.SessionID] = i + 1
				if s := h.snapshot(key).Session; i > 0 && place[s.ParentID] == 0 {
					h.Errorf("%s came before its parent %s", key.SessionID, s.ParentID)
				}
			}
			same(h, "size of the family of "+want.of, len(keys), len(strings.Fields(want.ids)))
			same(h, "first of the family", keys[0], at(want.of))
		}
		_, err := h.Store.Family(h.Context(), at("unknown"), 9)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"a parent stores the status of its children", func(h *harness) {
		h.startTree()
		status := func() session.Child { return h.snapshot(at("root")).Children[0] }
		same(h, "status of a child that runs", status().Status, session.Active)
		ref := h.claimOf(at("child"))
		h.commit(h.suspendingCommit(ref, 1, "c1"))
		same(h, "status of a child that waits", status().Status, session.SuspendedClientTool)
		h.submit(h.submitOf(at("child"), "c1"))
		same(h, "status of a continued child", status().Status, session.Active)
		h.now += 7
		h.finish(h.claimOf(at("child")))
		if child := status(); child.Status != session.Completed || child.CompletedAt != h.now {
			h.Errorf("got %+v", child)
		}
		h.start(h.startOf(at("child")))
		if child := status(); child.Status != session.Active || child.CompletedAt != 0 {
			h.Errorf("got %+v of a restarted child", child)
		}
	}},
	{"the end of the last child continues its parent", func(h *harness) {
		h.startTree()
		h.awaitChildren("child", "other")
		h.finish(h.claimOf(at("other")))
		root := h.snapshot(at("root")).Session
		same(h, "root that still waits", root.Status, session.SuspendedAwaitingChildren)
		for _, call := range h.snapshot(at("root")).Calls {
			want := map[string]string{"call of child": "", "call of other": "other completed " + completed.Output}[call.CallID]
			same(h, "answer to "+call.CallID, string(call.Response), want)
		}
		_, err := h.tryFinish(h.claimOf(at("child")), session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}})
		h.must(err)
		s, run := h.session(at("root"))
		if s.Status != session.Active || s.Suspension != nil || run.Entry != session.EntryContinuation || run.Status != session.RunQueued {
			h.Errorf("got %+v,\n%+v", s, run)
		}
	}},
	{"children that end concurrently continue their parent once", func(h *harness) {
		h.start(h.startOf(at("root")))
		var ids []string
		refs := make([]session.ClaimRef, parallelism)
		for i := range parallelism {
			c := h.startOf(at(fmt.Sprint("child ", i)))
			c.NewSession.ParentID, c.NewSession.Child.CallID = "root", "call of "+c.SessionID
			h.start(c)
			ids = append(ids, c.SessionID)
		}
		h.awaitChildren(ids...)
		for i, id := range ids {
			refs[i] = h.claimOf(at(id))
		}
		concurrently(func(i int) {
			if _, err := h.tryFinish(refs[i], completed); err != nil {
				h.Errorf("finish %d: %v", i, err)
			}
		})
		s, run := h.session(at("root"))
		if s.Status != session.Active || s.Turn != 2 || run.Entry != session.EntryContinuation {
			h.Errorf("got %+v", s)
		}
	}},
	{"a suspension does not wait for a child that has ended before it", func(h *harness) {
		h.startTree()
		h.finish(h.claimOf(at("other")))
		h.awaitChildren("other")
		s, run := h.session(at("root"))
		if s.Status != session.Active || run.Entry != session.EntryContinuation || s.Turn != 2 {
			h.Errorf("got %+v, %+v", s, run)
		}
	}},
	{"a suspension does not wait for a call that was answered before it", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		c := h.suspendingCommit(ref, 1, "c1")
		c.Outcome, c.Suspension = nil, nil
		h.commit(c)
		same(h, "continuation", h.submit(h.submitOf(home, "c1")).Continuation, session.ContinueLiveRun)
		c = h.suspendingCommit(ref, 2)
		h.commit(c)
		if s, run := h.session(home); s.Status != session.Active || s.Turn != 2 || run.Entry != session.EntryContinuation {
			h.Errorf("got %+v", s)
		}
	}},
	{"the answer to a grandchild's call continues its ancestors one by one", func(h *harness) {
		h.startTree()
		h.awaitChildren("child")
		ref := h.claimOf(at("child"))
		h.commit(h.awaitingCommit(ref, 1, "grandchild"))
		same(h, "root's knowledge", h.snapshot(at("root")).Children[0].Status, session.SuspendedAwaitingChildren)
		leaf := h.claimOf(at("grandchild"))
		h.commit(h.suspendingCommit(leaf, 1, "c1"))
		owner := h.owners(at("root"), "c1")["c1"]
		same(h, "continuation", h.submit(h.submitOf(at(owner), "c1")).Continuation, session.ContinueNewRun)
		h.finish(h.claimOf(at("grandchild")))
		same(h, "child's status", h.snapshot(at("child")).Session.Status, session.Active)
		same(h, "root's knowledge", h.snapshot(at("root")).Children[0].Status, session.Active)
		h.finish(h.claimOf(at("child")))
		same(h, "root's status", h.snapshot(at("root")).Session.Status, session.Active)
	}},
	{"a step begins its children, and the end of the last one continues it", func(h *harness) {
		h.start(h.startOf(at("root")))
		ref := h.claimOf(at("root"))
		c := h.awaitingCommit(ref, 1, "one", "two")
		for _, id := range []string{"one", "two"} {
			c.NewChildren = append(c.NewChildren, session.NewChild{
				SessionID: id, AgentType: agent, CallID: "call of " + id, Mode: session.Ephemeral, RunID: "run of " + id, MessageID: "m " + id,
				Messages: []session.Message{{ID: "q " + id, Role: "user", RunID: "run of " + id}}, State: `{}`,
			})
		}
		first := h.commit(c)
		same(h, "answer to a repeat", h.commit(c), first)
		for _, id := range []string{"one", "two"} {
			s, run := h.session(at(id))
			if s.Status != session.Active || s.ParentID != "root" || s.RootID != "root" || s.Depth != 1 || run.Status != session.RunQueued {
				h.Errorf("got %+v with %+v", s, run)
			}
			same(h, "messages", h.messageIDs(at(id)), []string{"q " + id})
		}
		h.finish(h.claimOf(at("two")))
		same(h, "root that still waits", h.snapshot(at("root")).Session.Status, session.SuspendedAwaitingChildren)
		h.finish(h.claimOf(at("one")))
		s, run := h.session(at("root"))
		if s.Status != session.Active || run.Entry != session.EntryContinuation || s.Children != 2 {
			h.Errorf("got %+v with %+v", s, run)
		}
		for _, call := range h.snapshot(at("root")).Calls {
			if call.Answer != session.AnswerChild || call.Kind != session.SubAgent || string(call.Response) != strings.TrimPrefix(call.CallID, "call of ")+" completed "+completed.Output {
				h.Errorf("got %+v", call)
			}
		}
		drain := h.commitOf(h.claimOf(at("root")), 2)
		drain.Consume = []session.Consume{{CallID: "call of one", Revision: 1}, {CallID: "call of two", Revision: 1}}
		drain.Outcome = &completed
		h.commit(drain)
		same(h, "calls left", len(h.snapshot(at("root")).Calls), 0)
	}},
	{"an interrupt and a resume reach the whole tree", func(h *harness) {
		h.startTree()
		h.awaitChildren("child", "other")
		ref := h.claimOf(at("child"))
		h.commit(h.awaitingCommit(ref, 1, "grandchild"))
		h.stop(at("root"), session.StopInterrupt, "")
		same(h, "child", h.snapshot(at("child")).Session.Status, session.Interrupted)
		for _, id := range []string{"other", "grandchild"} {
			if _, run := h.session(at(id)); run.Stop == nil || run.Stop.Kind != session.StopInterrupt {
				h.Errorf("%s: got %+v", id, run)
			}
			h.must(h.interrupt(h.claimOf(at(id))))
		}
		h.start(h.resumeOf(at("root")))
		for _, id := range []string{"root", "child", "other", "grandchild"} {
			if s, run := h.session(at(id)); s.Status != session.Active || run.Entry != session.EntryResume {
				h.Errorf("%s: got %+v with %+v", id, s, run)
			}
		}
	}},
	{"a message waits for children at work", func(h *harness) {
		next := h.startWorkingTree(session.BusyEnqueue)
		h.expectWaiting(at("root"), next.RunID)
		h.finish(h.claimOf(at("grandchild")))
		h.finish(h.claimOf(at("child")))
		h.finish(h.claimOf(at("other")))
		h.expectWaiting(at("root"), next.RunID)
		h.finish(h.claimOf(at("root")))
		s, run := h.session(at("root"))
		same(h, "run after the work", run.RunID, next.RunID)
		same(h, "status", s.Status, session.Active)
	}},
	{"a message interrupts children at work", func(h *harness) {
		next := h.startWorkingTree(session.BusyInterrupt)
		before := h.messageIDs(at("root"))
		h.stopWorkingTree(next)
		same(h, "messages", h.messageIDs(at("root")), append(before, next.Messages[0].ID))
		calls := h.snapshot(at("root")).Calls
		same(h, "calls", len(calls), 2)
		for _, call := range calls {
			same(h, "answer to "+call.CallID, call.Answer, session.AnswerAbandoned)
		}
	}},
	{"a message rolls back the run whose children work", func(h *harness) {
		next := h.startWorkingTree(session.BusyRollback)
		before := h.messageIDs(at("root"))
		h.stopWorkingTree(next)
		same(h, "messages", h.messageIDs(at("root")), []string{before[0], next.Messages[0].ID})
		same(h, "calls", len(h.snapshot(at("root")).Calls), 0)
		same(h, "state", h.snapshot(at("root")).Session.State, "{}")
	}},
	{"a session whose last working child is interrupted is interrupted, and resumes it", func(h *harness) {
		h.startTree()
		h.awaitChildren("child")
		h.commit(h.awaitingCommit(h.claimOf(at("child")), 1, "grandchild"))
		h.must(h.interrupt(h.claimOf(at("grandchild"))))
		for _, id := range []string{"root", "child", "grandchild"} {
			same(h, id, h.snapshot(at(id)).Session.Status, session.Interrupted)
		}
		same(h, "a child that nobody awaits", h.snapshot(at("other")).Session.Status, session.Active)
		h.start(h.resumeOf(at("root")))
		for _, id := range []string{"root", "child", "grandchild"} {
			same(h, id, h.snapshot(at(id)).Session.Status, session.Active)
		}
	}},
	{"a failed parent fails its children", func(h *harness) {
		h.startTree()
		owner := h.claimOf(at("grandchild"))
		h.finish(h.claimOf(at("other")))
		h.must(h.putChild(at("root"), session.Child{SessionID: "far", AgentType: agent, Status: session.Active, Location: session.Remote, Remote: `{}`}))
		h.stop(at("root"), session.StopAbort, "")
		_, err := h.setStatus(session.SetStatus{Key: at("root"), Status: session.Failed, Failure: &session.Failure{Error: "no"}, Now: h.now})
		h.must(err)
		for _, id := range []string{"child", "grandchild"} {
			s, run := h.session(at(id))
			if s.Status != session.Failed || s.Failure.Reason != session.ParentFailed || run.Status != session.RunFailed {
				h.Errorf("got %+v", s)
			}
		}
		same(h, "status of a child that had ended", h.snapshot(at("other")).Session.Status, session.Completed)
		h.expectStale(owner)
		for _, child := range h.snapshot(at("root")).Children {
			want := map[string]session.Status{"child": session.Failed, "other": session.Completed, "far": session.Active}[child.SessionID]
			same(h, "what the root knows of "+child.SessionID, child.Status, want)
		}
	}},
	{"a family that fails and continues concurrently ends once", func(h *harness) {
		h.startTree()
		h.awaitChildren("child", "other")
		child, other := h.claimOf(at("child")), h.claimOf(at("other"))
		var failures atomic.Int32
		concurrently(func(i int) {
			var err error
			switch i % 3 {
			case 0:
				_, err = h.tryFinish(child, completed)
			case 1:
				_, err = h.tryFinish(other, completed)
			default:
				_, err = h.setStatus(session.SetStatus{Key: at("root"), Expected: []session.Status{session.SuspendedAwaitingChildren}, Status: session.Failed, Failure: &session.Failure{Error: "no"}, Now: h.now})
			}
			if err != nil && fault.ReasonOf(err) != "EPOCH_STALE" && fault.ReasonOf(err) != "RUN_FINISHED" {
				h.Errorf("%d: %v", i, err)
			} else if err != nil {
				failures.Add(1)
			}
		})
		root := h.snapshot(at("root"))
		switch root.Session.Status {
		case session.Active:
			if failures.Load() != 0 {
				h.Errorf("the root continues although %d ends of its children failed", failures.Load())
			}
		case session.Failed:
		default:
			h.Errorf("the root is %s", root.Session.Status)
		}
		for _, row := range root.Children {
			same(h, "what the root knows of "+row.SessionID, row.Status, h.snapshot(at(row.SessionID)).Session.Status)
		}
	}},
}

// startTree starts a root with two children, and a grandchild below the first child.
func (h *harness) startTree() {
	h.Helper()
	for _, id := range []string{"root", "child", "other", "grandchild"} {
		c := h.startOf(at(id))
		c.Now = h.now + session.Millis(len(id)) // claimed in this order: root, child, other, grandchild
		c.NewSession.ParentID = map[string]string{"child": "root", "other": "root", "grandchild": "child"}[id]
		c.NewSession.Child.CallID = "call of " + id
		h.start(c)
	}
}

// startWorkingTree starts a root, its children and a grandchild, all at work, and sends the root a message. The message
// waits.
func (h *harness) startWorkingTree(policy session.BusyPolicy) session.Send {
	h.Helper()
	h.startTree()
	c := h.awaitingCommit(h.claimOf(at("root")), 1, "child", "other")
	c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "1"}}
	h.commit(c)
	h.commit(h.awaitingCommit(h.claimOf(at("child")), 1, "grandchild"))
	rejected := h.waitingOf(at("root"))
	rejected.OnBusy, rejected.Abandon = session.BusyReject, abandonedResponse
	_, err := h.tryStart(rejected)
	h.refuses(err, fault.Conflict, "SESSION_BUSY")
	next := h.waitingOf(at("root"))
	next.OnBusy, next.Abandon = policy, abandonedResponse
	h.start(next)
	return next
}

// stopWorkingTree ends the runs of a tree whose root has a stopping message.
func (h *harness) stopWorkingTree(next session.Send) {
	h.Helper()
	for _, id := range []string{"grandchild", "other"} {
		h.expectWaiting(at("root"), next.RunID)
		if _, run := h.session(at(id)); run.Stop == nil || run.Stop.Kind != session.StopInterrupt {
			h.Errorf("%s: got %+v", id, run)
		}
		h.must(h.interrupt(h.claimOf(at(id))))
	}
	s, run := h.session(at("root"))
	same(h, "run after the work", run.RunID, next.RunID)
	same(h, "status", s.Status, session.Active)
	for _, id := range []string{"child", "grandchild", "other"} {
		same(h, id, h.snapshot(at(id)).Session.Status, session.Failed)
	}
}

// awaitChildren suspends the root until the children have ended.
func (h *harness) awaitChildren(ids ...string) {
	h.Helper()
	ref := h.claimOf(at("root"))
	h.commit(h.awaitingCommit(ref, 1, ids...))
}
