package session

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// restingView returns a failed session with a checkpoint of step 2.
func restingView() *View {
	v := suspendedView()
	v.Session.Status, v.Session.Suspension = Failed, nil
	v.Session.Failure, v.Session.Output = &Failure{Error: "e"}, "1"
	v.Session.StateVersion, v.Session.StateBase = 6, 5
	v.Checkpoint = &Checkpoint{ID: "cp", RunID: "r", Step: 2, MessageCount: 3, StateVersion: 4, StateBase: 2}
	v.CheckpointState = `{"then":true}`
	return v
}

func TestARewindRestoresTheSessionAndKeepsCountingSteps(t *testing.T) {
	t.Parallel()
	v := restingView()
	early, late := call("early").answeredBy(AnswerClient), call("late").answeredBy(AnswerClient)
	open, behind := call("open"), call("behind")
	early.Step, open.Step = 2, 2
	v.Calls = []Call{open, behind, early, late}
	change, s, err := RewindTo{Key: sessionKey, CheckpointID: "cp", Now: 50}.Decide(v)
	must(t, err)
	if s.Status != Paused || s.MessageCount != 3 || s.StepCount != 3 || s.State != `{"then":true}` || s.StateVersion != 4 || s.StateBase != 2 || s.Version != 8 || s.CheckpointID != "cp" {
		t.Errorf("got %+v", s)
	}
	if s.Failure != nil || s.Output != "" || change.NewState || *change.Rewind != (Rewind{Messages: 3, StateVersion: 4, Step: 2, CallsFrom: 3}) {
		t.Errorf("got %+v with %+v", s, change)
	}
	if !slices.Equal(change.DropCalls, []string{"open"}) || change.dropsCall(early) || !change.dropsCall(late) || !change.dropsCall(behind) {
		t.Errorf("got dropped %v", change.DropCalls)
	}
	// The number of writes before the rewound state is unknown.
	merged, _, err := MergeState{Key: sessionKey, Ops: []StateOp{{"x", OpReplace, "1"}}, Limits: Limits{State: 100}}.Decide(&View{Session: &s})
	if err != nil || !merged.NewState || merged.Session.StateBase != 9 || merged.Session.State != `{"then":true,"x":1}` {
		t.Errorf("got %+v, %v", merged, err)
	}
}

