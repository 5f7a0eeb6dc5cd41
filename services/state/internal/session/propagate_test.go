package session

import (
	"fmt"
	"testing"
)

func TestAChildReportsEachStatusToItsParent(t *testing.T) {
	t.Parallel()
	parent := runningView().withChild("k", Active)
	got := newFamily(parent, childView("k", "s")).run(t, "k", finishAs("k", RunInterrupted))
	if row := got["s"].Children[0]; row.Status != Interrupted || row.CompletedAt != 0 || got["s"].Session.Version != 8 || got["s"].Session.Children != 1 {
		t.Errorf("interrupted: got %+v, session %+v", row, got["s"].Session)
	}
	got = newFamily(parent, childView("k", "s")).run(t, "k", finishAs("k", RunCompleted))
	if row := got["s"].Children[0]; row.Status != Completed || row.CompletedAt != 100 {
		t.Errorf("completed: got %+v", row)
	}
	again := childView("k", "s")
	again.Session.Status, again.Live = Completed, nil
	parent.Children[0].Status, parent.Children[0].CompletedAt = Completed, 50
	got = newFamily(parent, again).run(t, "k", startAgain("k"))
	if row := got["s"].Children[0]; row.Status != Active || row.CompletedAt != 0 || row.StartedAt != 1 {
		t.Errorf("started again: got %+v", row)
	}
}

func startAgain(sessionID string) func(...*View) (*Change, error) {
	c := Send{RunRequest: RunRequest{Key: Key{"t", sessionID}, RunID: "again", Now: 100}}
	return func(views ...*View) (*Change, error) {
		change, _, err := c.Decide(views...)
		return change, err
	}
}

func TestTheEndOfTheLastChildContinuesItsParentAndIsReportedUp(t *testing.T) {
	t.Parallel()
	grand := runningView().withChild("p", SuspendedAwaitingChildren)
	grand.Session.SessionID = "g"
	parent := suspendedView().withAwaitedChildren(map[string]Status{"k": Active, "done": Completed})
	parent.Session.SessionID, parent.Session.ParentID = "p", "g"
	parent.Session.Status = SuspendedAwaitingChildren
	f := newFamily(grand, parent, childView("k", "p"))

	got := f.run(t, "k", finishAs("k", RunFailed))
	if p := got["p"]; p.NewRun == nil || p.NewRun.RunID != p.Session.CurrentRunID || p.NewRun.Entry != EntryContinuation || p.Session.Status != Active || p.Session.Version != 8 {
		t.Errorf("got parent %+v with run %+v", p.Session, p.NewRun)
	}
	if g := got["g"]; g.Children[0].Status != Active || g.Session.Version != 8 {
		t.Errorf("got grandparent %+v, knows %+v", g.Session, g.Children)
	}
	if c := got["p"].Calls; len(c) != 1 || c[0].CallID != "call-k" || c[0].Answer != AnswerChild || string(c[0].Response) != "k failed " || c[0].Revision != 1 {
		t.Errorf("got the answers %+v", c)
	}
	if !parent.Calls[1].isOpen() {
		t.Error("the command changed what it was shown")
	}
}

func TestAParentWaitsForAllOfItsChildrenAndCalls(t *testing.T) {
	t.Parallel()
	for name, parent := range map[string]*View{
		"another child": suspendedView().withAwaitedChildren(map[string]Status{"k": Active, "l": SuspendedClientTool}),
		"an open call":  suspendedView(call("c")).withAwaitedChildren(map[string]Status{"k": Active}),
	} {
		got := newFamily(parent, childView("k", "s")).run(t, "k", finishAs("k", RunCompleted))
		p := got["s"]
		if p.NewRun != nil || p.Session.Status != SuspendedClientTool || len(p.Calls) != 1 || p.Calls[0].Answer != AnswerChild {
			t.Errorf("%s: got %+v with run %+v, answers %+v", name, p.Session, p.NewRun, p.Calls)
		}
	}
	interrupted := suspendedView().withAwaitedChildren(map[string]Status{"k": Active})
	interrupted.Session.Status, interrupted.Session.Suspension = Interrupted, nil
	if got := newFamily(interrupted, childView("k", "s")).run(t, "k", finishAs("k", RunCompleted)); got["s"].NewRun != nil || len(got["s"].Calls) != 1 {
		t.Errorf("got %+v of an interrupted parent, want the answer and no run", got["s"])
	}
}

