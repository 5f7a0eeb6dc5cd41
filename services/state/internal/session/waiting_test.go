package session

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// withWaitingRuns adds waiting runs with one message each.
func (v *View) withWaitingRuns(policies ...BusyPolicy) *View {
	for i, policy := range policies {
		id := fmt.Sprint("w", i+1)
		v.Session.Waiting++
		v.Waiting = append(v.Waiting, WaitingRun{
			Run:        Run{RunID: id, AgentType: "a", Status: RunWaiting, OnBusy: policy, QueuePlace: int64(i + 1), Entry: EntryStart},
			MessageIDs: []string{"m-" + id},
		})
	}
	v.WaitingInput = &RunInput{Messages: []Message{{ID: "m-w1", Role: "user"}}}
	return v
}

func TestEveryEndOfTheWorkStartsTheNextWaitingRun(t *testing.T) {
	t.Parallel()
	live, asleep := runningView, func() *View { return suspendedView(call("c1")) }
	taken := func() *View {
		v := asleep()
		v.Checkpoint, v.CheckpointState = &Checkpoint{ID: "cp", Step: 2, MessageCount: 3, StateVersion: 1, StateBase: 1}, "{}"
		return v
	}
	set := func(status Status) SetStatus { return SetStatus{Key: sessionKey, Status: status, Now: 100} }
	outcome := func(status RunStatus) func(...*View) (*Change, error) {
		return deciding(Commit{ClaimRef: ref, Step: 4, Outcome: &Outcome{Status: status}, CheckpointID: "cp", Now: 100}.Decide)
	}
	for name, c := range map[string]struct {
		view   func() *View
		decide func(...*View) (*Change, error)
	}{
		"finish, completed":             {live, finishAs("s", RunCompleted)},
		"finish, failed":                {live, finishAs("s", RunFailed)},
		"finish, interrupted":           {live, finishAs("s", RunInterrupted)},
		"commit, completed":             {live, outcome(RunCompleted)},
		"commit, failed":                {live, outcome(RunFailed)},
		"commit, interrupted":           {live, outcome(RunInterrupted)},
		"a host pauses":                 {live, deciding(set(Paused).Decide)},
		"a host interrupts":             {live, deciding(set(Interrupted).Decide)},
		"a host completes":              {live, deciding(set(Completed).Decide)},
		"a host pauses a suspended one": {asleep, deciding(set(Paused).Decide)},
		"an interrupt stops it":         {asleep, deciding(RequestStop{Key: sessionKey, Kind: StopInterrupt, Now: 100}.Decide)},
		"an abort stops it":             {asleep, deciding(RequestStop{Key: sessionKey, Kind: StopAbort, Now: 100}.Decide)},
		"it is taken back":              {taken, deciding(RewindTo{Key: sessionKey, CheckpointID: "cp", Now: 100}.Decide)},
	} {
		v := c.view().withWaitingRuns(BusyEnqueue, BusyInterrupt)
		got := newFamily(v).run(t, "s", c.decide)["s"]
		s, r := got.Session, got.Dequeued
		if r == nil || r.RunID != "w1" || r.Status != RunQueued || r.Turn != 3 || r.StartMessageCount != s.MessageCount-1 || r.TurnMessageCount != r.StartMessageCount {
			t.Errorf("%s: got run %+v", name, r)
			continue
		}
		if s.Status != Active || s.CurrentRunID != "w1" || s.Turn != 3 || s.Waiting != 1 || s.Suspension != nil || s.Interruption != nil || s.Failure != nil || s.Version != 9 {
			t.Errorf("%s: got session %+v", name, s)
		}
		if last := got.Messages[len(got.Messages)-1]; last.ID != "m-w1" || last.Ordinal != s.MessageCount-1 || !slices.Equal(got.DropInputs, []string{"w1"}) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestASuspensionStartsNoWaitingRun(t *testing.T) {
	t.Parallel()
	commit := deciding(suspends(RunSuspendedClientTool, Call{CallID: "c1", Kind: ClientTool}).Decide)
	got := newFamily(runningView().withWaitingRuns(BusyEnqueue)).run(t, "s", commit)["s"]
	if got.Dequeued != nil || got.Session.Waiting != 1 || got.Session.Status != SuspendedClientTool {
		t.Errorf("got %+v", got)
	}
	v := suspendedView(call("c1")).withWaitingRuns(BusyEnqueue)
	got = newFamily(v).run(t, "s", deciding(Submit{Key: sessionKey, CallID: "c1", NewRunID: "next", Now: 100}.Decide))["s"]
	if got.NewRun == nil || got.NewRun.Entry != EntryContinuation || got.Dequeued != nil || got.Session.Waiting != 1 {
		t.Errorf("got %+v, want the continuation before them", got)
	}
}

func TestOpenCallsAreAbandonedWhenAWaitingRunBegins(t *testing.T) {
	t.Parallel()
	// The live run suspends although it was asked to stop.
	v := runningView().withWaitingRuns(BusyInterrupt)
	v.Live.Stop = &Stop{Kind: StopInterrupt}
	v.Calls = []Call{call("old"), call("answered").answeredBy(AnswerClient)}
	commit := deciding(suspends(RunSuspendedClientTool, Call{CallID: "new", Kind: ClientTool}).Decide)
	got := newFamily(v).run(t, "s", commit)["s"]
	if got.Dequeued == nil || len(got.NewCalls) != 1 || len(got.Calls) != 1 {
		t.Fatalf("got %+v", got)
	}
	for _, c := range []Call{got.NewCalls[0], got.Calls[0]} {
		if c.Answer != AnswerAbandoned || c.Revision != 1 || string(c.Response) != "gone "+c.CallID || c.AnsweredAt != 100 {
			t.Errorf("got %+v", c)
		}
	}
	// A client interrupts a suspended session.
	stop := deciding(RequestStop{Key: sessionKey, Kind: StopInterrupt, Now: 100}.Decide)
	got = newFamily(suspendedView(call("c1")).withWaitingRuns(BusyEnqueue)).run(t, "s", stop)["s"]
	if got.Dequeued == nil || len(got.Calls) != 1 || got.Calls[0].Answer != AnswerAbandoned {
		t.Errorf("got %+v", got)
	}
	// Without waiting runs the calls can still be answered.
	if got = newFamily(suspendedView(call("c1"))).run(t, "s", stop)["s"]; len(got.Calls) != 0 {
		t.Errorf("got %+v", got.Calls)
	}
}

func TestAForcedFailureEndsTheWaitingRuns(t *testing.T) {
	t.Parallel()
	due := runningView().withWaitingRuns(BusyEnqueue, BusyRollback)
	due.Session.ExpiresAt = 100
	failed := &Failure{Error: "no"}
	for name, c := range map[string]struct {
		view   *View
		decide func(...*View) (*Change, error)
	}{
		"a host":   {runningView().withWaitingRuns(BusyEnqueue, BusyRollback), deciding(SetStatus{Key: sessionKey, Status: Failed, Failure: failed, Now: 100}.Decide)},
		"its time": {due, deciding(Expire{Key: sessionKey, Now: 100}.Decide)},
	} {
		got := newFamily(c.view).run(t, "s", c.decide)["s"]
		if got.Dequeued != nil || got.Session.Waiting != 0 || got.Session.Status != Failed || len(got.Runs) != 3 || !slices.Equal(got.DropInputs, []string{"w1", "w2"}) {
			t.Errorf("%s: got %+v", name, got)
		}
		for _, r := range got.Runs[1:] {
			if r.Status != RunFailed || r.Turn != 0 || *r.Outcome.Failure != *got.Session.Failure || r.CompletedAt != 100 {
				t.Errorf("%s: got %+v", name, r)
			}
		}
	}
	parent := runningView().withChild("k", Active)
	kid := childView("k", "s").withWaitingRuns(BusyEnqueue)
	got := newFamily(parent, kid).run(t, "s", finishAs("s", RunFailed))
	if k := got["k"]; k.Session.Status != Failed || k.Session.Waiting != 0 || k.Dequeued != nil || len(k.Runs) != 2 || got["s"].Children[0].Status != Failed {
		t.Errorf("got %+v", k)
	}
}

func TestAFailedRunFailsItsChildrenEvenIfAnotherRunBegins(t *testing.T) {
	t.Parallel()
	f := newFamily(runningView().withChild("k", Active).withWaitingRuns(BusyEnqueue), childView("k", "s"))
	got := f.run(t, "s", finishAs("s", RunFailed))
	if got["s"].Dequeued == nil || got["s"].Session.Status != Active || got["k"] == nil || got["k"].Session.Failure.Reason != ParentFailed {
		t.Errorf("got %+v and %+v", got["s"], got["k"])
	}
	f = newFamily(runningView().withChild("k", Active).withWaitingRuns(BusyEnqueue), childView("k", "s"))
	if got := f.run(t, "s", finishAs("s", RunCompleted)); got["s"].Dequeued == nil || got["k"] != nil {
		t.Errorf("got %+v and %+v", got["s"], got["k"])
	}
}

func TestCommandsWithoutWaitingRunsNeedNoMoreRows(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(...*View) (*Change, error){
		"finish": finishAs("s", RunCompleted),
		"commit": deciding(Commit{ClaimRef: ref, Step: 4, Messages: []Message{{ID: "m"}}, Outcome: &Outcome{Status: RunCompleted}, Now: 1}.Decide),
		"append": deciding(AppendMessages{Key: sessionKey, Messages: []Message{{ID: "m"}}}.Decide),
	} {
		v := runningView()
		own, err := decide(v)
		must(t, err)
		if _, err := (Family{Now: 1, Targets: []Target{{Key: sessionKey}}}).Propagate([]*View{v}, own); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNewMessagesMayNotUseIDsOfWaitingRuns(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(id string) func(*View) error{
		"commit": func(id string) func(*View) error {
			return func(v *View) error {
				_, _, err := Commit{ClaimRef: ref, Step: 4, Messages: []Message{{ID: id}}}.Decide(v)
				return err
			}
		},
		"append": func(id string) func(*View) error {
			return func(v *View) error {
				_, _, err := AppendMessages{Key: sessionKey, Messages: []Message{{ID: id}}}.Decide(v)
				return err
			}
		},
		"start": func(id string) func(*View) error {
			return func(v *View) error {
				_, _, err := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "n", RequestHash: []byte("another"), Messages: []Message{{ID: id}}, OnBusy: BusyEnqueue, Limits: Limits{Waiting: 9}}}.Decide(v)
				return err
			}
		},
	} {
		unseen := runningView()
		unseen.Session.Waiting = 1
		wider, ok := errors.AsType[*IncompleteViewError](decide("m")(unseen))
		if !ok || !wider.Targets[0].Need.Waiting || wider.Targets[0].Key != sessionKey {
			t.Errorf("%s: got %v, want to see those that wait", name, wider)
		}
		refused(t, decide("m-w1")(runningView().withWaitingRuns(BusyEnqueue)), fault.Conflict, "MESSAGE_EXISTS")
		must(t, decide("m")(runningView().withWaitingRuns(BusyEnqueue)))
	}
}

func TestTheBusyPolicyDecidesOnASendWhileARunIsLive(t *testing.T) {
	t.Parallel()
	start := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "n", Messages: []Message{{ID: "m"}}, Limits: Limits{Waiting: 1}, Now: 50}}
	if _, _, err := start.Decide(runningView()); !needsMore(err, Need{OwnAgent: true}) {
		t.Errorf("got %v, want to see what the agent has announced", err)
	}
	for _, c := range []struct {
		asked, announced BusyPolicy
		want             *Stop
		reason           string
	}{
		{"", BusyReject, nil, "SESSION_BUSY"},
		{BusyReject, BusyEnqueue, nil, "SESSION_BUSY"},
		{"", BusyEnqueue, nil, ""},
		{BusyEnqueue, BusyReject, nil, ""},
		{BusyInterrupt, "", &Stop{Kind: StopInterrupt, Reason: "superseded by run n", At: 50}, ""},
		{"", BusyRollback, &Stop{Kind: StopInterrupt, Reason: "superseded by run n", At: 50, Undo: true}, ""},
	} {
		v := runningView()
		v.OwnAgent = &Agent{OnBusy: c.announced}
		v.Live.DueAt = 99
		start.OnBusy = c.asked
		change, started, err := start.Decide(v)
		if fault.ReasonOf(err) != c.reason {
			t.Errorf("%+v: got %v", c, err)
		}
		if c.reason != "" {
			continue
		}
		if !started.Waiting || change.NewRun.Status != RunWaiting || change.NewRun.Turn != 0 || change.NewRun.QueuePlace != 8 || change.Session.Waiting != 1 ||
			change.Session.Turn != 2 || len(change.Messages) != 0 || change.WaitingInput.Messages[0].ID != "m" || change.Session.CurrentRunID != "r" {
			t.Errorf("%+v: got %+v", c, change)
		}
		if (c.want == nil) != (len(change.Runs) == 0) || c.want != nil && (*change.Runs[0].Stop != *c.want || change.Runs[0].DueAt != 0) {
			t.Errorf("%+v: got %+v", c, change.Runs)
		}
	}
	start.OnBusy = BusyEnqueue
	_, _, err := start.Decide(runningView().withWaitingRuns(BusyEnqueue))
	refused(t, err, fault.Exhausted, "TOO_MANY_WAITING")
}

