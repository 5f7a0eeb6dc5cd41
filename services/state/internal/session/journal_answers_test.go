package session

import (
	"testing"
)

// drainingView returns a run whose journal has a result of the approved call "paid" and has
// begun another call. A third call waits outside of the journal.
func drainingView() *View {
	v := runningView()
	paid, begun, beside, open := call("paid").answeredBy(AnswerClient), call("begun").answeredBy(AnswerClient), call("beside").answeredBy(AnswerClient), call("open")
	v.Calls = []Call{paid, begun, beside, open}
	v.Journal = &Journal{Step: 4, CallIDs: []string{"paid", "begun", "open"}, Results: []Result{{CallID: "paid"}}}
	return v
}

func TestTheEndOfARunConsumesTheAnswersOfItsJournal(t *testing.T) {
	t.Parallel()
	forced := func(status Status) func(*View) *Change {
		return func(v *View) *Change { return forcedEnd{status: status, now: 50}.change(v) }
	}
	finished := func(status RunStatus) func(*View) *Change {
		return func(v *View) *Change {
			change, _, err := Finish{ClaimRef: ref, Outcome: Outcome{Status: status}, Now: 50}.Decide(v)
			must(t, err)
			return change
		}
	}
	for name, end := range map[string]func(*View) *Change{
		"failed": finished(RunFailed), "interrupted": finished(RunInterrupted),
		"set to failed": forced(Failed), "set to paused": forced(Paused),
	} {
		got := map[string]Call{}
		change := end(drainingView())
		for _, c := range change.Calls {
			got[c.CallID] = c
		}
		for _, id := range []string{"paid", "begun"} {
			if c := got[id]; c.ConsumedAt != 50 || c.ConsumedStep != 0 || c.Answer != AnswerClient {
				t.Errorf("%s: got %+v, want call %s consumed by no step", name, c, id)
			}
		}
		if len(got) != 2 || !change.ClearJournal {
			t.Errorf("%s: got %+v, want the others as they were", name, change)
		}
	}
}

func TestAnUndoKeepsTheAnswersConsumedByTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	v := drainingView()
	v.Run.Stop, v.Run.StartStateVersion = &Stop{Kind: StopInterrupt, Undo: true}, 1
	v.Session.Waiting, v.Session.CheckpointID = 1, "of the run"
	v.Waiting, v.WaitingInput = []WaitingRun{{Run: Run{RunID: "next", Status: RunWaiting, OnBusy: BusyRollback}}}, &RunInput{}
	v.FormerCheckpoint, v.StartState = &Checkpoint{ID: "former", Step: 3}, "{}"
	got := newFamily(v).run(t, "s", finishAs("s", RunInterrupted))["s"]
	consumed := 0
	for _, c := range got.Calls {
		if c.ConsumedAt != 0 {
			consumed++
		}
	}
	if consumed != 2 || got.Dequeued == nil || got.Session.CheckpointID != "former" {
		t.Errorf("got %+v with %d consumed, want both, and the checkpoint of the former run", got, consumed)
	}
}
