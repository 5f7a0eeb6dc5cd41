package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestTheStatusOfASessionDecidesWhetherARunMayStart(t *testing.T) {
	t.Parallel()
	for status, reason := range map[Status]string{
		Completed: "", Failed: "", Interrupted: "", Paused: "",
		Active:                    "SESSION_BUSY",
		SuspendedClientTool:       "SESSION_SUSPENDED",
		SuspendedAwaitingChildren: "SESSION_SUSPENDED",
		SuspendedStepPartial:      "SESSION_SUSPENDED",
	} {
		before := Session{Status: status, AgentType: "a", Turn: 3, Version: 7, StreamSequence: 40, Output: "1", Failure: &Failure{Error: "e"}}
		change, started, err := Start{RunID: "r"}.Decide(&View{Session: &before})
		if fault.ReasonOf(err) != reason {
			t.Errorf("%s: got %v, want %q", status, err, reason)
		}
		if reason != "" {
			continue
		}
		s := change.Session
		if s.Status != Active || s.Turn != 4 || s.Version != 8 || s.CurrentRunID != "r" || s.Output != "" || s.Failure != nil || change.NewState {
			t.Errorf("%s: got session %+v", status, s)
		}
		if started.Run.StartSequence != 40 || started.Run.Turn != 4 {
			t.Errorf("%s: got run %+v", status, started.Run)
		}
		if before.Status != status || before.Turn != 3 {
			t.Errorf("%s: the command changed what it was shown", status)
		}
	}
}
