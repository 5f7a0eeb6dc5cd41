package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/position"
)

func TestACommitEndsItsStepAndTheRunThatEndsWithIt(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Session.Claims = 3
	commit := Commit{ClaimRef: ref, Step: 4, CheckpointID: "cp", Record: []byte("seen"), Limits: Limits{State: 1000}, Now: 100}
	change, answer, err := commit.Decide(v)
	must(t, err)
	if s, r := change.Session, change.Runs[0]; s.Position != position.Committed(4) || s.Claims != 0 || r.EndPosition != 0 {
		t.Errorf("got the session at %d with %d claims, the run's end %d", s.Position, s.Claims, r.EndPosition)
	}
	if string(change.Checkpoint.Record) != "seen" || answer.Record != nil {
		t.Errorf("got record %q, and %q in the answer; want it written alone", change.Checkpoint.Record, answer.Record)
	}
	commit.Outcome = &Outcome{Status: RunCompleted, Usage: &Tokens{Total: 7}}
	change, _, err = commit.Decide(v)
	must(t, err)
	if s, r := change.Session, change.Runs[0]; s.Position != position.Ended(4) || s.Claims != 0 || r.EndPosition != position.Ended(4) || *r.Outcome.Usage != (Tokens{Total: 7}) {
		t.Errorf("got the session at %d with %d claims, the run's end %d with usage %+v", s.Position, s.Claims, r.EndPosition, *r.Outcome.Usage)
	}
}

func TestAClaimRaisesTheClaimsByOne(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Run.Status, v.Run.ExecutorID, v.Session.Claims = RunQueued, "", 2
	change, err := Claim{ExecutorID: "e"}.Decide(v)
	must(t, err)
	if s := change.Session; s.Claims != 3 || s.Position != v.Session.Position {
		t.Errorf("got %d claims at %d, want 3 where it was", s.Claims, s.Position)
	}
}

func TestAForcedEndMovesThePositionOnlyIfARunEnds(t *testing.T) {
	t.Parallel()
	fail := SetStatus{Key: sessionKey, Status: Failed, Failure: &Failure{Error: "e"}, Now: 100}
	v := runningView()
	v.Session.Position, v.Session.Claims = position.Committed(3), 2
	change, _, err := fail.Decide(v)
	must(t, err)
	if s, r, want := change.Session, change.Runs[0], position.OutsideStep(4, 2); s.Position != want || r.EndPosition != want || s.Claims != 3 {
		t.Errorf("got the session at %d with %d claims, the run's end %d; want %d and 3", s.Position, s.Claims, r.EndPosition, want)
	}
	v = suspendedView(call("c"))
	v.Session.Position = position.Ended(3)
	change, _, err = fail.Decide(v)
	must(t, err)
	if s := change.Session; s.Position != position.Ended(3) || s.Claims != 0 {
		t.Errorf("got a suspended session at %d with %d claims, want it where it was", s.Position, s.Claims)
	}
}

func TestARewindMovesThePositionToTheLastRemainingStep(t *testing.T) {
	t.Parallel()
	rest := func() *View {
		v := runningView()
		v.Session.Status, v.Session.Position, v.Session.Claims = Completed, position.OutsideStep(4, 5), 6
		v.Live, v.Run, v.Checkpoint, v.CheckpointState = nil, nil, &Checkpoint{ID: "cp2", Step: 2, MessageCount: 4, StateVersion: 1, StateBase: 1}, "{}"
		return v
	}
	rewound, _, err := RewindTo{Key: sessionKey, CheckpointID: "cp2"}.Decide(rest())
	must(t, err)
	truncated, _, err := Truncate{Key: sessionKey, Messages: 4}.Decide(rest())
	must(t, err)
	none := rest()
	none.Checkpoint = nil
	emptied, _, err := Truncate{Key: sessionKey}.Decide(none)
	must(t, err)
	for name, c := range map[string]struct {
		got  *Session
		want int64
	}{"rewound": {rewound.Session, position.Ended(2)}, "truncated": {truncated.Session, position.Ended(2)}, "emptied": {emptied.Session, 0}} {
		if c.got.Position != c.want || c.got.Claims != 6 || c.got.StepCount != 3 {
			t.Errorf("%s: got %+v, want it at %d with 6 claims", name, c.got, c.want)
		}
	}
}

func TestARunStartsAtThePositionOfItsSession(t *testing.T) {
	t.Parallel()
	v := undoableView()
	v.Session.Position, v.Session.Claims, v.FormerCheckpoint = position.Committed(3), 1, &Checkpoint{ID: "cp2", Step: 2}
	got := newFamily(v).run(t, "s", finishAs("s", RunInterrupted))["s"]
	if got.Dequeued.StartPosition != position.Ended(2) || got.Session.Position != position.Ended(2) || got.Runs[0].EndPosition != position.OutsideStep(4, 1) || got.Session.Claims != 2 {
		t.Errorf("got the session at %d with %d claims, a run that ends at %d and one that starts at %d",
			got.Session.Position, got.Session.Claims, got.Runs[0].EndPosition, got.Dequeued.StartPosition)
	}
	v = runningView().withWaitingRuns(BusyEnqueue)
	v.Session.Claims = 1
	got = newFamily(v).run(t, "s", finishAs("s", RunCompleted))["s"]
	if want := position.OutsideStep(4, 1); got.Dequeued.StartPosition != want || got.Session.Position != want {
		t.Errorf("got the session at %d and a run that starts at %d, want %d", got.Session.Position, got.Dequeued.StartPosition, want)
	}
}

func TestARunThatEndsWithASkippedStepIsUndoneWithItsOwnSteps(t *testing.T) {
	t.Parallel()
	v := undoableView() // its run has taken the last of three steps
	v.Session.Claims = position.MaxClaims
	got := newFamily(v).run(t, "s", finishAs("s", RunInterrupted))["s"]
	if got.Session.StepCount != 4 || len(got.Calls) != 1 || got.Calls[0].CallID != "late" {
		t.Errorf("got %d steps and the calls %+v, want 4 and only the late answer of an earlier run to be reported again", got.Session.StepCount, got.Calls)
	}
}
