package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// RecordResult records the result of a planned call, and writes to the private store with it. The first result of a call wins.
//
// Faults: as for ClaimRef, Stale (STEP_STALE), Conflict (CALL_UNKNOWN), TooLarge
// (STATE_SIZE_EXCEEDED, RESULT_TOO_LARGE, STORE_FULL, STORE_STEP_TOO_LARGE), Invalid (STORE_NUMBER_INVALID).
type RecordResult struct {
	ClaimRef
	Step   int32
	Result Result
	Store  []StoreWrite // at most one for each key
	Limits Limits
}

// Limits bounds what a session stores, in bytes except for Waiting.
type Limits struct {
	State   int // the custom state as JSON
	Journal int // one journal with its state writes and usage, since one response carries a claim
	Waiting int // number of waiting runs
	Tree    int // number of sessions of a tree that have not ended

	Store     int // keys and values of a private store
	StoreStep int // writes of one step to it
}

// Need lists the rows for Decide.
func (c RecordResult) Need() Need {
	return Need{RunID: c.RunID, Journal: true, State: len(c.Result.Ops) > 0, StoreKeys: storeKeys(c.Store)}
}

// Decide adds the result to the journal. repeated reports that the call has a result already.
func (c RecordResult) Decide(v *View) (change *Change, repeated bool, err error) {
	if err := c.checkRunning(v); err != nil {
		return nil, false, err
	}
	if err := checkStep(v, c.Step); err != nil {
		return nil, false, err
	}
	if v.Journal == nil || !slices.Contains(v.Journal.CallIDs, c.Result.CallID) {
		return nil, false, fault.New(fault.Conflict, "CALL_UNKNOWN",
			"the plan of step %d has no call %q; record the plan before its results", c.Step, c.Result.CallID)
	}
	if v.Journal.hasResult(c.Result.CallID) {
		return nil, true, nil
	}
	if err := c.checkSize(v); err != nil {
		return nil, false, err
	}
	c.Result.Stored = storeMarks(c.Store)
	change = &Change{Result: &c.Result, ResultAt: int32(len(v.Journal.Results))}
	if err := v.writeStore(change, c.Store, v.Journal.storedAfter(c.Result.CallID), c.Limits); err != nil {
		return nil, false, err
	}
	return change, false, nil
}

// checkSize refuses a result that would make the journal too large for a claim, or the step
// impossible to commit. The executor can still record a smaller one.
func (c RecordResult) checkSize(v *View) error {
	if size := v.Journal.bytes() + c.Result.bytes(); size > c.Limits.Journal {
		return fault.New(fault.TooLarge, "RESULT_TOO_LARGE",
			"step %d would have %d bytes with the state writes and the usage of its calls; the limit is %d: record a smaller result",
			c.Step, size, c.Limits.Journal).
			WithSizes(int64(size), int64(c.Limits.Journal))
	}
	if size := v.Journal.storedBytes() + StoreBytes(c.Store); len(c.Store) > 0 && size > int64(c.Limits.StoreStep) {
		return fault.New(fault.TooLarge, "STORE_STEP_TOO_LARGE",
			"step %d would write %d bytes to the store; the limit is %d: write less, or in a later step", c.Step, size, c.Limits.StoreStep).
			WithSizes(size, int64(c.Limits.StoreStep))
	}
	if len(c.Result.Ops) == 0 {
		return nil
	}
	staged := *v.Journal
	staged.Results = append(slices.Clone(staged.Results), c.Result)
	_, err := merge(v.Session.State, slices.Concat(staged.Ops, staged.resultOps()), c.Limits.State)
	return err
}
