package session

import (
	"bytes"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// RecordPlan records the model's decision in the step in flight. A repeat of the same body writes
// nothing, even with other ops.
//
// Faults: as for ClaimRef, Stale (STEP_STALE, PLAN_EXISTS), TooLarge (STATE_SIZE_EXCEEDED).
type RecordPlan struct {
	ClaimRef
	Step    int32
	Body    []byte
	CallIDs []string
	Usage   []Usage
	Ops     []StateOp // state writes up to the plan
	Limits  Limits
}

// Need lists the rows for Decide.
func (c RecordPlan) Need() Need { return Need{RunID: c.RunID, Journal: true, State: len(c.Ops) > 0} }

// Decide begins the journal of the step with the plan.
func (c RecordPlan) Decide(v *View) (*Change, error) {
	if err := c.checkRunning(v); err != nil {
		return nil, err
	}
	if err := checkStep(v, c.Step); err != nil {
		return nil, err
	}
	if v.Journal != nil {
		if bytes.Equal(v.Journal.Plan, c.Body) {
			return nil, nil
		}
		return nil, fault.New(fault.Stale, "PLAN_EXISTS",
			"step %d has another plan already; read the journal and continue with its plan", c.Step)
	}
	if _, err := merge(v.Session.State, c.Ops, c.Limits.State); err != nil {
		return nil, err
	}
	plan := &Journal{Step: c.Step, Plan: c.Body, CallIDs: slices.Clone(c.CallIDs), Usage: c.Usage, Ops: c.Ops}
	return &Change{Plan: plan}, nil
}
