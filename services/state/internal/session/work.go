package session

import "slices"

// A suspended session is busy while it waits for children at work: a message then follows the BusyPolicy,
// as if the session had a live run. Otherwise it waits for people, and a message may abandon its calls.
//
//	child                               at work
//	active                              yes
//	suspended, and awaits one at work   yes
//	suspended on clients alone          no
//	interrupted, paused, ended          no
//
// Children that the session does not await do not count. A policy that ends the work stops the children at
// work and stores the stop with the suspended run. Each child ends with what it has written. When none of
// them works any more, the session is interrupted and the message's run begins. If a child had ended before
// its stop came, the continuation inherits the stop.

// work finds the children at work. The first view is the session's; the others may include its descendants.
type work struct {
	views   []*View
	missing targetList
	deleted bool // a view shows no session
}

// awaitedAtWork returns the ids of the calls that a child at work answers. It gives an IncompleteViewError
// to see the descendants.
func awaitedAtWork(views []*View) (map[string]bool, error) {
	v := views[0]
	if v.Session == nil || !v.Session.Status.Suspended() || v.Session.Children == 0 {
		return nil, nil
	}
	if len(v.Calls) == 0 || len(v.Children) == 0 {
		return nil, &IncompleteViewError{[]Target{{Key: v.Session.Key, Need: needCalls}}}
	}
	w := &work{views: views, deleted: slices.ContainsFunc(views[1:], func(v *View) bool { return v.Session == nil })}
	calls := map[string]bool{}
	for _, call := range v.Calls {
		if w.answers(v, call) {
			calls[call.CallID] = true
		}
	}
	if len(w.missing.targets) > 0 {
		return nil, &IncompleteViewError{w.missing.targets}
	}
	return calls, nil
}

// answers reports whether a child at work answers the call of the view's session.
func (w *work) answers(v *View, call Call) bool {
	if !call.isAwaited() || !call.awaitsChild() {
		return false
	}
	for _, child := range v.Children {
		if call.isFor(child) {
			return w.isAtWork(Key{v.Session.Tenant, child.SessionID}, child)
		}
	}
	return false
}

func (w *work) isAtWork(key Key, child Child) bool {
	if !child.Status.Suspended() || child.Location == Remote {
		return !child.hasStopped()
	}
	for _, v := range w.views[1:] {
		if v.Session == nil || v.Session.Key != key {
			continue
		}
		for _, call := range v.Calls {
			if w.answers(v, call) {
				return true
			}
		}
		return false
	}
	if !w.deleted {
		w.missing.add(Target{Key: key, Need: needCalls})
	}
	return false
}

// hasStopped reports whether the child does not go on by itself: it has ended, or needs a resume.
func (c Child) hasStopped() bool {
	return c.Status.Terminal() || c.Status == Interrupted || c.Status == Paused
}

// isBusy reports whether the session has a live run or waits for children at work. It gives an
// IncompleteViewError to see the descendants.
func isBusy(views []*View) (bool, error) {
	if s := views[0].Session; s == nil || s.Status == Active {
		return s != nil, nil
	}
	calls, err := awaitedAtWork(views)
	return len(calls) > 0, err
}

// stopWork records the stop with the suspended run of a busy session. Family.Propagate stops the children.
func (change *Change) stopWork(v *View, stop Stop) {
	suspended := *v.Current
	suspended.addStop(stop)
	change.Runs = append(change.Runs, suspended)
	change.stopsWork = &stop
}

// stopAwaited stops the children that a suspended member awaits: live runs get the stop, as do suspended runs
// that await children at work, and other suspended children are interrupted at once.
func (s *propagation) stopAwaited(m *member, stop Stop) {
	if m = s.findAll(m, needParent); m == nil {
		return
	}
	for _, row := range m.children() {
		if len(m.openCallsOf(row)) == 0 || row.Location != Local || row.hasStopped() {
			continue
		}
		child := s.find(Key{m.target.Tenant, row.SessionID}, needStopped)
		if child == nil || child.after() == nil || child.after().ParentID != m.target.SessionID {
			continue
		}
		if child.after().Status.Suspended() && child.view.Current != nil {
			child.touch(s.Now)
			child.change.stopWork(child.view, stop)
			s.stopAwaited(child, stop)
			s.interruptIdle(child)
		} else {
			child.interrupt(stop, s.Now)
		}
		if child.after().Status == Interrupted {
			m.recordChild(child.after(), Interrupted, nil, s.Now)
		}
	}
}

// interruptIdle interrupts a suspended member that nobody continues: it awaits only children that need a
// resume. A member with a stop does not wait for clients either.
func (s *propagation) interruptIdle(m *member) {
	after := m.after()
	if m.change == nil || after == nil || !after.Status.Suspended() {
		return
	}
	var awaited []Call
	for _, call := range m.change.unconsumedCalls(m.view) {
		if call.isAwaited() {
			awaited = append(awaited, call)
		}
	}
	stopped := m.suspendedStop()
	if stopped == nil && (len(awaited) == 0 || CountAwaited(awaited) > 0) {
		return
	}
	if after.Children > 0 {
		if m = s.findAll(m, needCalls); m == nil {
			return
		}
	}
	for _, row := range m.children() {
		if !row.hasStopped() && len(m.openCallsOf(row)) > 0 {
			return
		}
	}
	stop := Stop{Kind: StopInterrupt, Reason: "its sub-agents were interrupted"}
	if stopped != nil {
		stop = *stopped
	}
	after = m.touch(s.Now)
	after.applyStop(stop, after.CurrentRunID, s.Now)
	m.idle = true
}

// suspendedStop returns the stop of the suspended run of the member; nil for none.
func (m *member) suspendedStop() *Stop {
	if m.change != nil {
		for i := range m.change.Runs {
			if r := &m.change.Runs[i]; r.RunID == m.after().CurrentRunID {
				return r.Stop
			}
		}
	}
	if m.view.Current == nil {
		return nil
	}
	return m.view.Current.Stop
}
