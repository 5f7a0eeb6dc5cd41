package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func stop(kind StopKind, runID string) RequestStop {
	return RequestStop{Key: sessionKey, RunID: runID, Kind: kind, Reason: "why", Now: 50}
}

func TestAStopOfALiveRunIsStoredWithTheRun(t *testing.T) {
	t.Parallel()
	for _, runID := range []string{"", "r"} {
		change, got, err := stop(StopInterrupt, runID).Decide(runningView())
		must(t, err)
		if got != (Stopped{"r", StopRequested}) || change.Session != nil || *change.Runs[0].Stop != (Stop{Kind: StopInterrupt, Reason: "why", At: 50}) {
			t.Errorf("got %+v and %+v", got, change)
		}
	}
}

func TestTheFirstStopWinsButAnAbortOutranksAnInterrupt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, second StopKind
		replaces      bool
	}{
		{StopInterrupt, StopInterrupt, false},
		{StopInterrupt, StopAbort, true},
		{StopAbort, StopInterrupt, false},
		{StopAbort, StopAbort, false},
	} {
		v := runningView()
		v.Live.Stop = &Stop{Kind: c.first, Reason: "first"}
		change, got, err := stop(c.second, "").Decide(v)
		must(t, err)
		if got.Effect != StopRequested || (change != nil) != c.replaces {
			t.Errorf("%s after %s: got %+v and %+v", c.second, c.first, got, change)
		}
		if v.Live.Stop.Reason != "first" {
			t.Errorf("%s after %s: the command changed what it was shown", c.second, c.first)
		}
	}
}

func TestADelayedRunThatIsStoppedIsDueAtOnce(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Live.Status, v.Live.DueAt = RunQueued, 900
	change, got, err := stop(StopInterrupt, "").Decide(v)
	if err != nil || got.Effect != StopRequested || change.Runs[0].DueAt != 0 || change.Runs[0].Status != RunQueued {
		t.Errorf("got %+v and %+v, %v", got, change, err)
	}
}

func TestAnIdleSessionIsStoppedAtOnce(t *testing.T) {
	t.Parallel()
	for _, status := range []Status{SuspendedClientTool, SuspendedAwaitingChildren, SuspendedStepPartial, Paused, Interrupted} {
		v := suspendedView(call("c"), call("answered").answeredBy(AnswerClient))
		v.Session.Status = status
		change, got, err := stop(StopAbort, "").Decide(v)
		must(t, err)
		s := change.Session
		if got != (Stopped{"r", StopDone}) || s.Status != Failed || s.Failure.Error != "The session was stopped." || s.Failure.Code != "framework_cancelled" {
			t.Errorf("abort of %s: got %+v and session %+v", status, got, s)
		}
		if s.Suspension != nil || s.Version != 8 || s.Epoch != 4 || len(change.DropCalls) != 1 || len(change.Runs) != 0 {
			t.Errorf("abort of %s: got session %+v, dropped %v, runs %v", status, s, change.DropCalls, change.Runs)
		}
		change, got, err = stop(StopInterrupt, "").Decide(v)
		must(t, err)
		if got.Effect != StopDone || status == Interrupted && change != nil {
			t.Errorf("interrupt of %s: got %+v and %+v", status, got, change)
		}
		if status == Interrupted {
			continue
		}
		if s := change.Session; s.Status != Interrupted || *s.Interruption != (Interruption{"r", "why", 50}) || s.Suspension != nil || len(change.DropCalls) != 0 {
			t.Errorf("interrupt of %s: got session %+v, dropped %v", status, s, change.DropCalls)
		}
	}
}

func TestARepeatedStopIsDone(t *testing.T) {
	t.Parallel()
	for kind, status := range map[StopKind]Status{StopInterrupt: Interrupted, StopAbort: Failed} {
		for _, runID := range []string{"", "r"} {
			v := suspendedView(call("c"))
			v.Run = v.Current
			change, _, err := stop(kind, runID).Decide(v)
			must(t, err)
			v.Session, v.Calls = change.Session, nil
			if v.Session.Status != status {
				t.Fatalf("%s: got %+v", kind, v.Session)
			}
			change, got, err := stop(kind, runID).Decide(v)
			if err != nil || change != nil || got != (Stopped{"r", StopDone}) {
				t.Errorf("%s of %q: got %+v and %+v, %v", kind, runID, got, change, err)
			}
			v.Run = &Run{RunID: "r0", Status: RunCompleted}
			if _, got, err := stop(kind, "r0").Decide(v); err != nil || got != (Stopped{"r0", StopNone}) {
				t.Errorf("%s of a former run: got %+v, %v", kind, got, err)
			}
		}
	}
	for kind, status := range map[StopKind]RunStatus{StopInterrupt: RunInterrupted, StopAbort: RunFailed} {
		v := runningView()
		v.Run.Stop = &Stop{Kind: kind}
		change, _, err := Finish{ClaimRef: ref, Outcome: Outcome{Status: status, Failure: &Failure{Error: "e", Code: codeCancelled}}}.Decide(v)
		must(t, err)
		v.Session, v.Run, v.Current, v.Live = change.Session, &change.Runs[0], &change.Runs[0], nil
		if _, got, err := stop(kind, "r").Decide(v); err != nil || got != (Stopped{"r", StopNone}) {
			t.Errorf("%s of a run that has seen its stop: got %+v, %v", kind, got, err)
		}
	}
	failed := suspendedView()
	failed.Session.Status, failed.Session.Failure, failed.Run = Failed, &Failure{Error: "of its own"}, failed.Current
	if _, got, err := stop(StopAbort, "r").Decide(failed); err != nil || got.Effect != StopNone {
		t.Errorf("of a run that failed by itself: got %+v, %v", got, err)
	}
}

func TestAStopNamesItsRun(t *testing.T) {
	t.Parallel()
	_, _, err := stop(StopAbort, "nobody").Decide(&View{Session: runningView().Session})
	refused(t, err, fault.NotFound, "RUN_NOT_FOUND")
	_, _, err = stop(StopAbort, "").Decide(&View{})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")

	former := runningView()
	former.Run = &Run{RunID: "r0", Status: RunSuspendedClientTool}
	over := suspendedView()
	over.Session.Status, over.Run = Completed, &Run{RunID: "r", Status: RunCompleted}
	for name, v := range map[string]*View{"r0": former, "r": over} {
		change, got, err := stop(StopAbort, name).Decide(v)
		if err != nil || change != nil || got != (Stopped{name, StopNone}) {
			t.Errorf("%s: got %+v and %+v, %v", name, got, change, err)
		}
	}
	if change, got, err := stop(StopAbort, "").Decide(over); err != nil || change != nil || got.Effect != StopNone {
		t.Errorf("of an ended session: got %+v and %+v, %v", got, change, err)
	}
	waiting := suspendedView(call("c"))
	waiting.Run = waiting.Current
	if change, got, err := stop(StopInterrupt, "r").Decide(waiting); err != nil || got != (Stopped{"r", StopDone}) || change.Session.Status != Interrupted {
		t.Errorf("of the run that the session waits with: got %+v and %+v, %v", got, change, err)
	}
}
