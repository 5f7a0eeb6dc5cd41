package session

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// rewindableView returns a failed session with the user message "ask" of run "asked" at
// ordinal 3, behind the checkpoint of step 2.
func rewindableView() *View {
	v := restingView()
	v.RewindPoint = &RewindPoint{
		Message: Message{Ordinal: 3, ID: "ask", Role: "user", RunID: "asked"}, StepBefore: 2, State: `{"then":true}`,
		Run: &Run{RunID: "asked", StartStateVersion: 4, StartStateBase: 2}, Checkpoint: &Checkpoint{ID: "cp", Step: 2, MessageCount: 3, StateVersion: 4, StateBase: 2},
	}
	v.Checkpoint, v.CheckpointState = nil, ""
	return v
}

// testBodies hides messages with the id "hidden", and compares messages by their bodies.
var testBodies = BodyFuncs{
	SameContent: func(a, b Message) (bool, error) { return string(a.Body) == string(b.Body), nil },
	IsVisible:   func(m Message) (bool, error) { return m.ID != "hidden", nil },
	MoveToRun:   func(m Message, runID string) (Message, error) { m.RunID = runID; return m, nil },
	RanTool: func(step []Message) (bool, error) {
		return slices.ContainsFunc(step, func(m Message) bool { return m.Role == roleTool }), nil
	},
}

// editing replaces "ask" with the messages.
func editing(messages ...Message) Edit {
	return Edit{Target: "ask", Send: Send{RunRequest: RunRequest{Key: sessionKey, RunID: "next", MessageID: "ui", Now: 50, Messages: messages, Bodies: testBodies}}}
}

// regenerate answers "ask" again.
func regenerate() Regenerate { return Regenerate{Target: "ask", Send: editing().Send} }

func TestARewindToAMessageKeepsCountingTurnsAndSteps(t *testing.T) {
	t.Parallel()
	for keep, want := range map[bool][]string{true: {"ask"}, false: {"new"}} {
		decide := editing(Message{ID: "new"}).Decide
		if keep {
			decide = regenerate().Decide
		}
		change, started, err := decide(rewindableView())
		must(t, err)
		s, run := change.Session, change.NewRun
		if s.Status != Active || s.Turn != 3 || s.StepCount != 3 || s.Version != 8 || s.CheckpointID != "cp" || s.Failure != nil || s.Output != "" ||
			s.State != `{"then":true}` || s.StateVersion != 4 || s.StateBase != 2 || change.NewState || *change.Rewind != (Rewind{Messages: 3, StateVersion: 4, CallsFrom: 3}) {
			t.Errorf("keep %v: got %+v with %+v", keep, s, change)
		}
		if got := messageIDs(change.Messages); !slices.Equal(got, want) || s.MessageCount != 3+int64(len(want)) || change.Messages[0].Ordinal != 3 {
			t.Errorf("keep %v: got messages %v of %d", keep, got, s.MessageCount)
		}
		if run.Entry != EntryStart || run.Turn != 3 || run.MessageID != "ui" || run.StartMessageCount != 3 || run.TurnMessageCount != 3 || run.StartStateVersion != 4 {
			t.Errorf("keep %v: got run %+v", keep, run)
		}
		if started.Run.RunID != "next" || keep && change.Messages[0].RunID != "next" {
			t.Errorf("keep %v: got %+v", keep, started)
		}
	}
}

func TestAMessageRewindDeletesLaterMessagesWithTheirCalls(t *testing.T) {
	t.Parallel()
	v := rewindableView()
	late := call("late").answeredBy(AnswerTimeout).asConsumed()
	late.Step, late.LateAt, late.LateReported, late.LateReportedStep = 1, 9, true, 3
	timedOut, replaced := call("timed out").answeredBy(AnswerTimeout).asConsumed(), call("replaced").answeredBy(AnswerTimeout)
	timedOut.Step, replaced.Step = 1, 2
	open, given := call("open"), call("given")
	open.Step, given.Step = 2, 2
	v.RewindPoint.ReportedLate = []Call{late}
	v.RewindPoint.Results = []Message{{ID: "result", Role: "tool"}}
	v.Calls = []Call{call("waits"), open, given, replaced}
	v.NamedCalls = []Call{given, replaced, timedOut, call("waits")}
	c := regenerate()
	c.Answers = []Answer{{CallID: "given", Kind: ClientTool, Response: []byte("x")}, {CallID: "waits", Kind: Approval},
		{CallID: "timed out", Kind: ClientTool, Response: []byte("late")}, {CallID: "replaced", Kind: ClientTool, Response: []byte("real")}}
	change, started, err := c.Decide(v)
	must(t, err)
	if !slices.Equal(change.DropCalls, []string{"open"}) || change.Rewind.CallsFrom != 3 || len(started.Abandoned) != 0 {
		t.Errorf("got dropped %v", change.DropCalls)
	}
	if last := change.Calls[len(change.Calls)-2:]; string(last[0].Late) != "late" || last[0].LateAt != 50 || last[1].Answer != AnswerClient || string(last[1].Response) != "real" || last[1].Revision != 2 {
		t.Errorf("got %+v, want the answers that come after timeouts", last)
	}
	if len(change.Calls) != 4 || change.Calls[0].CallID != "late" || change.Calls[0].LateReported || change.Calls[0].LateReportedStep != 0 || change.Calls[1].CallID != "given" || change.Calls[1].Answer != AnswerClient {
		t.Errorf("got calls %+v", change.Calls)
	}
	if got := messageIDs(change.Messages); !slices.Equal(got, []string{"ask", "result"}) {
		t.Errorf("got messages %v", got)
	}
	c.Abandon = abandonAnswer
	change, started, err = c.Decide(v)
	must(t, err)
	if len(change.DropCalls) != 0 || !slices.Equal(started.Abandoned, []string{"open"}) {
		t.Errorf("got dropped %v, abandoned %v", change.DropCalls, started.Abandoned)
	}
	_, _, err = editing(Message{ID: "result"}).Decide(v)
	refused(t, err, fault.Conflict, "MESSAGE_EXISTS")
}