func TestTruncatedMessagesDoNotComeBack(t *testing.T) {
	t.Parallel()
	v := restingView()
	v.Session.MessageCount = 1
	change, s, err := RewindTo{Key: sessionKey, CheckpointID: "cp"}.Decide(v)
	if err != nil || s.MessageCount != 1 || change.Rewind.Messages != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
	change, s, err = Branch{From: sessionKey, CheckpointID: "cp", Key: Key{"t", "b"}}.Decide(&View{}, v)
	if err != nil || s.MessageCount != 1 || change.Copy.Messages != 1 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestALiveSessionCannotBeRewound(t *testing.T) {
	t.Parallel()
	_, _, err := RewindTo{Key: sessionKey}.Decide(runningView())
	refused(t, err, fault.Conflict, "SESSION_BUSY")
	_, _, err = Truncate{Key: sessionKey}.Decide(runningView())
	refused(t, err, fault.Conflict, "SESSION_BUSY")
}

func TestAForeignCheckpointIsRefused(t *testing.T) {
	t.Parallel()
	v := restingView()
	v.Checkpoint = nil // the store returns the session's own only
	_, _, err := RewindTo{Key: sessionKey, CheckpointID: "cp"}.Decide(v)
	refused(t, err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
	_, _, err = Branch{From: sessionKey, CheckpointID: "cp", Key: Key{"t", "b"}}.Decide(&View{}, v)
	refused(t, err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
}

func TestABranchBeginsAtTheCheckpoint(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Checkpoint, v.CheckpointState = restingView().Checkpoint, `{"then":true}`
	v.Session.UserID, v.Session.OrganizationID, v.Session.Tags, v.Session.ParentID, v.Session.RootID = "u", "o", []string{"x"}, "p", "root"
	c := Branch{From: sessionKey, CheckpointID: "cp", Key: Key{"t", "b"}, Now: 50}
	change, s, err := c.Decide(&View{}, v)
	must(t, err)
	if !change.Created || !change.NewState || *change.Copy != (Copy{"s", 3}) {
		t.Errorf("got %+v", change)
	}
	if s.Status != Paused || s.Turn != 0 || s.Version != 1 || s.RootID != "b" || s.ParentID != "" || s.UserID != "u" || s.OrganizationID != "o" ||
		s.AgentType != "a" || len(s.Tags) != 1 || s.MessageCount != 3 || s.StepCount != 0 || s.State != `{"then":true}` || s.StateVersion != 1 || s.StateBase != 1 {
		t.Errorf("got %+v", s)
	}
	_, _, err = c.Decide(restingView(), v)
	refused(t, err, fault.Conflict, "SESSION_EXISTS")
	_, _, err = c.Decide(&View{}, &View{})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
	same := Branch{From: sessionKey, CheckpointID: "cp", Key: sessionKey}
	if targets := same.Targets(); len(targets) != 1 || len(c.Targets()) != 2 {
		t.Errorf("got targets %+v", targets)
	}
	_, _, err = same.Decide(v)
	refused(t, err, fault.Conflict, "SESSION_EXISTS")
}

func TestATruncatedConversationHasTheNewestRemainingCheckpoint(t *testing.T) {
	t.Parallel()
	v := restingView()
	v.Session.CheckpointID = "gone"
	change, count, err := Truncate{Key: sessionKey, Messages: 4, Now: 50}.Decide(v)
	must(t, err)
	if s := change.Session; count.Messages != 4 || s.MessageCount != 4 || s.CheckpointID != "cp" || s.Version != 8 || *change.Rewind != (Rewind{Messages: 4}) {
		t.Errorf("got %d and %+v", count, s)
	}
	v.Checkpoint = nil
	if change, _, err := (Truncate{Key: sessionKey, Messages: 2}).Decide(v); err != nil || change.Session.CheckpointID != "" {
		t.Errorf("got %+v, %v, want no checkpoint", change, err)
	}
	if change, count, err := (Truncate{Key: sessionKey, Messages: 5}).Decide(v); err != nil || change != nil || count.Messages != 5 {
		t.Errorf("got %+v, %d, %v", change, count, err)
	}
	for _, count := range []int64{6, -1} {
		_, _, err := Truncate{Key: sessionKey, Messages: count}.Decide(v)
		refused(t, err, fault.Invalid, "COUNT_INVALID")
	}
}

func TestMessagesAreAppendedAtAnyTime(t *testing.T) {
	t.Parallel()
	v := runningView()
	change, count, err := AppendMessages{Key: sessionKey, Messages: []Message{{ID: "x"}, {ID: "y"}}}.Decide(v)
	must(t, err)
	if count.Messages != 7 || change.Messages[0].Ordinal != 5 || change.Messages[1].Ordinal != 6 || change.Session.Version != 8 || change.Session.MessageCount != 7 {
		t.Errorf("got %d and %+v", count, change)
	}
	v.TakenIDs = []string{"x"}
	_, _, err = AppendMessages{Key: sessionKey, Messages: []Message{{ID: "x"}, {ID: "new"}}}.Decide(v)
	refused(t, err, fault.Conflict, "MESSAGE_EXISTS")
	if change, count, err := (AppendMessages{Key: sessionKey}).Decide(v); err != nil || change != nil || count.Messages != 5 {
		t.Errorf("got %+v, %d, %v", change, count, err)
	}
}

func TestARepeatedAppendWritesNothing(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.TakenIDs = []string{"y", "x"}
	change, count, err := AppendMessages{Key: sessionKey, Messages: []Message{{ID: "x"}, {ID: "y"}}}.Decide(v)
	if err != nil || change != nil || count.Messages != 5 {
		t.Errorf("got %+v, %d, %v", change, count, err)
	}
	_, _, err = AppendMessages{Key: sessionKey, Messages: []Message{{ID: "x"}, {ID: "x"}}}.Decide(v)
	refused(t, err, fault.Conflict, "MESSAGE_EXISTS")
}
