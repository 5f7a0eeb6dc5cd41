package session

// RecordUsage notes measurements that belong to no step. They are not a change
// of the session: its version stays.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type RecordUsage struct {
	Key
	RunID string // may be empty
	Usage []Usage
	Now   Millis
}

// Need says what Decide wants to see.
func (c RecordUsage) Need() Need { return Need{} }

// Decide records the measurements behind those recorded before.
func (c RecordUsage) Decide(v *View) (*Change, error) {
	if v.Session == nil {
		return nil, NoSession(c.Key)
	}
	if len(c.Usage) == 0 {
		return nil, nil
	}
	s := *v.Session
	change := &Change{Session: &s}
	change.addUsage(c.RunID, c.Usage, c.Now)
	return change, nil
}

// addUsage records measurements of no step, behind those that there are.
func (change *Change) addUsage(runID string, usage []Usage, now Millis) {
	s := change.Session
	list := usageEntries(runID, 0, now, usage)
	for i := range list {
		list[i].Position += s.UsageCount
	}
	s.UsageCount += int32(len(list))
	change.Usage = append(change.Usage, list...)
}
