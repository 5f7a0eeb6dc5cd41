package session

import "errors"

// Family lets what happens to one session reach its family.
type Family struct {
	Now     Millis
	NewID   func() string // gives the id of a continuation that is needed, also in a try that comes to nothing
	Targets []Target      // those of the views, in their order; may be nil when there is but one

	// Abandon gives the answers to the calls that are open when a run that has waited
	// begins: nobody waits for them any more. Nil leaves them open.
	Abandon func(Call) []byte
}

// What a session of the family is shown with.
var (
	needParent = Need{Current: true, Open: true, Calls: true, Children: true} // it is told of a child, and may be woken
	needChild  = Need{Open: true, Journal: true, Calls: true, Children: true} // it fails with its parent
	needGone   = Need{Children: true}                                         // it is deleted with its parent
)

// Spread adds to a command's change what follows from it: what the parent
// knows of the session, the continuation of those that wait for nothing any
// more, and the end of the sub-sessions of one that has failed or goes away.
// views[0] is the command's own session, the others are those that were asked
// for. There is one change for each view; none at all when own is nil.
//
// It gives Wider when it has to see more. own belongs to it from then on.
func (f Family) Spread(views []*View, own *Change) ([]*Change, error) {
	if own == nil {
		return nil, nil
	}
	s, err := f.gather(views, own)
	if err != nil {
		return nil, err
	}
	if err := s.moved(s.kin[0]); err != nil {
		return nil, err
	}
	if len(s.missing.targets) > 0 {
		return nil, &Wider{s.missing.targets}
	}
	changes := make([]*Change, len(views))
	for i, k := range s.kin {
		changes[i] = k.change
	}
	return changes, nil
}

// spreading is one Spread on its way.
type spreading struct {
	Family
	kin     []*kin // one for each view
	byKey   map[Key]*kin
	missing wanted
}

func (f Family) gather(views []*View, own *Change) (*spreading, error) {
	targets := f.Targets
	if len(views) == 1 && targets == nil {
		targets = make([]Target, 1)
		if shown := own.Session; shown != nil {
			targets[0].Key = shown.Key
		} else if shown := views[0].Session; shown != nil {
			targets[0].Key = shown.Key
		}
	}
	if len(targets) != len(views) {
		// The view of a deleted session does not name the session.
		return nil, errors.New("spread over a family: Family.Targets has to name the session of each view")
	}
	s := &spreading{Family: f, byKey: make(map[Key]*kin, len(views))}
	for i, v := range views {
		k := &kin{target: targets[i], view: v}
		s.kin = append(s.kin, k)
		if _, twice := s.byKey[k.target.Key]; !twice {
			s.byKey[k.target.Key] = k
		}
	}
	s.kin[0].change = own
	return s, nil
}

// find returns the session when the views show it with what need names. Else
// it is nil, and noted as missing.
func (s *spreading) find(key Key, need Need) *kin {
	if k := s.byKey[key]; k != nil && (k == s.kin[0] || k.target.Need.covers(need)) {
		return k
	}
	s.missing.add(Target{key, need})
	return nil
}

// moved looks at what has become of a session so far, and passes it on. A run
// that fails takes the sub-sessions with it even though another one begins.
func (s *spreading) moved(k *kin) error {
	s.wake(k)
	ends := k.gone() || k.failed()
	if !s.next(k) {
		return nil
	}
	if k.statusChanged() || k.keptOtherwise() {
		if err := s.up(k); err != nil {
			return err
		}
	}
	if ends {
		return s.down(k)
	}
	for _, id := range k.leaves() {
		if err := s.take(k, id); err != nil {
			return err
		}
	}
	return nil
}

// wake continues a session that has come to wait, or was told something, and
// waits for nothing any more. What is shown of a session whose suspension is as
// it was may leave out its calls; it is left alone.
func (s *spreading) wake(k *kin) {
	before, after := k.view.Session, k.after()
	if before == nil || after == nil || !after.Status.Suspended() || after.Suspension == before.Suspension {
		return
	}
	if after.waits(k.change.callsOf(k.view)) {
		return
	}
	if k.view.Current == nil {
		if !k.target.Need.Current {
			s.missing.add(Target{k.target.Key, Need{Current: true}})
		}
		return
	}
	after = k.touch(s.Now)
	k.change.NewRun = after.proceed(k.view.Current, s.NewID(), s.Now)
}

// up tells the parent what has become of the session. A parent that is gone,
// or that knows of no such child, is another one's business.
func (s *spreading) up(k *kin) error {
	child := k.latest()
	if child.ParentID == "" {
		return nil
	}
	parent := s.find(Key{child.Tenant, child.ParentID}, needParent)
	if parent == nil || parent.after() == nil {
		return nil
	}
	status := child.Status
	if k.gone() {
		status = Failed // nothing will come of it
	}
	if parent.told(child, status, k.change.joins, s.Now) {
		return s.moved(parent)
	}
	return nil
}

// down ends the local sub-sessions of a session that has failed, or deletes
// those of one that goes away. A session that ends waits for nobody, and its own
// parent has learned of it: so its children tell it, and it tells nobody more.
func (s *spreading) down(k *kin) error {
	before := k.view.Session
	if before == nil || before.Children == 0 && len(k.change.Children) == 0 {
		return nil
	}
	if before.Children > 0 && len(k.view.Children) == 0 && !k.target.Need.Children {
		s.missing.add(Target{k.target.Key, needGone})
		return nil
	}
	for _, row := range k.children() {
		if row.Location != Local || !k.gone() && row.Status.Terminal() {
			continue
		}
		if err := s.take(k, row.SessionID); err != nil {
			return err
		}
	}
	return nil
}

// take lets a sub-session share its parent's end. A session that has taken over
// the id of one that was deleted has another parent, or none, and is spared.
func (s *spreading) take(parent *kin, childID string) error {
	need := needChild
	if parent.gone() {
		need = needGone
	}
	child := s.find(Key{parent.target.Tenant, childID}, need)
	if child == nil || child.after() == nil || child.after().ParentID != parent.target.SessionID {
		return nil
	}
	switch {
	case parent.gone():
		child.becomes(&Change{Delete: true})
	case child.after().Status.Terminal():
		return nil
	default:
		failure := &Failure{Error: "The parent session has ended.", Code: cancelled, Reason: ParentFailed}
		child.becomes(force{status: Failed, failure: failure, now: s.Now}.end(child.view))
		child.change.forsakes = true
		parent.told(child.after(), Failed, nil, s.Now)
		if !s.next(child) {
			return nil
		}
	}
	return s.down(child)
}
