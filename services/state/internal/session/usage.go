package session

// RecordUsage records usage outside of steps. The session keeps its version.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type RecordUsage struct {
	Key
	RunID string // may be empty
	Usage []Usage
	Now   Millis
}

// Need lists the rows for Decide.
func (c RecordUsage) Need() Need { return Need{} }

// Decide appends the entries.
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

// addUsage appends usage outside of steps.
func (change *Change) addUsage(runID string, usage []Usage, now Millis) {
	s := change.Session
	list := usageEntries(runID, 0, now, usage)
	for i := range list {
		list[i].Position += s.UsageCount
	}
	s.UsageCount += int32(len(list))
	change.Usage = append(change.Usage, list...)
}
