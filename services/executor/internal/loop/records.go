package loop

// maxCarried bounds a result that a commit carries without a record, in bytes. The state service may
// refuse a larger one. A record that is refused becomes a failed result, a commit fails the run.
const maxCarried = 64 << 10

// Records reports whether the end of a call has to be recorded before anybody learns of it. last
// says that all other calls have ended. In a step without a plan, the plan has to be recorded
// first.
//
// A new owner runs a call again of which it finds no record. So what has had effects is recorded,
// except where the commit follows at once. Writes to the custom state are always recorded: the
// state service may refuse them.
func (e RunCalls) Records(c Call, end Ended, last bool) bool {
	heavy := len(end.Ops) > 0 || len(end.Result.Result) > maxCarried
	switch {
	case c.Recorded:
		return false
	case !e.Planned:
		return heavy && c.Tool != nil
	case heavy, !e.Carries:
		return true
	}
	return c.Tool != nil && !c.Tool.ReadOnly && !last
}
