package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func put(child Child) PutChild { return PutChild{Key: sessionKey, Child: child, Now: 100} }

func TestARemoteChildIsRecorded(t *testing.T) {
	t.Parallel()
	change, err := put(Child{SessionID: "far", Status: Active, Location: Remote, Remote: `{"url":"x"}`}).Decide(runningView())
	must(t, err)
	if row := change.Children[0]; change.Session.Children != 1 || row.Mode != Ephemeral || row.StartedAt != 100 || change.Session.Version != 8 {
		t.Errorf("got %+v, session %+v", row, change.Session)
	}
	parent := runningView().withChild("far", Active)
	parent.Children[0].Location = Remote
	for status, ended := range map[Status]bool{SuspendedClientTool: false, Completed: true, Failed: true} {
		got, err := put(Child{SessionID: "far", AgentType: "a", Status: status, Location: Remote}).Decide(parent)
		must(t, err)
		if row := got.Children[0]; row.Status != status || (row.CompletedAt == 100) != ended || got.Session.Children != 1 {
			t.Errorf("%s: got %+v, session %+v", status, row, got.Session)
		}
	}
}

func TestTheLocationOfAChildIsFixed(t *testing.T) {
	t.Parallel()
	v := runningView().withChild("k", Active)
	_, err := put(Child{SessionID: "k", Location: Remote}).Decide(v)
	refused(t, err, fault.Conflict, "LOCATION_FIXED")
	_, err = put(Child{SessionID: "new", Location: Local}).Decide(v)
	refused(t, err, fault.Conflict, "CHILD_UNKNOWN")
	_, err = put(Child{}).Decide(&View{})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
	_, _, err = Commit{ClaimRef: ref, Step: 4, Children: []Child{{SessionID: "k", Location: Remote}}}.Decide(v)
	refused(t, err, fault.Conflict, "LOCATION_FIXED")
}

func TestAStepCannotRecordALocalChildWithoutASession(t *testing.T) {
	t.Parallel()
	for _, location := range []Location{Local, ""} {
		c := Commit{
			ClaimRef: ref, Step: 4, Children: []Child{{SessionID: "ghost", Status: Active, Location: location}},
		}
		_, _, err := c.Decide(runningView())
		refused(t, err, fault.Conflict, "CHILD_UNKNOWN")
	}
	twice := Commit{ClaimRef: ref, Step: 4, Children: []Child{{SessionID: "far", Location: Remote}, {SessionID: "far", Name: "critic"}}}
	change, _, err := twice.Decide(runningView())
	must(t, err)
	if len(change.Children) != 1 || change.Session.Children != 1 || change.Children[0].Location != Remote || change.Children[0].Name != "critic" {
		t.Errorf("got %+v", change.Children)
	}
}

// A parent that believed another source would continue too early, or never.
func TestOnlyALocalChildReportsItsOwnStatus(t *testing.T) {
	t.Parallel()
	v := runningView().withChild("k", Active)
	change, err := put(Child{SessionID: "k", AgentType: "a", Status: Completed, Location: Local, Name: "critic"}).Decide(v)
	must(t, err)
	if row := change.Children[0]; row.Status != Active || row.Name != "critic" || row.CompletedAt != 0 || row.StartedAt != 1 {
		t.Errorf("got %+v", row)
	}
	if change, err := put(v.Children[0]).Decide(v); err != nil || change != nil {
		t.Errorf("nothing new: got %+v, %v", change, err)
	}
}

func TestAStepRecordsItsChildrenAndCountsNewOnes(t *testing.T) {
	t.Parallel()
	v := runningView().withChild("k", Active).withChild("far", Completed).withChild("again", Completed)
	for i := range v.Children[1:] {
		v.Children[i+1].Location, v.Children[i+1].CompletedAt = Remote, 40
	}
	c := Commit{ClaimRef: ref, Step: 4, Now: 50, Children: []Child{
		{SessionID: "new", Status: Active, Location: Remote},
		{SessionID: "k", CallID: "c", Status: Failed, Location: Local},
		{SessionID: "far", Status: Active, Location: Remote, StartedAt: 30},
		{SessionID: "again", Status: Active, Location: Remote, StartedAt: 45},
	}}
	change, _, err := c.Decide(v)
	must(t, err)
	if change.Session.Children != 4 {
		t.Errorf("got %d children", change.Session.Children)
	}
	for i, want := range []Status{Active, Active, Completed, Active} {
		if got := change.Children[i]; got.Status != want || (want == Completed) != (got.CompletedAt != 0) {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
	if change.Children[1].CallID != "c" {
		t.Errorf("got %+v", change.Children[1])
	}
}

func TestEmptyFieldsOfAChildKeepTheirValue(t *testing.T) {
	t.Parallel()
	v := runningView().withChild("far", Active)
	v.Children[0] = Child{SessionID: "far", AgentType: "a", CallID: "c", Status: Active, Mode: Persistent, Name: "critic", Location: Remote, Remote: "{}", StartedAt: 1}
	change, err := put(Child{SessionID: "far", Status: Completed}).Decide(v)
	must(t, err)
	want := v.Children[0]
	want.Status, want.CompletedAt = Completed, 100
	if change.Children[0] != want {
		t.Errorf("got %+v, want %+v", change.Children[0], want)
	}
}
