package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestAForcedEndMakesTheOwnerStale(t *testing.T) {
	t.Parallel()
	for status, run := range map[Status]RunStatus{Completed: RunCompleted, Failed: RunFailed, Interrupted: RunInterrupted, Paused: RunInterrupted} {
		v := runningView()
		v.Journal = &Journal{Step: 4, Usage: []Usage{{Model: "m"}}}
		v.Calls = []Call{call("open"), call("answered").answeredBy(AnswerClient)}
		change, got, err := SetStatus{Key: sessionKey, Status: status, Failure: &Failure{Error: "e"}, Now: 50}.Decide(v)
		must(t, err)
		s, r := change.Session, change.Runs[0]
		if !got.OK || got.Version != 8 || got.Status != status || s.Status != status || s.Version != 8 || s.Epoch != 5 {
			t.Errorf("%s: got %+v and session %+v", status, got, s)
		}
		if r.Status != run || r.Outcome.Status != run || r.ExecutorID != "" || r.FinishVersion != 8 || r.CompletedAt != 50 {
			t.Errorf("%s: got run %+v", status, r)
		}
		if !change.ClearJournal || len(change.Usage) != 1 {
			t.Errorf("%s: got usage %+v", status, change.Usage)
		}
		if (status == Failed) != (len(change.DropCalls) == 1) || (status == Failed) != (s.Failure != nil) || (status == Interrupted) != (s.Interruption != nil) {
			t.Errorf("%s: got dropped %v, %+v, %+v", status, change.DropCalls, s.Failure, s.Interruption)
		}
		v.Session, v.Run, v.Live = s, &r, nil
		_, _, err = Commit{ClaimRef: ref, Step: 4}.Decide(v)
		refused(t, err, fault.Stale, "EPOCH_STALE")
		_, _, err = Finish{ClaimRef: ref, Outcome: Outcome{Status: run, Failure: s.Failure}}.Decide(v)
		refused(t, err, fault.Stale, "EPOCH_STALE")
	}
}

func TestASuspendedRunStaysAsItIsWhenItsSessionIsEnded(t *testing.T) {
	t.Parallel()
	change, _, err := SetStatus{Key: sessionKey, Status: Failed, Failure: &Failure{Error: "e"}}.Decide(suspendedView(call("c")))
	must(t, err)
	if s := change.Session; len(change.Runs) != 0 || s.Epoch != 4 || s.Suspension != nil || s.Status != Failed || change.DropCalls[0] != "c" {
		t.Errorf("got %+v with session %+v", change, s)
	}
}

func TestSetStatusComparesAndReturnsTheStatusFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expected []Status
		version  int64
		ok       bool
	}{
		"anything":              {nil, 0, true},
		"the status":            {[]Status{Paused, Active}, 0, true},
		"the status, a version": {[]Status{Active}, 7, true},
		"another status":        {[]Status{Paused}, 7, false},
		"another version":       {[]Status{Active}, 6, false},
	} {
		change, got, err := SetStatus{Key: sessionKey, Expected: c.expected, ExpectedVersion: c.version, Status: Paused}.Decide(runningView())
		must(t, err)
		if got.OK != c.ok || (change != nil) != c.ok || !c.ok && (got.Version != 7 || got.Status != Active) {
			t.Errorf("%s: got %+v and %+v", name, got, change)
		}
	}
}

func TestOnlyAHostsStatusesCanBeSet(t *testing.T) {
	t.Parallel()
	for _, status := range []Status{Active, SuspendedClientTool, SuspendedAwaitingChildren, SuspendedStepPartial, "", "odd"} {
		_, _, err := SetStatus{Key: sessionKey, Status: status}.Decide(runningView())
		refused(t, err, fault.Invalid, "STATUS_INVALID")
	}
	_, _, err := SetStatus{Key: sessionKey, Status: Failed}.Decide(runningView())
	refused(t, err, fault.Invalid, "FAILURE_MISSING")
	_, _, err = SetStatus{Key: sessionKey, Status: Paused}.Decide(&View{})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
}

func TestASessionExpiresWhenItIsDue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  Status
		expires Millis
		want    ExpiryResult
	}{
		"due":             {SuspendedClientTool, 50, ExpiryMarked},
		"not due":         {SuspendedClientTool, 51, ExpiryNotDue},
		"kept for ever":   {SuspendedClientTool, 0, ExpiryNotDue},
		"paused":          {Paused, 1, ExpiryMarked},
		"completed":       {Completed, 1, ExpiryAlreadyTerminal},
		"failed":          {Failed, 1, ExpiryAlreadyTerminal},
		"failed, not due": {Failed, 99, ExpiryAlreadyTerminal},
	} {
		v := suspendedView(call("c"))
		v.Session.Status, v.Session.ExpiresAt = c.status, c.expires
		change, got, err := Expire{Key: sessionKey, Now: 50}.Decide(v)
		must(t, err)
		if got != c.want || (change != nil) != (c.want == ExpiryMarked) {
			t.Errorf("%s: got %s and %+v", name, got, change)
		}
		if change != nil && (change.Session.Failure.Reason != SessionExpired || change.Session.Failure.Code != "session_expired" || change.Session.Status != Failed) {
			t.Errorf("%s: got session %+v", name, change.Session)
		}
	}
	_, _, err := Expire{Key: sessionKey}.Decide(&View{})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
}
