package session

import "testing"

// The store finds due runs without a lock and locks them afterwards, so a command checks them
// once more.
func TestARunThatIsNoLongerDueIsSkipped(t *testing.T) {
	t.Parallel()
	s := &Session{Epoch: 4}
	run := func(status RunStatus, executor string) *Run {
		return &Run{RunID: "r", Status: status, ExecutorID: executor, ClaimedAt: 100}
	}
	claim := Claim{ExecutorID: "e"}.Decide
	orphaned := ClaimOrphaned{Claim: Claim{ExecutorID: "e", Now: 50}}.Decide
	stopped, overdue, inTime := run(RunQueued, ""), run(RunQueued, ""), run(RunQueued, "")
	stopped.Stop, overdue.DeadlineAt, inTime.DeadlineAt = &Stop{Kind: StopAbort}, 50, 51
	silent, lost := RequeueSilent{}.Decide, RequeueLost{ExecutorID: "e", HeldRunIDs: []string{"held"}, ClaimedBefore: 101}.Decide
	held := run(RunRunning, "e")
	held.RunID = "held"
	for name, c := range map[string]struct {
		decide func(*View) (*Change, error)
		view   View
		due    bool
	}{
		"a queued run":                       {claim, View{Session: s, Run: run(RunQueued, "")}, true},
		"a run that was claimed":             {claim, View{Session: s, Run: run(RunRunning, "x")}, false},
		"a deleted run":                      {claim, View{Session: s}, false},
		"an orphan that is to stop":          {orphaned, View{Session: s, Run: stopped}, true},
		"an orphan past its deadline":        {orphaned, View{Session: s, Run: overdue}, true},
		"an orphan in time":                  {orphaned, View{Session: s, Run: inTime}, false},
		"an orphan that waits for its agent": {orphaned, View{Session: s, Run: run(RunQueued, "")}, false},
		"an ended orphan":                    {orphaned, View{Session: s, Run: run(RunFailed, "x")}, false},
		"a deleted orphan":                   {orphaned, View{Session: s}, false},
		"a run of a silent executor":         {silent, View{Session: s, Run: run(RunRunning, "x"), OwnerUnregistered: true}, true},
		"a run of one that lives":            {silent, View{Session: s, Run: run(RunRunning, "x")}, false},
		"an ended run of a silent one":       {silent, View{Session: s, Run: run(RunFailed, "x"), OwnerUnregistered: true}, false},
		"a lost claim":                       {lost, View{Session: s, Run: run(RunRunning, "e")}, true},
		"a claim of another executor":        {lost, View{Session: s, Run: run(RunRunning, "x")}, false},
		"a claim that is held":               {lost, View{Session: s, Run: held}, false},
		"a claim that was released":          {lost, View{Session: s, Run: run(RunQueued, "")}, false},
	} {
		change, err := c.decide(&c.view)
		if err != nil || (change != nil) != c.due {
			t.Errorf("%s: got change %+v, %v; want one: %v", name, change, err, c.due)
		}
	}
	fresh := RequeueLost{ExecutorID: "e", ClaimedBefore: 100}.Decide
	if change, err := fresh(&View{Session: s, Run: run(RunRunning, "e")}); err != nil || change != nil {
		t.Errorf("a fresh claim: got change %+v, %v; want none", change, err)
	}
}

func TestARunUnknownToItsExecutorIsCountedAsLost(t *testing.T) {
	t.Parallel()
	lost := RequeueLost{ExecutorID: "e", ClaimedBefore: 100}.Decide
	v := runningView()
	v.Run.Losses = 2
	if change, err := lost(v); err != nil || change.Runs[0].Losses != 3 || change.Runs[0].Status != RunQueued {
		t.Errorf("got %+v, %v", change, err)
	}
	v = runningView()
	v.Run.Status = RunCompleted
	if change, err := lost(v); err != nil || change != nil {
		t.Errorf("got %+v, %v of a run that has ended", change, err)
	}
}
