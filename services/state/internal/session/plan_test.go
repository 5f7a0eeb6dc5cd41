package session

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func appends(key, value string) StateOp { return StateOp{Key: key, Kind: OpAppend, Value: value} }

// viewWithRecordedPlan returns a session with a recorded plan that has state writes.
func viewWithRecordedPlan(t *testing.T) *View {
	t.Helper()
	v := runningView()
	c := RecordPlan{ClaimRef: ref, Step: 4, Body: []byte("p"), CallIDs: []string{"a", "b"}, Ops: []StateOp{appends("log", `["plan"]`)}, Limits: Limits{State: 100}}
	if !c.Need().State || (RecordPlan{}).Need().State {
		t.Error("a plan asks for the state that it writes to, and for no other")
	}
	change, err := c.Decide(v)
	must(t, err)
	v.Journal = change.Plan
	return v
}

func TestACommitAppliesTheWritesOfResultsAndItsOwnButNotThoseOfThePlan(t *testing.T) {
	t.Parallel()
	v := viewWithRecordedPlan(t)
	for _, id := range []string{"b", "a"} {
		v.Journal.Results = append(v.Journal.Results, Result{CallID: id, Ops: []StateOp{appends("log", `["`+id+`"]`)}})
	}
	if !v.Journal.HasStateWrites() {
		t.Error("the journal does not write")
	}
	change, _, err := Commit{ClaimRef: ref, Step: 4, Ops: []StateOp{appends("log", `["own"]`)}, Limits: Limits{State: 100}}.Decide(v)
	must(t, err)
	if want := `{"log":["a","b","own"]}`; change.Session.State != want || !change.ClearJournal {
		t.Errorf("got the state %s, want %s", change.Session.State, want)
	}
}

func TestACommitWithoutWritesLeavesTheStateAlone(t *testing.T) {
	t.Parallel()
	v := viewWithRecordedPlan(t)
	if v.Journal.HasStateWrites() {
		t.Error("the journal writes without a result")
	}
	change, _, err := Commit{ClaimRef: ref, Step: 4, Limits: Limits{State: 100}}.Decide(v)
	must(t, err)
	if s := change.Session; s.State != "{}" || s.StateVersion != 1 || change.NewState || len(change.StateWrite) > 0 {
		t.Errorf("got %+v", change)
	}
}

func TestTheWritesOfAPlanCountAgainstTheLimitOfTheState(t *testing.T) {
	t.Parallel()
	large := StateOp{Key: "k", Kind: OpReplace, Value: `"` + strings.Repeat("x", 90) + `"`}
	c := RecordPlan{ClaimRef: ref, Step: 4, Body: []byte("p"), Ops: []StateOp{large}, Limits: Limits{State: 100}}
	change, err := c.Decide(runningView())
	must(t, err)
	if !slices.Equal(change.Plan.Ops, c.Ops) {
		t.Errorf("got %+v", change.Plan)
	}
	c.Limits.State = 50
	_, err = c.Decide(runningView())
	f := refused(t, err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
	if f.Meta["changedKeys"] != "k" {
		t.Errorf("got metadata %v", f.Meta)
	}
	result := RecordResult{ClaimRef: ref, Step: 4, Result: Result{CallID: "a", Ops: []StateOp{large}}, Limits: Limits{State: 100, Journal: 1000}}
	_, _, err = result.Decide(viewWithRecordedPlan(t))
	refused(t, err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
}

func TestARepeatedPlanWithOtherWritesChangesNothing(t *testing.T) {
	t.Parallel()
	v := viewWithRecordedPlan(t)
	for _, ops := range [][]StateOp{nil, {appends("log", `["other"]`)}, {{Key: "k", Kind: OpReplace, Value: `"` + strings.Repeat("x", 90) + `"`}}} {
		change, err := RecordPlan{ClaimRef: ref, Step: 4, Body: []byte("p"), Ops: ops, Limits: Limits{State: 50}}.Decide(v)
		if change != nil || err != nil {
			t.Errorf("got %+v, %v", change, err)
		}
	}
	_, err := RecordPlan{ClaimRef: ref, Step: 4, Body: []byte("q"), Ops: v.Journal.Ops, Limits: Limits{State: 100}}.Decide(v)
	refused(t, err, fault.Stale, "PLAN_EXISTS")
}

func TestARunThatEndsOutsideOfAStepDropsTheWritesOfItsPlan(t *testing.T) {
	t.Parallel()
	change, _, err := Finish{ClaimRef: ref, Outcome: Outcome{Status: RunCompleted}}.Decide(viewWithRecordedPlan(t))
	must(t, err)
	if change.Session.State != "{}" || !change.ClearJournal {
		t.Errorf("got %+v", change)
	}
}
