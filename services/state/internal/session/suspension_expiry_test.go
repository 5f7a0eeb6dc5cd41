package session

import "testing"

// parentWaitingFor suspends the running session on its child, and returns their views
// afterwards.
func parentWaitingFor(t *testing.T, child *View, keep Millis) *family {
	t.Helper()
	id := child.Session.SessionID
	parent := runningView().withChild(id, child.Session.Status)
	c := Commit{
		ClaimRef: ref, Step: 4, Outcome: &Outcome{Status: RunSuspendedAwaitingChildren},
		Suspension: &Suspension{Children: map[string]ChildWait{id: {}}}, ExpireAfter: keep, Limits: Limits{State: 100}, Now: 100,
	}
	change, _, err := c.Decide(parent)
	must(t, err)
	after := *parent
	after.Session, after.Current, after.Live = change.Session, &change.Runs[0], nil
	return newFamily(&after, child)
}

// write applies the sessions, children and runs of the changes to the views.
func (f *family) write(changes map[string]*Change) {
	for id, change := range changes {
		v := *f.views[id]
		if change.Session != nil {
			v.Session = change.Session
		}
		if len(change.Children) > 0 {
			v.Children = change.Children
		}
		if len(change.Runs) > 0 {
			v.Current, v.Live = &change.Runs[0], nil
		}
		if change.NewRun != nil {
			v.Current, v.Live = change.NewRun, change.NewRun
		}
		f.views[id] = &v
	}
}

func (f *family) expiryOf(id string) Millis { return f.views[id].Session.ExpiresAt }

func suspendAt(sessionID string, now, keep Millis) func(...*View) (*Change, error) {
	c := Commit{
		ClaimRef: ClaimRef{Key{"t", sessionID}, "r", 4}, Step: 4, Outcome: &Outcome{Status: RunSuspendedClientTool},
		Calls: []Call{{CallID: "c of " + sessionID}}, ExpireAfter: keep, Limits: Limits{State: 100}, Now: now,
	}
	return func(views ...*View) (*Change, error) {
		change, _, err := c.Decide(views[0])
		return change, err
	}
}

func TestAParentExpiresNoEarlierThanItsAwaitedChild(t *testing.T) {
	t.Parallel()
	f := parentWaitingFor(t, childView("k", "s"), 50)
	if got := f.expiryOf("s"); got != 0 {
		t.Errorf("the child runs, and its parent expires at %d", got)
	}
	f.write(f.run(t, "k", suspendAt("k", 200, 1000)))
	if got := f.expiryOf("s"); got != 1200 || f.expiryOf("k") != 1200 {
		t.Errorf("the child expires at %d, its parent at %d", f.expiryOf("k"), got)
	}
	later := Millis(3000)
	update := UpdateSession{Key: Key{"t", "k"}, ExpiresAt: &later}
	f.write(f.run(t, "k", deciding(update.Decide)))
	if got := f.expiryOf("s"); got != 3000 {
		t.Errorf("the child expires later, its parent at %d", got)
	}
	f.write(f.run(t, "k", deciding(RequestStop{Key: Key{"t", "k"}, Kind: StopInterrupt, Now: 300}.Decide)))
	if got := f.expiryOf("s"); got != 150 {
		t.Errorf("the child was interrupted at 100, and its parent expires at %d", got)
	}
	f.write(f.run(t, "k", startAgain("k")))
	if got := f.expiryOf("s"); got != 0 || f.views["s"].Session.Status != SuspendedAwaitingChildren {
		t.Errorf("the child runs, and its parent expires at %d: %+v", got, f.views["s"].Session)
	}
}

func TestAGrandparentExpiresNoEarlierEither(t *testing.T) {
	t.Parallel()
	middle := childView("m", "s").withChild("k", Active)
	middle.Session.Status, middle.Live = SuspendedAwaitingChildren, nil
	middle.Session.Suspension = &Suspension{Children: map[string]ChildWait{"k": {Status: Active}}, KeepFor: 10, ExpiresAt: 110, ChildExpiries: map[string]Millis{"k": 0}}
	f := parentWaitingFor(t, middle, 50)
	if f.expiryOf("s") != 0 {
		t.Errorf("got %d of a child that never expires", f.expiryOf("s"))
	}
	f.views["k"] = childView("k", "m")
	f.write(f.run(t, "k", suspendAt("k", 200, 1000)))
	if f.expiryOf("s") != 1200 || f.expiryOf("m") != 1200 || f.expiryOf("k") != 1200 {
		t.Errorf("got %d, %d, %d", f.expiryOf("s"), f.expiryOf("m"), f.expiryOf("k"))
	}
}

func TestAnExpirySetByAHostIsKept(t *testing.T) {
	t.Parallel()
	f := parentWaitingFor(t, childView("k", "s"), 50)
	own := Millis(70)
	f.write(f.run(t, "s", deciding(UpdateSession{Key: sessionKey, ExpiresAt: &own}.Decide)))
	f.write(f.run(t, "k", suspendAt("k", 200, 1000)))
	if f.expiryOf("s") != 70 {
		t.Errorf("got %d", f.expiryOf("s"))
	}
	forEver := parentWaitingFor(t, childView("k", "s"), 0)
	forEver.write(forEver.run(t, "k", suspendAt("k", 200, 1000)))
	if forEver.expiryOf("s") != 0 {
		t.Errorf("a session without an expiry expires at %d", forEver.expiryOf("s"))
	}
}

// The end of a remote child may never be reported.
func TestARemoteChildDoesNotExtendTheExpiry(t *testing.T) {
	t.Parallel()
	parent := runningView().withChild("far", Active)
	parent.Children[0].Location = Remote
	c := Commit{
		ClaimRef: ref, Step: 4, Outcome: &Outcome{Status: RunSuspendedAwaitingChildren},
		Suspension: &Suspension{Children: map[string]ChildWait{"far": {}}}, ExpireAfter: 50, Limits: Limits{State: 100}, Now: 100,
	}
	change, _, err := c.Decide(parent)
	must(t, err)
	if change.Session.ExpiresAt != 150 {
		t.Errorf("got %d", change.Session.ExpiresAt)
	}
}
