package session

import (
	"cmp"
	"slices"
)

// CachedSession is the state of a claimed session after the store's own last write: the session, its
// run, the journal and the calls. Most commands of the executor can be decided on it without a read.
// It is immutable.
type CachedSession struct {
	session    Session // its State is empty unless stateKnown
	run        Run
	journal    *Journal
	calls      []Call // as View.Calls, if callsKnown
	stateKnown bool   // the session has the custom state
	callsKnown bool
}

// CacheSession returns the state of a session after c, a change decided on v for need. It is nil if
// no run is claimed then or the view lacks the journal.
func CacheSession(need Need, v *View, c *Change) *CachedSession {
	switch {
	case v.Session == nil && (c.Session == nil || !c.Created):
		return nil
	case v.Session == nil:
		return (&CachedSession{callsKnown: true}).After(c)
	case !need.Journal:
		return nil
	}
	h := &CachedSession{
		session: *v.Session, journal: v.Journal, stateKnown: need.State || need.StateIfWritten && v.Journal.HasStateWrites(),
		calls: v.Calls, callsKnown: need.Calls,
	}
	if !h.stateKnown {
		h.session.State = ""
	}
	if v.Run != nil {
		h.run = *v.Run
	}
	return h.After(c)
}

// After returns the state after c; nil if no run is claimed then.
func (h *CachedSession) After(c *Change) *CachedSession {
	if c.Delete || c.Rewind != nil || c.Dequeued != nil {
		return nil
	}
	next := *h
	if c.Session != nil {
		next.session = *c.Session
		switch {
		case c.NewState || len(c.StateWrite) > 0:
			next.stateKnown = true
		default:
			next.session.State = h.session.State
		}
	}
	next.run = c.runAfter(&h.run, next.session.CurrentRunID)
	if next.run.Status != RunRunning || next.session.Status != Active {
		return nil
	}
	next.journal = c.journalAfter(h.journal)
	if h.callsKnown {
		next.calls = c.callsAfter(h.calls)
	}
	return &next
}

// callsAfter returns the calls of View.Calls after the change.
func (change *Change) callsAfter(calls []Call) []Call {
	if len(change.NewCalls)+len(change.Calls)+len(change.DropCalls) == 0 {
		return calls
	}
	after := slices.Concat(calls, change.NewCalls)
	for _, changed := range change.Calls {
		if i := slices.IndexFunc(after, func(c Call) bool { return c.CallID == changed.CallID }); i >= 0 {
			after[i] = changed
		} else {
			after = append(after, changed)
		}
	}
	after = slices.DeleteFunc(after, func(c Call) bool {
		return c.ConsumedAt != 0 && (c.LateAt == 0 || c.LateReported) || slices.Contains(change.DropCalls, c.CallID)
	})
	slices.SortFunc(after, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.CallID, b.CallID))
	})
	return after
}

// runAfter returns the run with the id after the change; the zero Run if it is unknown.
func (change *Change) runAfter(before *Run, id string) Run {
	if change.NewRun != nil && change.NewRun.RunID == id {
		return *change.NewRun
	}
	for i := range change.Runs {
		if change.Runs[i].RunID == id {
			return change.Runs[i]
		}
	}
	if before.RunID == id {
		return *before
	}
	return Run{}
}

func (change *Change) journalAfter(j *Journal) *Journal {
	if change.ClearJournal {
		j = nil
	}
	if change.Plan != nil {
		plan := *change.Plan
		plan.Results = nil
		j = &plan
	}
	if change.Result != nil && j != nil {
		more := *j
		more.Results = append(slices.Clip(more.Results), *change.Result)
		j = &more
	}
	return j
}

// View returns a view for need, and false if a read is required. It shows no message ids as
// taken, and no call ids of other sessions, so the store must refuse duplicate ids itself.
func (h *CachedSession) View(need Need) (*View, bool) {
	if !h.canShow(need) {
		return nil, false
	}
	v := &View{Session: &h.session}
	if h.stateKnown && !need.State && (!need.StateIfWritten || !h.journal.HasStateWrites()) {
		s := h.session
		s.State = ""
		v.Session = &s
	}
	if need.RunID != "" {
		v.Run = &h.run
	}
	if need.Journal {
		v.Journal = h.journal
	}
	if need.Current {
		v.Current = &h.run
	}
	if need.Calls {
		v.Calls = h.calls
	}
	for _, call := range h.calls {
		if slices.Contains(need.CallIDs, call.CallID) {
			v.NamedCalls = append(v.NamedCalls, call)
		}
	}
	return v, true
}

func (h *CachedSession) canShow(n Need) bool {
	switch {
	case n.RunID != "" && n.RunID != h.run.RunID,
		(n.State || n.StateIfWritten && h.journal.HasStateWrites()) && !h.stateKnown,
		n.CheckpointStep != 0 && n.CheckpointStep == h.session.StepCount,
		(n.Calls || len(n.CallIDs) > 0) && !h.callsKnown, len(n.CallIDs) > 0 && !n.CallsOfStep:
		return false
	}
	return n.RequestKey == "" && n.AgentType == "" && !n.Definition && n.ExecutorID == "" && n.CheckpointID == "" && n.CheckpointBelow == 0 &&
		!n.Live && !n.Children && n.LiveBelow == 0 && n.Tail == Tail{} && !n.Waiting && !n.OwnAgent &&
		!n.Undo && n.RewindToMessage == "" && n.AnswerID == "" && n.AskedFrom == 0 && !n.FailedStep && !n.Stored && len(n.StoreKeys) == 0
}

// Size estimates the memory in bytes.
func (h *CachedSession) Size() int {
	const fixed = 2 << 10 // the rows and their ids
	size := fixed + len(h.session.State) + len(h.session.Output)
	for _, tag := range h.session.Tags {
		size += len(tag)
	}
	for name, value := range h.session.Metadata {
		size += len(name) + len(value)
	}
	for _, c := range h.calls {
		size += fixed/4 + len(c.Input) + len(c.Stash) + len(c.Response) + len(c.Late)
	}
	if j := h.journal; j != nil {
		size += len(j.Plan) + OpsBytes(j.Ops)
		for _, r := range j.Results {
			size += fixed/8 + len(r.Body) + len(r.Context) + OpsBytes(r.Ops)
			for _, m := range r.Stored {
				size += fixed/32 + len(m.Key)
			}
		}
	}
	return size
}
