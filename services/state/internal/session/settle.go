package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// Settle records that the terminal record of a finished run is in the stream.
// A repetition under the same epoch changes nothing, even if the session's next
// run was claimed since.
//
// The session's next run may have been started before: its chunks come after
// the terminal record, and so its start is raised to that.
//
// Faults: those of every write, Conflict (RUN_NOT_FINISHED).
type Settle struct {
	Ref
	Sequence int64
	Now      Millis
}

// Need says what Decide wants to see.
func (c Settle) Need() Need { return Need{RunID: c.RunID, Open: true} }

// Decide settles the run.
func (c Settle) Decide(v *View) (*Change, error) {
	if c.settled(v) {
		return nil, nil
	}
	if err := c.owns(v); err != nil {
		return nil, err
	}
	if !v.Run.Status.Over() {
		return nil, fault.New(fault.Conflict, "RUN_NOT_FINISHED", "run %q is %s; commit its outcome before settling it", c.RunID, v.Run.Status)
	}
	s, r := *v.Session, *v.Run
	s.StreamSequence = max(s.StreamSequence, c.Sequence)
	s.StreamStep = s.StepCount
	s.UpdatedAt = c.Now
	r.Settled = true
	r.ExecutorID = ""
	runs := []Run{r}
	if next := v.Live; next != nil && next.StartSequence < s.StreamSequence {
		raised := *next
		raised.StartSequence = s.StreamSequence
		runs = append(runs, raised)
	}
	return &Change{Session: &s, Runs: runs}, nil
}