func needsMore(err error, need Need) bool {
	wider, ok := errors.AsType[*IncompleteViewError](err)
	return ok && len(wider.Targets) == 1 && fmt.Sprint(wider.Targets[0].Need) == fmt.Sprint(need)
}

func TestLaterStopsOnlyEscalateTheFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		was, asked, want *Stop
	}{
		{nil, &Stop{Kind: StopInterrupt, Reason: "new"}, &Stop{Kind: StopInterrupt, Reason: "new"}},
		{&Stop{Kind: StopInterrupt, Reason: "old"}, &Stop{Kind: StopInterrupt, Reason: "new"}, nil},
		{&Stop{Kind: StopInterrupt, Reason: "old"}, &Stop{Kind: StopInterrupt, Reason: "new", Undo: true}, &Stop{Kind: StopInterrupt, Reason: "old", Undo: true}},
		{&Stop{Kind: StopAbort, Reason: "old"}, &Stop{Kind: StopInterrupt, Undo: true}, &Stop{Kind: StopAbort, Reason: "old", Undo: true}},
		{&Stop{Kind: StopInterrupt, Reason: "old", Undo: true}, &Stop{Kind: StopAbort, Reason: "new"}, &Stop{Kind: StopAbort, Reason: "new", Undo: true}},
		{&Stop{Kind: StopAbort, Reason: "old"}, &Stop{Kind: StopAbort, Reason: "new"}, nil},
	} {
		r := Run{Stop: c.was}
		news := r.addStop(*c.asked)
		want := c.want
		if want == nil {
			want = c.was
		}
		if news != (c.want != nil) || *r.Stop != *want {
			t.Errorf("%+v asked for %+v: got %+v, %v", c.was, c.asked, r.Stop, news)
		}
		if c.was != nil && c.was.Undo && !r.Stop.Undo {
			t.Error("a stop has changed what it was shown")
		}
	}
}

