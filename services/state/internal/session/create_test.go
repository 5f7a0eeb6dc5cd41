package session

import (
	"errors"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestACreatedSessionIsPausedAndHasNoRun(t *testing.T) {
	t.Parallel()
	c := Create{Key: sessionKey, AgentType: "a", UserID: "u", OrganizationID: "o", Tags: []string{"x"}, State: `{"a":1}`, ExpiresAt: 90, Now: 50}
	change, s, err := c.Decide(&View{Agent: &Agent{}})
	must(t, err)
	if s.Status != Paused || s.Turn != 0 || s.Version != 1 || s.CurrentRunID != "" || s.RootID != "s" || s.OrganizationID != "o" || s.ExpiresAt != 90 || s.CreatedAt != 50 {
		t.Errorf("got %+v", s)
	}
	if !change.Created || !change.NewState || s.StateVersion != 1 || s.StateBase != 1 || change.NewRun != nil {
		t.Errorf("got %+v", change)
	}
	_, _, err = c.Decide(&View{})
	refused(t, err, fault.NotFound, "AGENT_NOT_FOUND")
	_, _, err = c.Decide(runningView())
	refused(t, err, fault.Conflict, "SESSION_EXISTS")
}

func TestANewChildIsRecordedInItsParentInTheSameWrite(t *testing.T) {
	t.Parallel()
	create := Create{Key: Key{"t", "k"}, AgentType: "b", ParentID: "s", Child: Child{CallID: "c", Name: "critic", Mode: Persistent, SessionID: "ignored"}, State: "{}", Now: 100}
	start := Send{RunRequest: RunRequest{Key: create.Key, AgentType: "b", RunID: "r1", Now: 100}, NewSession: Create{ParentID: "s", Child: create.Child, State: "{}"}}
	for want, decide := range map[Status]func(...*View) (*Change, error){
		Paused: func(views ...*View) (*Change, error) { change, _, err := create.Decide(views...); return change, err },
		Active: func(views ...*View) (*Change, error) { change, _, err := start.Decide(views...); return change, err },
	} {
		parent := runningView()
		parent.Session.RootID = "root"
		got := newFamily(parent).run(t, "k", decide)
		if k := got["k"].Session; k.RootID != "root" || k.ParentID != "s" || k.Status != want || k.Version != 1 {
			t.Errorf("got child %+v", k)
		}
		row := Child{SessionID: "k", AgentType: "b", CallID: "c", Status: want, Mode: Persistent, Name: "critic", Location: Local, StartedAt: 100}
		if p := got["s"]; p.Session.Children != 1 || p.Session.Version != 8 || len(p.Children) != 1 || p.Children[0] != row {
			t.Errorf("got parent %+v, knows %+v", p.Session, p.Children)
		}
		noted := runningView().withChild("k", Active) // recorded before it was created
		if p := newFamily(noted).run(t, "k", decide)["s"]; p.Session.Children != 1 || p.Children[0].CallID != "c" {
			t.Errorf("got parent %+v, knows %+v", p.Session, p.Children)
		}
	}
}

func TestANewChildNeedsItsParent(t *testing.T) {
	t.Parallel()
	for name, parent := range map[string]string{"a parent that is gone": "s", "itself": "k"} {
		_, _, err := Create{Key: Key{"t", "k"}, AgentType: "a", ParentID: parent}.Decide(&View{Agent: &Agent{}}, &View{})
		if f := refused(t, err, fault.NotFound, "SESSION_NOT_FOUND"); f.Detail == "" {
			t.Errorf("%s: no detail", name)
		}
	}
	_, _, err := Send{RunRequest: RunRequest{Key: Key{"t", "k"}, AgentType: "a"}, NewSession: Create{ParentID: "s"}}.Decide(&View{Agent: &Agent{}}, &View{})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
}

func TestTheParentIsFoundAmongOtherViews(t *testing.T) {
	t.Parallel()
	parent, stranger := runningView(), runningView()
	parent.Session.RootID, stranger.Session.SessionID = "root", "stranger"
	c := Create{Key: Key{"t", "k"}, AgentType: "a", ParentID: "s"}
	_, got, err := c.Decide(&View{Agent: &Agent{}}, stranger, parent)
	if err != nil || got.RootID != "root" {
		t.Errorf("got %+v, %v", got, err)
	}
	_, _, err = c.Decide(&View{Agent: &Agent{}}, stranger)
	if wider, ok := errors.AsType[*IncompleteViewError](err); !ok || wider.Targets[0].Key != sessionKey {
		t.Errorf("got %v", err)
	}
}
