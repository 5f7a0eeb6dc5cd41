package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func suspends(status RunStatus, calls ...Call) Commit {
	return Commit{ClaimRef: ref, Step: 4, Calls: calls, Outcome: &Outcome{Status: status}, Suspension: &Suspension{StepID: "step"}, CheckpointID: "cp", Now: 50}
}

func TestAPlainStepNeedsNoRowsThatItDoesNotTouch(t *testing.T) {
	t.Parallel()
	got := Commit{ClaimRef: ref, Step: 4, Messages: []Message{{ID: "m"}}, Outcome: &Outcome{Status: RunCompleted}}.Need()
	if got.Calls || got.Current || got.Children || got.State || got.Live || len(got.CallIDs) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestAStepSuspendsWithItsCallsInOneWrite(t *testing.T) {
	t.Parallel()
	c := suspends(RunSuspendedStepPartial, Call{CallID: "c1", Kind: ClientTool, DeadlineAt: 400}, Call{CallID: "c2", Kind: ClientTool})
	c.ExpireAfter = 100
	c.Messages = []Message{{ID: "m6"}}
	change, checkpoint, err := c.Decide(runningView())
	must(t, err)
	s := change.Session
	if s.Status != SuspendedStepPartial || s.Suspension.StepID != "step" || s.ExpiresAt != 400 || s.CheckpointID != "cp" || s.Version != 8 {
		t.Errorf("got session %+v", s)
	}
	if len(change.NewCalls) != 2 || change.NewCalls[0].SessionID != "s" || change.NewCalls[0].RunID != "r" || change.NewCalls[0].Step != 4 || change.NewCalls[0].CreatedAt != 50 {
		t.Errorf("got calls %+v", change.NewCalls)
	}
	if change.Runs[0].Status != RunSuspendedStepPartial || change.Runs[0].FinishStep != 4 || checkpoint.Status != SuspendedStepPartial || len(change.Messages) != 1 {
		t.Errorf("got run %+v, checkpoint %+v", change.Runs[0], checkpoint)
	}
	c.ExpireAfter = 0
	if change, _, err = c.Decide(runningView()); err != nil || change.Session.ExpiresAt != 0 {
		t.Errorf("kept for ever: got %+v, %v", change, err)
	}
	c.ExpireAfter = 1000
	if change, _, err = c.Decide(runningView()); err != nil || change.Session.ExpiresAt != 1050 {
		t.Errorf("kept longer than the deadline: got %+v, %v", change, err)
	}
}

func TestASuspensionNeedsSomethingToWaitFor(t *testing.T) {
	t.Parallel()
	for _, status := range []RunStatus{RunSuspendedClientTool, RunSuspendedStepPartial, RunSuspendedAwaitingChildren} {
		_, _, err := suspends(status).Decide(runningView())
		refused(t, err, fault.Invalid, "OUTCOME_INVALID")
	}
	_, _, err := suspends(RunSuspendedAwaitingChildren, Call{CallID: "c"}).Decide(runningView())
	refused(t, err, fault.Invalid, "OUTCOME_INVALID")
	consumes := suspends(RunSuspendedClientTool)
	consumes.Consume = []Consume{{"c", 1}}
	v := runningView()
	v.Calls = []Call{call("c").answeredBy(AnswerClient)}
	v.NamedCalls = v.Calls
	_, _, err = consumes.Decide(v)
	refused(t, err, fault.Invalid, "OUTCOME_INVALID")
	_, _, err = Finish{ClaimRef: ref, Outcome: Outcome{Status: RunSuspendedClientTool}}.Decide(runningView())
	refused(t, err, fault.Invalid, "OUTCOME_INVALID")
	_, _, err = suspends(RunSuspendedAwaitingChildren, childCall("lost")).Decide(runningView())
	refused(t, err, fault.Conflict, "CHILD_UNKNOWN")
	_, _, err = suspends(RunSuspendedAwaitingChildren, call("c")).Decide(runningView())
	refused(t, err, fault.Invalid, "OUTCOME_INVALID")
}

// An answer may come before the step that suspends. The step then continues the session.
func TestAnswersBeforeTheSuspensionContinueTheSession(t *testing.T) {
	t.Parallel()
	answered := runningView()
	answered.Calls = []Call{call("c").answeredBy(AnswerClient)}
	ended := runningView().withAwaitedChildren(map[string]Status{"k": Completed})
	open := runningView()
	open.Calls = []Call{call("c")}
	running := runningView().withAwaitedChildren(map[string]Status{"k": Active})
	awaits := suspends(RunSuspendedAwaitingChildren)
	for name, c := range map[string]struct {
		commit    Commit
		view      *View
		continues bool
	}{
		"the call was answered":  {suspends(RunSuspendedClientTool), answered, true},
		"the child has ended":    {awaits, ended, true},
		"the call is open":       {suspends(RunSuspendedClientTool), open, false},
		"the child has not":      {awaits, running, false},
		"one answered, one open": {suspends(RunSuspendedClientTool, Call{CallID: "d"}), answered, false},
	} {
		got := newFamily(c.view).run(t, "s", deciding(c.commit.Decide))["s"]
		if (got.NewRun != nil) != c.continues || (got.Session.Status == Active) != c.continues {
			t.Errorf("%s: got session %+v, new run %+v", name, got.Session, got.NewRun)
		}
		if got.Session.Version != 8 || got.Checkpoint.Status != Status(c.commit.Outcome.Status) || got.Runs[0].Status != c.commit.Outcome.Status {
			t.Errorf("%s: got session %+v, checkpoint %+v, run %+v", name, got.Session, got.Checkpoint, got.Runs[0])
		}
		if c.continues && (got.NewRun.Turn != 3 || got.NewRun.MessageID != "m" || got.Session.ExpiresAt != 0) {
			t.Errorf("%s: got new run %+v", name, got.NewRun)
		}
	}
}

func TestAStopDuringTheSuspendingStepTakesEffectWithIt(t *testing.T) {
	t.Parallel()
	for kind, want := range map[StopKind]Status{StopInterrupt: Interrupted, StopAbort: Failed} {
		v := runningView()
		v.Run.Stop = &Stop{Kind: kind, Reason: "enough"}
		change, _, err := suspends(RunSuspendedClientTool, Call{CallID: "c"}, Call{CallID: "d", Stash: []byte("x")}).Decide(v)
		must(t, err)
		s := change.Session
		if s.Status != want || s.Suspension != nil || change.Runs[0].Status != RunSuspendedClientTool {
			t.Errorf("%s: got session %+v, run %+v", kind, s, change.Runs[0])
		}
		if kind == StopInterrupt && (s.Interruption.Reason != "enough" || s.Interruption.RunID != "r" || len(change.NewCalls) != 2) {
			t.Errorf("%s: got %+v with calls %+v", kind, s.Interruption, change.NewCalls)
		}
		if kind == StopAbort && (s.Failure.Code != "framework_cancelled" || len(change.NewCalls) != 1 || len(change.DropCalls) != 0) {
			t.Errorf("%s: got %+v with calls %+v, dropped %v", kind, s.Failure, change.NewCalls, change.DropCalls)
		}
	}
}

func TestAStepConsumesOnlyTheAnswerThatItHasRead(t *testing.T) {
	t.Parallel()
	foreign := call("c").answeredBy(AnswerClient)
	foreign.SessionID = "cousin"
	for name, c := range map[string]struct {
		named  []Call
		kind   fault.Kind
		reason string
	}{
		"no such call":        {nil, fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"a cousin's call":     {[]Call{foreign}, fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"an open call":        {[]Call{call("c")}, fault.Conflict, "CALL_UNANSWERED"},
		"a consumed call":     {[]Call{call("c").answeredBy(AnswerClient).asConsumed()}, fault.Conflict, "CALL_CONSUMED"},
		"an answer that grew": {[]Call{call("c").answeredBy(AnswerTimeout).answeredBy(AnswerClient)}, fault.Stale, "ANSWER_CHANGED"},
	} {
		v := runningView()
		v.NamedCalls = c.named
		change, _, err := Commit{ClaimRef: ref, Step: 4, Consume: []Consume{{"c", 1}}}.Decide(v)
		if f, ok := fault.From(err); !ok || f.Kind != c.kind || f.Reason != c.reason || change != nil {
			t.Errorf("%s: got %+v, %v", name, change, err)
		}
	}
	v := runningView()
	v.NamedCalls = []Call{call("c").answeredBy(AnswerClient)}
	_, _, err := Commit{ClaimRef: ref, Step: 4, Consume: []Consume{{"c", 1}, {"c", 1}}}.Decide(v)
	refused(t, err, fault.Conflict, "CALL_CONSUMED")
	change, _, err := Commit{ClaimRef: ref, Step: 4, Consume: []Consume{{"c", 1}}, Now: 50}.Decide(v)
	must(t, err)
	if len(change.Calls) != 1 || change.Calls[0].ConsumedAt != 50 || change.Calls[0].Answer != AnswerClient {
		t.Errorf("got %+v", change.Calls)
	}
}

func TestACallIDIsUniqueInAFamily(t *testing.T) {
	t.Parallel()
	cousins := call("c").asConsumed()
	cousins.SessionID = "cousin"
	v := runningView()
	v.NamedCalls = []Call{cousins}
	_, _, err := suspends(RunSuspendedClientTool, Call{CallID: "c"}).Decide(v)
	refused(t, err, fault.Conflict, "CALL_EXISTS")
	_, _, err = suspends(RunSuspendedClientTool, Call{CallID: "d"}, Call{CallID: "d"}).Decide(runningView())
	refused(t, err, fault.Conflict, "CALL_EXISTS")
}

func TestAFailedRunDropsItsOpenCalls(t *testing.T) {
	t.Parallel()
	others, stashed := call("others"), call("stashed")
	others.RunID, stashed.Stash = "r0", []byte("a message")
	calls := []Call{call("open"), call("answered").answeredBy(AnswerClient), others, stashed}
	v := runningView()
	v.Calls = calls
	v.Session.Interruption = &Interruption{RunID: "r"}
	finish, _, err := Finish{ClaimRef: ref, Outcome: Outcome{Status: RunFailed}}.Decide(v)
	must(t, err)
	commit, _, err := Commit{ClaimRef: ref, Step: 4, Outcome: &Outcome{Status: RunFailed}, Calls: []Call{{CallID: "new"}}}.Decide(v)
	must(t, err)
	for name, change := range map[string]*Change{"finish": finish, "commit": commit} {
		if len(change.DropCalls) != 1 || change.DropCalls[0] != "open" || len(change.NewCalls) != 0 || change.Session.Interruption != nil {
			t.Errorf("%s: got dropped %v, new %v, %+v", name, change.DropCalls, change.NewCalls, change.Session.Interruption)
		}
	}
	completed, _, err := Finish{ClaimRef: ref, Outcome: Outcome{Status: RunCompleted}}.Decide(v)
	if err != nil || len(completed.DropCalls) != 0 {
		t.Errorf("completed: got dropped %v, %v", completed.DropCalls, err)
	}
}

func TestAnInterruptedSessionHasTheReason(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Run.Stop = &Stop{Kind: StopInterrupt, Reason: "lunch"}
	change, _, err := Finish{ClaimRef: ref, Outcome: Outcome{Status: RunInterrupted}, Now: 50}.Decide(v)
	must(t, err)
	if got := change.Session.Interruption; got == nil || *got != (Interruption{"r", "lunch", 50}) {
		t.Errorf("got %+v", got)
	}
}

func TestAStepOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	_, _, err := Commit{ClaimRef: ref, Step: 4, ExpectedVersion: 6}.Decide(runningView())
	f := refused(t, err, fault.Stale, "VERSION_STALE")
	if f.Meta["currentVersion"] != "7" || f.Meta["sessionId"] != "s" {
		t.Errorf("got %v", f.Meta)
	}
	_, _, err = Commit{ClaimRef: ref, Step: 4, ExpectedVersion: 7}.Decide(runningView())
	must(t, err)
}

func TestARepeatedCommitReturnsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Session.StepCount, v.Session.Version = 4, 8
	v.Checkpoint = &Checkpoint{ID: "cp", RunID: "r", Step: 4, Epoch: 4}
	// The messages, calls and answers are written already, by the first commit.
	v.TakenIDs, v.NamedCalls = []string{"m"}, []Call{call("c").answeredBy(AnswerClient).asConsumed(), call("d")}
	change, got, err := Commit{
		ClaimRef: ref, Step: 4, ExpectedVersion: 7, Messages: []Message{{ID: "m"}}, Calls: []Call{{CallID: "d"}}, Consume: []Consume{{"c", 1}},
	}.Decide(v)
	if err != nil || change != nil || got.ID != "cp" {
		t.Errorf("got %+v, %+v, %v", change, got, err)
	}
}

func TestACommittedStepResetsTheLosses(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Run.Losses, v.OwnerUnregistered = 2, true
	requeued, err := RequeueSilent{}.Decide(v)
	if err != nil || requeued.Runs[0].Losses != 3 || requeued.Runs[0].Status != RunQueued {
		t.Errorf("got %+v, %v", requeued.Runs, err)
	}
	committed, _, err := Commit{ClaimRef: ref, Step: 4}.Decide(v)
	if err != nil || committed.Runs[0].Losses != 0 {
		t.Errorf("got %+v, %v", committed.Runs, err)
	}
}

func TestAFinishKeepsTheUsageOfTheJournalAndItsOwn(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Journal = &Journal{Step: 4, Usage: []Usage{{Model: "plan"}}}
	change, _, err := Finish{ClaimRef: ref, Outcome: Outcome{Status: RunCompleted}, Usage: []Usage{{Model: "own"}}}.Decide(v)
	must(t, err)
	if len(change.Usage) != 2 || change.Usage[0].Model != "plan" || change.Usage[1].Model != "own" || change.Usage[1].Position != 1 || !change.ClearJournal {
		t.Errorf("got %+v", change.Usage)
	}
}
