package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// afterNextClaim returns the session after the change has ended run "r" and the next run was
// claimed.
func afterNextClaim(change *Change) *View {
	v := runningView()
	s, r := *change.Session, change.Runs[0]
	s.Epoch, s.Status, s.CurrentRunID = 5, Active, "next"
	next := &Run{RunID: "next", Status: RunRunning, Epoch: 5}
	v.Session, v.Run, v.Current, v.Live = &s, &r, next, next
	v.Checkpoint = change.Checkpoint
	return v
}

func TestTheEndOfARunCanBeRepeatedAfterTheNextClaim(t *testing.T) {
	t.Parallel()
	finish := Finish{ClaimRef: ref, Outcome: Outcome{Status: RunInterrupted, CompletionReason: "stop"}, Now: 50}
	change, finished, err := finish.Decide(runningView())
	must(t, err)
	after := afterNextClaim(change)
	if change, again, err := finish.Decide(after); err != nil || change != nil || again != finished {
		t.Errorf("finish: got %+v, %+v, %v", change, again, err)
	}
	commit := suspends(RunSuspendedClientTool, Call{CallID: "c"})
	change, checkpoint, err := commit.Decide(runningView())
	must(t, err)
	after = afterNextClaim(change)
	if change, again, err := commit.Decide(after); err != nil || change != nil || again.ID != checkpoint.ID || again.Version != checkpoint.Version {
		t.Errorf("commit: got %+v, %+v, %v", change, again, err)
	}
	after.Checkpoint = nil // the session was rewound
	if change, again, err := commit.Decide(after); err != nil || change != nil || again.ID != "" || again.Step != checkpoint.Step {
		t.Errorf("commit of an undone step: got %+v, %+v, %v", change, again, err)
	}
	after.Session.StepCount++ // the next run has committed a step
	_, _, err = commit.Decide(after)
	refused(t, err, fault.Stale, "EPOCH_STALE")
}

func TestAnotherEndIsStaleAfterTheNextClaim(t *testing.T) {
	t.Parallel()
	finish := Finish{ClaimRef: ref, Outcome: Outcome{Status: RunCompleted}}
	change, _, err := finish.Decide(runningView())
	must(t, err)
	after := afterNextClaim(change)
	other := finish
	other.Outcome.Output = "1"
	_, _, err = other.Decide(after)
	refused(t, err, fault.Stale, "EPOCH_STALE")
	after.Run.Epoch = 5 // another claim has ended it
	_, _, err = finish.Decide(after)
	refused(t, err, fault.Stale, "EPOCH_STALE")

	forced := forcedEnd{status: Interrupted, now: 50}.change(runningView())
	v := runningView()
	v.Session, v.Run, v.Live = forced.Session, &forced.Runs[0], nil
	_, _, err = Finish{ClaimRef: ref, Outcome: Outcome{Status: RunInterrupted}}.Decide(v)
	refused(t, err, fault.Stale, "EPOCH_STALE")
}

func TestARunStoppedSinceItsClaimIsNotDelayed(t *testing.T) {
	t.Parallel()
	for want, asked := range map[Millis][]*Stop{
		950: {nil, {Kind: StopInterrupt, At: 19}}, // the executor has seen the stop
		0:   {{Kind: StopInterrupt, At: 20}, {Kind: StopAbort, At: 30}},
	} {
		for _, stop := range asked {
			v := runningView()
			v.Run.Stop, v.Run.ClaimedAt = stop, 20
			change, err := Release{ClaimRef: ref, Delay: 900, Now: 50}.Decide(v)
			must(t, err)
			if due := change.Runs[0].DueAt; due != want {
				t.Errorf("stop %+v: due at %d, want %d", stop, due, want)
			}
		}
	}
}
