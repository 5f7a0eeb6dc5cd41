package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestAnUpdateChangesOnlyTheGivenProperties(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Session.Tags, v.Session.UserID, v.Session.ExpiresAt = []string{"old"}, "u", 5
	tags, metadata, organization, never := []string{}, map[string]string{"k": "v"}, "o", Millis(0)
	change, version, err := UpdateSession{Key: sessionKey, Tags: &tags, Metadata: &metadata, OrganizationID: &organization, ExpiresAt: &never, ExpectedVersion: 7, Now: 50}.Decide(v)
	must(t, err)
	s := change.Session
	if version != 8 || s.Version != 8 || len(s.Tags) != 0 || s.Metadata["k"] != "v" || s.OrganizationID != "o" || s.UserID != "u" || s.ExpiresAt != 0 || s.UpdatedAt != 50 {
		t.Errorf("got %+v", s)
	}
}

func TestAWriteOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	v := runningView()
	_, _, save := SaveState{Key: sessionKey, ExpectedVersion: 6}.Decide(v)
	_, _, merge := MergeState{Key: sessionKey, ExpectedVersion: 6}.Decide(v)
	_, _, update := UpdateSession{Key: sessionKey, ExpectedVersion: 6}.Decide(v)
	for _, err := range []error{save, merge, update} {
		if f := refused(t, err, fault.Stale, "VERSION_STALE"); f.Meta["currentVersion"] != "7" || f.Meta["sessionId"] != "s" {
			t.Errorf("got %v", f.Meta)
		}
	}
}

func TestACommandOnAnUnknownSessionIsNotFound(t *testing.T) {
	t.Parallel()
	v := &View{}
	_, _, save := SaveState{Key: sessionKey}.Decide(v)
	_, _, merge := MergeState{Key: sessionKey}.Decide(v)
	_, _, update := UpdateSession{Key: sessionKey}.Decide(v)
	_, _, add := AppendMessages{Key: sessionKey}.Decide(v)
	_, _, truncate := Truncate{Key: sessionKey}.Decide(v)
	_, _, rewind := RewindTo{Key: sessionKey}.Decide(v)
	_, _, timeout := TimeoutCalls{Key: sessionKey}.Decide(v)
	_, gone := DeleteSession{Key: sessionKey}.Decide(v)
	usage := func() error { _, err := RecordUsage{Key: sessionKey}.Decide(v); return err }()
	for _, err := range []error{save, merge, update, add, truncate, rewind, timeout, gone, usage} {
		refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
	}
}

func TestUsageOutsideOfStepsIsAppended(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.Session.UsageCount = 4
	change, err := RecordUsage{Key: sessionKey, RunID: "r", Usage: []Usage{{Kind: UsageCustom}, {Kind: UsageTool}}, Now: 50}.Decide(v)
	must(t, err)
	if s := change.Session; s.UsageCount != 6 || s.Version != 7 {
		t.Errorf("got %+v", s)
	}
	if u := change.Usage; len(u) != 2 || u[0].Position != 4 || u[1].Position != 5 || u[0].Step != 0 || u[0].RunID != "r" || u[0].At != 50 {
		t.Errorf("got %+v", u)
	}
	if change, err := (RecordUsage{Key: sessionKey}).Decide(v); err != nil || change != nil {
		t.Errorf("nothing: got %+v, %v", change, err)
	}
}

func TestADelayedRunIsNotClaimedBeforeItsTime(t *testing.T) {
	t.Parallel()
	for delay, due := range map[Millis]Millis{0: 0, 30: 80} {
		v := runningView()
		v.Run.DueAt = 20
		change, err := Release{ClaimRef: ref, Delay: delay, Now: 50}.Decide(v)
		if err != nil || change.Runs[0].DueAt != due || change.Runs[0].Status != RunQueued {
			t.Errorf("got %+v, %v; want it due at %d", change.Runs, err, due)
		}
	}
	v := runningView()
	v.Run.Status, v.Run.DueAt = RunQueued, 80
	if change, err := (Claim{ExecutorID: "e", Now: 79}).Decide(v); err != nil || change != nil {
		t.Errorf("early: got %+v, %v", change, err)
	}
	if change, err := (Claim{ExecutorID: "e", Now: 80}).Decide(v); err != nil || change == nil {
		t.Errorf("on time: got %+v, %v", change, err)
	}
}
