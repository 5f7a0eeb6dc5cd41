package storetest

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var families = []test{
	{"a child and what its parent knows of it are made in one write", func(b *bench) {
		b.start(b.startOf(at("root")))
		c := b.createOf(at("child"))
		c.ParentID, c.Child = "root", session.Child{CallID: "c1", Mode: session.Persistent, Name: "critic"}
		b.now++
		c.Now = b.now
		b.create(c)
		child, root := b.snapshot(at("child")).Session, b.snapshot(at("root"))
		if child.ParentID != "root" || child.RootID != "root" || child.Status != session.Paused {
			b.Errorf("got %+v", child)
		}
		want := session.Child{
			SessionID: "child", AgentType: agent, CallID: "c1", Status: session.Paused, Mode: session.Persistent, Name: "critic", Location: session.Local, StartedAt: b.now,
		}
		same(b, "children", root.Children, []session.Child{want})
		if root.Session.Children != 1 || root.Session.Version != 2 {
			b.Errorf("got %+v", root.Session)
		}
		start := b.startOf(at("started"))
		start.New.ParentID, start.New.Child = "child", session.Child{CallID: "c2"}
		b.start(start)
		grandchild := b.snapshot(at("started")).Session
		if grandchild.RootID != "root" || grandchild.ParentID != "child" || grandchild.Status != session.Active {
			b.Errorf("got %+v", grandchild)
		}
		row := b.snapshot(at("child")).Children[0]
		if row.Status != session.Active || row.CallID != "c2" || row.Mode != session.Ephemeral || row.Location != session.Local {
			b.Errorf("got %+v", row)
		}
		again := c
		_, err := b.tryCreate(again)
		b.refuses(err, fault.Conflict, "SESSION_EXISTS")
		for _, parent := range []string{"nobody", "orphan"} {
			c.Key, c.ParentID = at("orphan"), parent
			_, err = b.tryCreate(c)
			b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		}
		_, err = b.Store.Session(b.Context(), at("orphan"))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		same(b, "children after refusals", b.snapshot(at("root")).Children, []session.Child{want})
	}},
	{"children that are made at once are all known to their parent", func(b *bench) {
		b.create(b.createOf(at("root")))
		commands := make([]session.Create, crowd)
		for i := range commands {
			commands[i] = b.createOf(at(fmt.Sprint("child ", i)))
			commands[i].ParentID = "root"
		}
		together(func(i int) {
			if _, err := b.tryCreate(commands[i]); err != nil {
				b.Errorf("create %d: %v", i, err)
			}
		})
		root := b.snapshot(at("root"))
		if len(root.Children) != crowd || root.Session.Children != crowd || root.Session.Version != crowd+1 {
			b.Errorf("got %d children, %+v", len(root.Children), root.Session)
		}
	}},
	{"a family is listed a parent before its children", func(b *bench) {
		b.tree()
		for _, want := range []struct {
			of    string
			limit int
			ids   string
		}{{"root", 9, "root child other grandchild "}, {"root", 2, "root child "}, {"child", 9, "child grandchild "}, {"grandchild", 9, "grandchild "}} {
			keys, err := b.Store.Family(b.Context(), at(want.of), want.limit)
			b.must(err)
			place := map[string]int{}
			for i, key := range keys {
				place[key.SessionID] = i + 1
				if s := b.snapshot(key).Session; i > 0 && place[s.ParentID] == 0 {
					b.Errorf("%s came before its parent %s", key.SessionID, s.ParentID)
				}
			}
			same(b, "size of the family of "+want.of, len(keys), len(strings.Fields(want.ids)))
			same(b, "first of the family", keys[0], at(want.of))
		}
		_, err := b.Store.Family(b.Context(), at("nobody"), 9)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"a parent knows the status of its children", func(b *bench) {
		b.tree()
		status := func() session.Child { return b.snapshot(at("root")).Children[0] }
		same(b, "status of a child that runs", status().Status, session.Active)
		ref := b.claimOf(at("child"))
		b.commit(b.suspending(ref, 1, "c1"))
		same(b, "status of a child that waits", status().Status, session.SuspendedClientTool)
		b.submit(b.submitOf(at("child"), "c1"))
		same(b, "status of a child that goes on", status().Status, session.Active)
		b.now += 7
		b.finish(b.claimOf(at("child")))
		if child := status(); child.Status != session.Completed || child.CompletedAt != b.now {
			b.Errorf("got %+v", child)
		}
		b.start(b.startOf(at("child")))
		if child := status(); child.Status != session.Active || child.CompletedAt != 0 {
			b.Errorf("got %+v of a child that runs again", child)
		}
	}},
	{"the end of the last child continues its parent", func(b *bench) {
		b.tree()
		b.await("child", "other")
		b.finish(b.claimOf(at("other")))
		root := b.snapshot(at("root")).Session
		same(b, "root that still waits", root.Status, session.SuspendedAwaitingChildren)
		same(b, "what it waits for", root.Suspension.Children, map[string]session.ChildWait{
			"child": {CallID: "call of child", Status: session.Active}, "other": {CallID: "call of other", Status: session.Completed},
		})
		_, err := b.tryFinish(b.claimOf(at("child")), session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}})
		b.must(err)
		s, run := b.session(at("root"))
		if s.Status != session.Active || s.Suspension != nil || run.Entry != session.EntryContinuation || run.Status != session.RunQueued {
			b.Errorf("got %+v,\n%+v", s, run)
		}
	}},
	{"children that end at once continue their parent once", func(b *bench) {
		b.start(b.startOf(at("root")))
		var ids []string
		refs := make([]session.Ref, crowd)
		for i := range crowd {
			c := b.startOf(at(fmt.Sprint("child ", i)))
			c.New.ParentID = "root"
			b.start(c)
			ids = append(ids, c.SessionID)
		}
		b.await(ids...)
		for i, id := range ids {
			refs[i] = b.claimOf(at(id))
		}
		together(func(i int) {
			if _, err := b.tryFinish(refs[i], completed); err != nil {
				b.Errorf("finish %d: %v", i, err)
			}
		})
		s, run := b.session(at("root"))
		if s.Status != session.Active || s.Turn != 2 || run.Entry != session.EntryContinuation {
			b.Errorf("got %+v", s)
		}
	}},
	{"a child that was faster than its parent's suspension is not waited for", func(b *bench) {
		b.tree()
		b.finish(b.claimOf(at("other")))
		b.await("other")
		s, run := b.session(at("root"))
		if s.Status != session.Active || run.Entry != session.EntryContinuation || s.Turn != 2 {
			b.Errorf("got %+v, %+v", s, run)
		}
	}},
	{"an answer that was faster than the suspension is not waited for", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		c := b.suspending(ref, 1, "c1")
		c.Outcome, c.Suspension = nil, nil
		b.commit(c)
		same(b, "continuation", b.submit(b.submitOf(home, "c1")).Continuation, session.LiveRun)
		c = b.suspending(ref, 2)
		b.commit(c)
		if s, run := b.session(home); s.Status != session.Active || s.Turn != 2 || run.Entry != session.EntryContinuation {
			b.Errorf("got %+v", s)
		}
	}},
	{"the answer to a grandchild's call goes up to the root as it ends", func(b *bench) {
		b.tree()
		b.await("child")
		ref := b.claimOf(at("child"))
		c := b.suspending(ref, 1)
		c.Outcome.Status = session.RunSuspendedAwaitingChildren
		c.Suspension.Children = map[string]session.ChildWait{"grandchild": {CallID: "x"}}
		b.commit(c)
		same(b, "root's knowledge", b.snapshot(at("root")).Session.Suspension.Children["child"].Status, session.SuspendedAwaitingChildren)
		leaf := b.claimOf(at("grandchild"))
		b.commit(b.suspending(leaf, 1, "c1"))
		owner := b.owners(at("root"), "c1")["c1"]
		same(b, "continuation", b.submit(b.submitOf(at(owner), "c1")).Continuation, session.NewRun)
		b.finish(b.claimOf(at("grandchild")))
		same(b, "child's status", b.snapshot(at("child")).Session.Status, session.Active)
		same(b, "root's knowledge", b.snapshot(at("root")).Session.Suspension.Children["child"].Status, session.Active)
		b.finish(b.claimOf(at("child")))
		same(b, "root's status", b.snapshot(at("root")).Session.Status, session.Active)
	}},
	{"a parent that fails takes its children with it", func(b *bench) {
		b.tree()
		owner := b.claimOf(at("grandchild"))
		b.finish(b.claimOf(at("other")))
		b.must(b.putChild(at("root"), session.Child{SessionID: "far", AgentType: agent, Status: session.Active, Location: session.Remote, Remote: `{}`}))
		b.stop(at("root"), session.StopAbort, "")
		_, err := b.setStatus(session.SetStatus{Key: at("root"), Status: session.Failed, Failure: &session.Failure{Error: "no"}, Now: b.now})
		b.must(err)
		for _, id := range []string{"child", "grandchild"} {
			s, run := b.session(at(id))
			if s.Status != session.Failed || s.Failure.Reason != session.ParentFailed || run.Status != session.RunFailed {
				b.Errorf("got %+v", s)
			}
		}
		same(b, "status of a child that had ended", b.snapshot(at("other")).Session.Status, session.Completed)
		b.stale(owner)
		for _, child := range b.snapshot(at("root")).Children {
			want := map[string]session.Status{"child": session.Failed, "other": session.Completed, "far": session.Active}[child.SessionID]
			same(b, "what the root knows of "+child.SessionID, child.Status, want)
		}
	}},
	{"a family that fails and wakes at once comes to one end", func(b *bench) {
		b.tree()
		b.await("child", "other")
		child, other := b.claimOf(at("child")), b.claimOf(at("other"))
		var failures atomic.Int32
		together(func(i int) {
			var err error
			switch i % 3 {
			case 0:
				_, err = b.tryFinish(child, completed)
			case 1:
				_, err = b.tryFinish(other, completed)
			default:
				_, err = b.setStatus(session.SetStatus{Key: at("root"), Expected: []session.Status{session.SuspendedAwaitingChildren}, Status: session.Failed, Failure: &session.Failure{Error: "no"}, Now: b.now})
			}
			if err != nil && fault.ReasonOf(err) != "EPOCH_STALE" && fault.ReasonOf(err) != "RUN_FINISHED" {
				b.Errorf("%d: %v", i, err)
			} else if err != nil {
				failures.Add(1)
			}
		})
		root := b.snapshot(at("root"))
		switch root.Session.Status {
		case session.Active:
			if failures.Load() != 0 {
				b.Errorf("the root goes on although %d of its children's ends were refused", failures.Load())
			}
		case session.Failed:
		default:
			b.Errorf("the root is %s", root.Session.Status)
		}
		for _, row := range root.Children {
			same(b, "what the root knows of "+row.SessionID, row.Status, b.snapshot(at(row.SessionID)).Session.Status)
		}
	}},
}

// tree starts a root with two children, and a grandchild below the first.
func (b *bench) tree() {
	b.Helper()
	for _, id := range []string{"root", "child", "other", "grandchild"} {
		c := b.startOf(at(id))
		c.Now = b.now + session.Millis(len(id)) // claimed in this order: root, child, other, grandchild
		c.New.ParentID = map[string]string{"child": "root", "other": "root", "grandchild": "child"}[id]
		c.New.Child.CallID = "call of " + id
		b.start(c)
	}
}

// await suspends the root until its children have ended.
func (b *bench) await(ids ...string) {
	b.Helper()
	ref := b.claimOf(at("root"))
	c := b.suspending(ref, 1)
	c.Outcome.Status = session.RunSuspendedAwaitingChildren
	c.Suspension.Children = map[string]session.ChildWait{}
	for _, id := range ids {
		c.Suspension.Children[id] = session.ChildWait{CallID: "call of " + id}
	}
	b.commit(c)
}
