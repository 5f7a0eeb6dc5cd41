package storetest

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var families = []suiteCase{
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
	{"a family is listed parents first", func(h *harness) {
		h.startTree()
		for _, want := range []struct {
			of    string
			limit int
			ids   string
		}{{"root", 9, "root child other grandchild "}, {"root", 2, "root child "}, {"child", 9, "child grandchild "},
			{"grandchild", 9, "grandchild "}} {
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
				_, err = h.setStatus(session.SetStatus{Key: at("root"), Expected: []session.Status{session.SuspendedAwaitingChildren},
					Status: session.Failed, Failure: &session.Failure{Error: "no"}, Now: h.now})
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

// awaitChildren suspends the root until the children have ended.
func (h *harness) awaitChildren(ids ...string) {
	h.Helper()
	ref := h.claimOf(at("root"))
	h.commit(h.awaitingCommit(ref, 1, ids...))
}
