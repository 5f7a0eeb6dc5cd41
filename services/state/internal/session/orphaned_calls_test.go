package session

import "testing"

// afterFailure returns the running session with an orphaned call of a failed run.
func afterFailure(t *testing.T) *View {
	t.Helper()
	stashed, plain := call("stashed"), call("plain")
	stashed.Stash = []byte("a message")
	v := runningView()
	v.Calls = []Call{plain, stashed}
	change, _, err := Finish{ClaimRef: ref, Outcome: Outcome{Status: RunFailed}}.Decide(v)
	must(t, err)
	if len(change.DropCalls) != 1 || change.DropCalls[0] != "plain" || len(change.Calls) != 1 || change.Calls[0].RunID != "" {
		t.Fatalf("dropped %v, wrote %+v", change.DropCalls, change.Calls)
	}
	v = runningView()
	v.Calls = change.Calls
	return v
}

// suspendOn suspends the run on the calls, or on the existing ones, and returns the view
// afterwards.
func suspendOn(t *testing.T, v *View, calls ...Call) *View {
	t.Helper()
	c := suspends(RunSuspendedClientTool, calls...)
	change, _, err := c.Decide(v)
	must(t, err)
	after := suspendedView(change.unconsumedCalls(v)...)
	after.Session = change.Session
	return after
}

func continuesAfterAnswer(t *testing.T, v *View, callID string) bool {
	t.Helper()
	change, got, err := Submit{Key: sessionKey, CallID: callID, Kind: ClientTool, NewRunID: "next", Now: 60}.Decide(v)
	must(t, err)
	return change.NewRun != nil && got.Continuation == ContinueNewRun
}

func TestNoLaterSuspensionWaitsForAnOrphanedCall(t *testing.T) {
	t.Parallel()
	if !continuesAfterAnswer(t, suspendOn(t, afterFailure(t), Call{CallID: "own", Kind: ClientTool}), "own") {
		t.Error("the session waits for an orphaned call")
	}
	waiting := afterFailure(t).withAwaitedChildren(map[string]Status{"k": Active})
	waiting.Session.Status, waiting.Live = SuspendedAwaitingChildren, nil
	if got := newFamily(waiting, childView("k", "s")).run(t, "k", finishAs("k", RunCompleted)); got["s"].NewRun == nil {
		t.Error("the end of the last child does not continue the session")
	}
	waiting = afterFailure(t).withAwaitedChildren(map[string]Status{"k": Completed})
	waiting.Session.Status, waiting.Live = SuspendedAwaitingChildren, nil
	if _, _, err := (Resume{RunRequest: RunRequest{Key: sessionKey, RunID: "next"}}).Decide(waiting); err != nil {
		t.Errorf("resume of a session that waits for no call: %v", err)
	}
}

func TestARunMaySuspendOnOrphanedCallsAlone(t *testing.T) {
	t.Parallel()
	left := newFamily(afterFailure(t)).run(t, "s", deciding(suspends(RunSuspendedClientTool).Decide))["s"]
	if left.NewRun != nil || left.Session.Status != SuspendedClientTool {
		t.Errorf("the session does not wait for what its run suspended on: %+v", left.Session)
	}
	if !continuesAfterAnswer(t, suspendOn(t, afterFailure(t)), "stashed") {
		t.Error("the call that a failed run left behind does not continue the session that waits for it alone")
	}
	v := runningView() // resumed after an interrupt of run "r0" with two open calls
	for _, id := range []string{"c", "d"} {
		left := call(id)
		left.RunID, left.Stash = "r0", []byte("a message")
		v.Calls = append(v.Calls, left)
	}
	again := suspendOn(t, v)
	if continuesAfterAnswer(t, again, "c") {
		t.Error("the session continues before its last answer")
	}
	again.Calls[0] = again.Calls[0].answeredBy(AnswerClient)
	if !continuesAfterAnswer(t, again, "d") {
		t.Error("the last answer does not continue the session")
	}
}

func TestAnAbortedSessionOrphansItsStashedCalls(t *testing.T) {
	t.Parallel()
	stashed := call("stashed")
	stashed.Stash = []byte("a message")
	change, _, err := stop(StopAbort, "").Decide(suspendedView(stashed))
	must(t, err)
	if len(change.DropCalls) != 0 || len(change.Calls) != 1 || change.Calls[0].RunID != "" || string(change.Calls[0].Stash) != "a message" {
		t.Errorf("dropped %v, wrote %+v", change.DropCalls, change.Calls)
	}
}