// undoableView returns a session with a live run to undo. The run began behind two messages
// and has sent a third.
func undoableView() *View {
	v := runningView().withWaitingRuns(BusyRollback)
	v.Live.Stop = &Stop{Kind: StopInterrupt, Undo: true}
	v.Live.StartMessageCount, v.Live.StartStateVersion, v.Live.StartStateBase = 2, 1, 1
	v.Session.StateVersion, v.Session.StateBase, v.Session.State, v.Session.CheckpointID = 6, 5, `{"n":2}`, "cp6"
	v.KeptMessages = []Message{{ID: "hello", Role: "user", Ordinal: 2}, {ID: "aside", Role: "user", Ordinal: 4}}
	v.ReportedLate = []Call{reportedCall("late", 2), reportedCall("gone", 3)} // the run has committed step 3
	v.Live.StepCount = 1
	v.StartState = `{"n":1}`
	return v
}

// reportedCall returns a call of a step with a reported late answer.
func reportedCall(id string, step int32) Call {
	c := call(id).answeredBy(AnswerTimeout).asConsumed()
	c.Step, c.LateAt, c.LateReported, c.LateReportedStep = step, 2, true, 3
	return c
}

func TestAnUndoIsWrittenWithTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	commit := Commit{
		ClaimRef: ref, Step: 4, Now: 100, Messages: []Message{
			{ID: "answer", Role: "assistant", RunID: "r", Step: 4}, {ID: "said", Role: "user", RunID: "r"}, {ID: "note", Role: "user", RunID: "r", Step: 4},
			{ID: "result", Role: "tool", RunID: "r", Step: 4},
		},
		Ops: []StateOp{{"n", OpReplace, "3"}}, Consume: []Consume{{CallID: "mine", Revision: 1}}, CheckpointID: "cp", Limits: Limits{State: 1000},
		Calls: []Call{{CallID: "new", Kind: ClientTool}}, Outcome: &Outcome{Status: RunSuspendedClientTool}, Usage: []Usage{{Kind: UsageTokens}},
	}
	v := undoableView()
	mine := call("mine").answeredBy(AnswerClient)
	mine.Step = 2
	v.NamedCalls = []Call{mine}
	got := newFamily(v).run(t, "s", deciding(commit.Decide))["s"]
	if *got.Rewind != (Rewind{Messages: 2, StateVersion: 1, RunID: "r"}) || got.Checkpoint != nil || got.NewState || len(got.StateWrite) > 0 || len(got.NewCalls) > 0 {
		t.Errorf("got %+v", got)
	}
	var ids []string
	for i, m := range got.Messages {
		ids = append(ids, m.ID)
		if m.Ordinal != int64(i+2) {
			t.Errorf("got %s at %d", m.ID, m.Ordinal)
		}
	}
	if !slices.Equal(ids, []string{"hello", "aside", "said", "result", "m-w1"}) {
		t.Errorf("got messages %v", ids)
	}
	s := got.Session
	if s.MessageCount != 7 || s.StateVersion != 1 || s.StateBase != 1 || s.State != `{"n":1}` || s.StepCount != 4 || s.CheckpointID != "" || s.Status != Active || s.Version != 9 {
		t.Errorf("got %+v", s)
	}
	if len(got.Usage) != 1 || len(got.Calls) != 2 || got.Calls[0].CallID != "mine" || got.Calls[0].ConsumedStep != 4 || got.Calls[1].CallID != "late" ||
		got.Calls[1].LateReported || got.Calls[1].LateReportedStep != 0 || got.Calls[1].LateAt != 2 {
		t.Errorf("got usage %+v, calls %+v", got.Usage, got.Calls)
	}
	if r := got.Dequeued; r.StartMessageCount != 6 || r.StartStateVersion != 1 || got.Runs[0].Status != RunSuspendedClientTool {
		t.Errorf("got %+v", got)
	}
	if _, again, err := commit.Decide(&View{Session: s, Run: &got.Runs[0]}); err != nil || again.Step != 4 || again.Version != 8 {
		t.Errorf("got %+v, %v for the repetition", again, err)
	}
}

