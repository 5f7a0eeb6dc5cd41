package loop

// maxCarried limits a result that travels with the commit without a record, in bytes. The state service may
// refuse a larger one. A refused record becomes a failed result; a refused commit fails the run.
const maxCarried = 64 << 10

// Records reports whether the end of a call must be recorded before it becomes visible. last means that all
// other calls have ended. In a step without a plan, the plan must be recorded first.
//
// A new owner repeats a call without a record. Results with effects are therefore recorded, unless the commit
// follows at once, and so is that a result comes by callback: another system has the call then. Writes to the state and to
// the store are always recorded, because the state service may refuse them.
func (e RunCalls) Records(c Call, end Ended, last bool) bool {
	heavy := len(end.Ops)+len(end.Store) > 0 || len(end.Result.Result) > maxCarried
	switch {
	case c.Recorded:
		return false
	case end.Awaits != nil:
		return end.Awaits.isCallback() // a companion's record is its session
	case !e.Planned:
		return heavy && c.Tool != nil
	case heavy, !e.Carries:
		return true
	}
	return c.Tool != nil && !c.Tool.ReadOnly && !last
}