func TestAMessageRewindRestoresTheStateOfItsRunOrTheCheckpointBefore(t *testing.T) {
	t.Parallel()
	v := rewindableView()
	v.RewindPoint.Run.StartStateVersion, v.RewindPoint.Run.StartStateBase = 3, 1
	newest := v.RewindPoint.Checkpoint
	v.RewindPoint.Checkpoint = nil
	change, _, err := regenerate().Decide(v)
	must(t, err)
	if s := change.Session; s.StateVersion != 3 || s.StateBase != 1 || s.CheckpointID != "" || change.Rewind.StateVersion != 3 {
		t.Errorf("got %+v, want that of the run, without the checkpoint of a later state", s)
	}
	v.RewindPoint.Checkpoint = newest
	for _, run := range []*Run{nil, {RunID: "asked"}} { // in a branch, and before it begins
		v.RewindPoint.Run = run
		change, _, err = regenerate().Decide(v)
		must(t, err)
		if s := change.Session; s.StateVersion != 4 || s.StateBase != 2 || s.CheckpointID != "cp" {
			t.Errorf("got %+v, want that of the checkpoint", s)
		}
	}
	v.RewindPoint.State = ""
	_, _, err = regenerate().Decide(v)
	refused(t, err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
	v.RewindPoint.Checkpoint, v.RewindPoint.State = nil, "{}"
	_, _, err = regenerate().Decide(v)
	refused(t, err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
}

func TestOnlyVisibleUserMessagesCanBeRewoundTo(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*View){
		"unknown":     func(v *View) { v.RewindPoint = nil },
		"assistant's": func(v *View) { v.RewindPoint.Message.Role = "assistant" },
		"hidden":      func(v *View) { v.RewindPoint.Message.ID = "hidden" },
	} {
		v := rewindableView()
		change(v)
		if _, _, err := regenerate().Decide(v); !needsMore(err, Need{AnswerID: "ask"}) {
			t.Errorf("%s: got %v, want to see whether it is an answer", name, err)
		}
		v.Answer = &AnswerRun{}
		_, _, err := regenerate().Decide(v)
		if fault.ReasonOf(err) != "MESSAGE_NOT_FOUND" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	broken := regenerate()
	broken.Bodies.IsVisible = func(Message) (bool, error) { return false, errors.New("cannot read it") }
	if _, _, err := broken.Decide(rewindableView()); err == nil || fault.ReasonOf(err) != "" {
		t.Errorf("got %v, want the error", err)
	}
	broken = regenerate()
	broken.Bodies.MoveToRun = func(Message, string) (Message, error) { return Message{}, errors.New("cannot write it") }
	if _, _, err := broken.Decide(rewindableView()); err == nil || fault.ReasonOf(err) != "" {
		t.Errorf("got %v, want the error", err)
	}
}

func TestABusySessionCannotBeRewoundToAMessage(t *testing.T) {
	t.Parallel()
	c := regenerate()
	c.OnBusy = BusyReject
	v := runningView()
	v.RewindPoint = rewindableView().RewindPoint
	_, _, err := c.Decide(v)
	refused(t, err, fault.Conflict, "SESSION_BUSY")
	v = suspendedView(call("c1"))
	v.RewindPoint, v.Session.Waiting = rewindableView().RewindPoint, 1
	_, _, err = c.Decide(v)
	refused(t, err, fault.Conflict, "SESSION_BUSY")
	v.Session.Waiting = 0
	change, _, err := c.Decide(v)
	must(t, err)
	if s := change.Session; s.Status != Active || s.Suspension != nil || s.ExpiresAt != 0 || !slices.Equal(change.DropCalls, nil) || change.Rewind.CallsFrom != 3 {
		t.Errorf("got %+v", change)
	}
	_, _, err = c.Decide(&View{Agent: &Agent{}})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
}

func TestARewindEndsTheAwaitedChildren(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(...*View) (*Change, error){
		"taken back": func(views ...*View) (*Change, error) {
			c := regenerate()
			c.OnBusy = BusyInterrupt
			change, _, err := c.Decide(views...)
			return change, err
		},
		"rewound": deciding(RewindTo{Key: sessionKey, CheckpointID: "cp", Now: 50}.Decide),
	} {
		v := suspendedView().withAwaitedChildren(map[string]Status{"k": Active, "over": Completed}).withChild("companion", Active)
		v.Session.Status = SuspendedAwaitingChildren
		v.RewindPoint, v.Checkpoint, v.CheckpointState = rewindableView().RewindPoint, restingView().Checkpoint, "{}"
		got := newFamily(v, childView("k", "s"), childView("over", "s"), childView("companion", "s")).run(t, "s", decide)
		if len(got) != 2 || got["k"] == nil || got["k"].Session.Status != Failed || got["k"].Session.Failure.Reason != ParentFailed {
			t.Errorf("%s: got %+v, want the child's end and no other", name, got)
		}
		if s := got["s"]; s.Session.Suspension != nil || len(s.Children) != 1 || s.Children[0].SessionID != "k" || s.Children[0].Status != Failed {
			t.Errorf("%s: got %+v", name, s)
		}
	}
}
