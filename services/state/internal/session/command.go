package session

// Command is one command with all that its decision depends on. Apply gives it its rules, in this order:
//
//	owner      each session belongs to the owner that its target names
//	decide     the change of the command's own session
//	quotas     a new run is within the quotas of its tenant and its user
//	family     the consequences for other sessions of the family
//	audit      the entries of the audit log, and the live logs to remove
//	events     what subscribers are told
//	hand-over  an idle executor claims the new run
//
// A rule that needs more rows gives an IncompleteViewError. The command then runs again with the targets of
// IncompleteViewError.Extend, and each rule decides anew.
type Command[A any] struct {
	Targets []Target // the command's own session comes first
	Bytes   int      // estimates the memory that the command holds while it waits
	Now     Millis

	Decide func(views []*View) (*Change, A, error)           // a nil change writes nothing
	Quotas *Quotas                                           // nil for none
	Alone  bool                                              // only the own session changes
	Amend  func(views []*View, changes []*Change, answer *A) // completes the answer when all changes are known; nil does not

	Actor     string      // for the audit log; empty for executors and the service itself
	Intent    AuditAction // of a request that may begin a run, or that has one effect; empty for others
	HandsOver bool        // an idle executor may claim the new run
	AgentType string      // expected of the run to hand over; empty if it is not known yet
}

// Apply decides on the views of the targets. It returns one change per view, or none if nothing is written. family and
// audit are without the fields that the command has. claim hands a new run over, and may change the own change; nil
// hands nothing over.
//
// NotFound (SESSION_NOT_FOUND) for the session of another user, an OtherUserError, an IncompleteViewError, and the
// faults of Decide, of the quotas and of claim.
func (c *Command[A]) Apply(views []*View, family Family, audit Audit, claim func(*View, *Change) error) ([]*Change, A, error) {
	var none A
	for i, v := range views {
		if err := c.Targets[i].CheckOwner(v); err != nil {
			return nil, none, err
		}
	}
	own, answer, err := c.Decide(views)
	if err != nil {
		return nil, none, err
	}
	if err := c.Quotas.check(own, int64(c.Bytes)); err != nil {
		return nil, none, err
	}
	var changes []*Change
	switch {
	case own == nil:
	case c.Alone:
		changes = make([]*Change, len(views))
		changes[0] = own
	default:
		family.Now, family.Targets = c.Now, c.Targets
		if changes, err = family.Propagate(views, own); err != nil {
			return nil, none, err
		}
	}
	if c.Amend != nil {
		c.Amend(views, changes, &answer)
	}
	if len(changes) == 0 {
		return nil, answer, nil
	}
	EraseLogs(views, changes, audit.Now)
	audit.Actor, audit.Intent = c.Actor, c.Intent
	audit.Record(views, changes)
	RecordEvents(views, changes, audit.Now, audit.NewEvent)
	if claim == nil {
		return changes, answer, nil
	}
	return changes, answer, claim(views[0], changes[0])
}