func TestAnUndoDeletesTheResultsOfItsOwnCalls(t *testing.T) {
	t.Parallel()
	v := undoableView()
	own := call("own").answeredBy(AnswerClient) // of step 3, which is undone too
	v.NamedCalls = []Call{own}
	commit := Commit{
		ClaimRef: ref, Step: 4, Messages: []Message{{ID: "result", Role: "tool", RunID: "r", Step: 4}}, Consume: []Consume{{CallID: "own", Revision: 1}},
		CheckpointID: "cp", Outcome: &Outcome{Status: RunInterrupted}, Limits: Limits{State: 1000}, Now: 100,
	}
	got := newFamily(v).run(t, "s", deciding(commit.Decide))["s"]
	if slices.ContainsFunc(got.Messages, func(m Message) bool { return m.ID == "result" }) || got.Calls[0].ConsumedAt != 100 {
		t.Errorf("got %+v, %+v", got.Messages, got.Calls)
	}
}

func TestAnUndoKeepsTheStateIfTheStartIsUnknown(t *testing.T) {
	t.Parallel()
	v := undoableView()
	v.Live.StartStateVersion, v.Live.StartStateBase, v.StartState = 0, 0, ""
	got := newFamily(v).run(t, "s", finishAs("s", RunInterrupted))["s"]
	if got.Rewind.StateVersion != 0 || got.Session.StateVersion != 6 || got.Session.StateBase != 5 || got.Dequeued == nil {
		t.Errorf("got %+v", got)
	}
}

func TestAWaitingRunTakesNoWrites(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Session.Epoch, v.Run = 0, &Run{RunID: "w1", Status: RunWaiting}
	waiting := ClaimRef{Key: sessionKey, RunID: "w1"}
	for name, err := range map[string]error{
		"finish":  onlyError(Finish{ClaimRef: waiting}.Decide(v)),
		"commit":  onlyError(Commit{ClaimRef: waiting, Step: 4}.Decide(v)),
		"release": errorOf(Release{ClaimRef: waiting}.Decide(v)),
		"plan":    errorOf(RecordPlan{ClaimRef: waiting, Step: 4}.Decide(v)),
	} {
		if fault.ReasonOf(err) != "EPOCH_STALE" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func onlyError[A any](_ *Change, _ A, err error) error { return err }
func errorOf(_ *Change, err error) error               { return err }