func TestAChildOfADeletedParentEndsAlone(t *testing.T) {
	t.Parallel()
	if got := newFamily(childView("k", "s")).run(t, "k", finishAs("k", RunCompleted)); len(got) != 1 || got["k"] == nil {
		t.Errorf("got %+v", got)
	}
	stranger := runningView() // it has the parent's id, but no record of the child
	if got := newFamily(stranger, childView("k", "s")).run(t, "k", finishAs("k", RunCompleted)); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestAllDescendantsOfAFailedSessionFail(t *testing.T) {
	t.Parallel()
	top := runningView().withChild("k", SuspendedAwaitingChildren).withChild("done", Completed).withChild("far", Active)
	top.Children[2].Location = Remote
	k := childView("k", "s").withChild("kk", SuspendedClientTool)
	k.Session.Status, k.Live = SuspendedAwaitingChildren, nil
	k.Session.Suspension = &Suspension{}
	kk := childView("kk", "k")
	done := childView("done", "s")
	done.Session.Status = Completed
	f := newFamily(top, k, kk, done)

	got := f.run(t, "s", finishAs("s", RunFailed))
	if len(got) != 3 {
		t.Errorf("got %d sessions changed: %v", len(got), got)
	}
	for _, id := range []string{"k", "kk"} {
		s := got[id].Session
		if s.Status != Failed || s.Failure.Reason != ParentFailed || s.Failure.Code != "framework_cancelled" || s.Version != 8 || got[id].NewRun != nil {
			t.Errorf("got %s %+v with %+v", id, s, s.Failure)
		}
	}
	if got["kk"].Session.Epoch != 5 || got["kk"].Runs[0].Status != RunFailed {
		t.Errorf("got kk %+v", got["kk"])
	}
	for id, known := range map[string]string{"s": "k", "k": "kk"} {
		if row, _ := childOf(got[id].Children, known); row.Status != Failed || row.CompletedAt != 100 {
			t.Errorf("%s knows %+v", id, got[id].Children)
		}
	}
	if got["s"].Session.Version != 8 {
		t.Errorf("got version %d, raised more than once", got["s"].Session.Version)
	}
	if got := f.run(t, "s", finishAs("s", RunCompleted)); len(got) != 1 {
		t.Errorf("completed: got %+v", got)
	}
}

// The test would take minutes if the work were quadratic.
func TestManyChildrenEndWithTheirParentInLinearTime(t *testing.T) {
	t.Parallel()
	const n = 5000
	top := runningView()
	views := []*View{top}
	for i := range n {
		id := fmt.Sprint("k", i)
		top.withChild(id, Active)
		views = append(views, childView(id, "s"))
	}
	f := newFamily(views...)
	got := f.run(t, "s", finishAs("s", RunFailed))
	if len(got) != n+1 || len(got["s"].Children) != n || got["s"].Session.Children != n || got["s"].Session.Version != 8 {
		t.Fatalf("got %d sessions changed; the parent notes %d children and counts %d", len(got), len(got["s"].Children), got["s"].Session.Children)
	}
	for i, row := range got["s"].Children {
		if row.Status != Failed || row.CompletedAt != 100 || got[row.SessionID].Session.Status != Failed {
			t.Fatalf("%d: got %+v", i, row)
		}
	}
	c := DeleteSession{Key: sessionKey}
	got = f.run(t, "s", func(views ...*View) (*Change, error) { return c.Decide(views[0]) })
	if len(got) != n+1 || !got["k0"].Delete {
		t.Errorf("got %d sessions deleted", len(got))
	}
}

func TestADeletedSessionTakesItsLocalTreeWithIt(t *testing.T) {
	t.Parallel()
	top := suspendedView().withAwaitedChildren(map[string]Status{"m": SuspendedClientTool})
	top.Session.Status = SuspendedAwaitingChildren
	middle := childView("m", "s").withChild("k", Completed).withChild("far", Active).withChild("gone", Failed).withChild("reborn", Failed)
	middle.Children[1].Location = Remote
	k := childView("k", "m").withChild("kk", Active)
	kk := childView("kk", "k")
	far, reborn := childView("far", "m"), runningView()
	reborn.Session.SessionID = "reborn"
	f := newFamily(top, middle, k, kk, far, reborn)

	c := DeleteSession{Key: Key{"t", "m"}}
	got := f.run(t, "m", func(views ...*View) (*Change, error) { return c.Decide(views[0]) })
	for _, id := range []string{"m", "k", "kk"} {
		if got[id] == nil || !got[id].Delete {
			t.Errorf("%s stays: %+v", id, got[id])
		}
	}
	if len(got) != 4 || got["s"].Children[0].Status != Failed || got["s"].Children[0].CompletedAt != 100 {
		t.Errorf("got %+v", got)
	}
	if got["s"].NewRun == nil || got["s"].Session.Status != Active {
		t.Errorf("the parent waits for a deleted child: %+v", got["s"].Session)
	}
}

func TestACommandWithoutAChangePropagatesNothing(t *testing.T) {
	t.Parallel()
	got, err := Family{}.Propagate([]*View{runningView()}, nil)
	if got != nil || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := (Family{}).Propagate([]*View{runningView(), {}}, &Change{}); err == nil {
		t.Error("views without targets were accepted")
	}
	// A suspended session without its calls in the view is not continued.
	tags := []string{"x"}
	v := suspendedView()
	v.Calls = nil
	change, _, err := UpdateSession{Key: sessionKey, Tags: &tags}.Decide(v)
	must(t, err)
	changes, err := Family{}.Propagate([]*View{v}, change)
	if err != nil || changes[0].NewRun != nil {
		t.Errorf("got %+v, %v", changes, err)
	}
}

func TestASubmitReportsTheContinuedChildToItsParent(t *testing.T) {
	t.Parallel()
	parent := suspendedView().withAwaitedChildren(map[string]Status{"k": SuspendedClientTool})
	open := call("c")
	open.SessionID = "k"
	k := suspendedView(open)
	k.Session.SessionID, k.Session.ParentID = "k", "s"
	c := Submit{Key: Key{"t", "k"}, CallID: "c", Kind: ClientTool, NewRunID: "next"}
	got := newFamily(parent, k).run(t, "k", deciding(c.Decide))
	if got["k"].NewRun.RunID != "next" || got["s"].Children[0].Status != Active || len(got["s"].Calls) != 0 || got["s"].NewRun != nil {
		t.Errorf("got child %+v, parent %+v", got["k"].Session, got["s"].Session)
	}
}

func TestExtendedTargetsMergeTheirNeeds(t *testing.T) {
	t.Parallel()
	had := []Target{{Key: sessionKey, Need: Need{RunID: "r", Calls: true}}}
	got := (&IncompleteViewError{[]Target{{Key: sessionKey, Need: Need{Children: true}}, {Key: Key{"t", "p"}, Need: needParent}}}).Extend(had)
	if len(got) != 2 || got[0].Need.RunID != "r" || !got[0].Need.Calls || !got[0].Need.Children || got[1].SessionID != "p" || had[0].Need.Children {
		t.Errorf("got %+v", got)
	}
}
