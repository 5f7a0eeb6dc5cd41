package session

import (
	"errors"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestTheIDOfARemoteChildCannotBeCreatedLocally(t *testing.T) {
	t.Parallel()
	parent := runningView().withChild("far", Active)
	parent.Children[0].Location = Remote
	create := Create{Key: Key{"t", "far"}, AgentType: "a", ParentID: "s", State: "{}"}
	_, _, err := create.Decide(&View{Agent: &Agent{}}, parent)
	refused(t, err, fault.Conflict, "LOCATION_FIXED")
	_, _, err = Send{RunRequest: RunRequest{Key: create.Key, AgentType: "a", RunID: "r1"}, NewSession: Create{ParentID: "s", State: "{}"}}.Decide(&View{Agent: &Agent{}}, parent)
	refused(t, err, fault.Conflict, "LOCATION_FIXED")
}

func TestNothingBeginsBelowASessionThatHasFailed(t *testing.T) {
	t.Parallel()
	known := childView("k", "s")
	known.Session.Status, known.Live = Completed, nil
	for status, reason := range map[Status]string{Failed: "PARENT_ENDED", Completed: "", Active: "", Interrupted: "", Paused: ""} {
		parent := runningView().withChild("k", Completed)
		parent.Session.Status = status
		for name, v := range map[string]*View{"new": {Agent: &Agent{}}, "known": known} {
			_, _, err := Send{RunRequest: RunRequest{Key: Key{"t", "k"}, AgentType: "a", RunID: "r1"}, NewSession: Create{ParentID: "s", State: "{}"}}.Decide(v, parent)
			if fault.ReasonOf(err) != reason || (err != nil) != (reason != "") {
				t.Errorf("start of a %s one below a %s one: got %v", name, status, err)
			}
		}
		_, _, err := Create{Key: Key{"t", "new"}, AgentType: "a", ParentID: "s", State: "{}"}.Decide(&View{Agent: &Agent{}}, parent)
		if fault.ReasonOf(err) != reason {
			t.Errorf("making one below a %s one: got %v", status, err)
		}
	}
	if _, _, err := (Send{RunRequest: RunRequest{Key: Key{"t", "k"}, RunID: "r1"}}).Decide(known); err != nil {
		t.Errorf("start without a parent named: %v", err)
	}
	_, _, err := Send{RunRequest: RunRequest{Key: Key{"t", "k"}, RunID: "r1"}, NewSession: Create{ParentID: "s"}}.Decide(known)
	if wider, ok := errors.AsType[*IncompleteViewError](err); !ok || wider.Targets[0].Key != sessionKey {
		t.Errorf("got %v, which does not ask for the parent", err)
	}
}

func TestTheParentOfASessionIsFixed(t *testing.T) {
	t.Parallel()
	root, other := runningView(), childView("s", "another")
	for name, v := range map[string]*View{"a root": root, "another one's": other} {
		v.Session.Status, v.Live = Completed, nil
		_, _, err := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "next"}, NewSession: Create{ParentID: "p"}}.Decide(v)
		if f := refused(t, err, fault.Conflict, "PARENT_MISMATCH"); f.Detail == "" {
			t.Errorf("%s: no detail", name)
		}
	}
}
