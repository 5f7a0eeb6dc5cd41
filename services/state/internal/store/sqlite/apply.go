package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// writer writes the change of one session. After the first error it does
// nothing more, and keeps that.
type writer struct {
	run   func(query string, args ...any) (changed int64, err error)
	key   session.Key
	shown *session.View // the rows before the change
	root  string        // of the session's family
	err   error
}

// exec runs a statement whose first two arguments are tenant and session id.
func (w *writer) exec(query string, args ...any) (changed int64) {
	if w.err != nil {
		return 0
	}
	changed, w.err = w.run(query, append([]any{w.key.Tenant, w.key.SessionID}, args...)...)
	return changed
}

// update runs a statement that changes one row, which has to be there. Its
// last two arguments are tenant and session id.
func (w *writer) update(what, query string, args ...any) {
	if w.err != nil {
		return
	}
	changed, err := w.run(query, append(args, w.key.Tenant, w.key.SessionID)...)
	if err == nil && changed != 1 {
		err = fmt.Errorf("%s: %d rows changed, not one", what, changed)
	}
	w.err = err
}

// apply writes the change of the session that was shown. The view has no
// session when it is a new one.
func apply(ctx context.Context, c *connection, key session.Key, shown *session.View, change *session.Change) error {
	before := shown.Session
	w := &writer{key: key, shown: shown, run: func(query string, args ...any) (int64, error) { return c.exec(ctx, query, args...) }}
	switch {
	case change.Delete:
		w.erase(before)
	case before == nil && (!change.Created || change.Session == nil):
		return errors.New("there is no such session")
	default:
		w.root = cmp.Or(before, change.Session).RootID
		w.change(before, change)
	}
	return w.err
}

// change writes the parts. Runs make room for each other: first those that
// end, then the one that begins or is new.
func (w *writer) change(before *session.Session, c *session.Change) {
	if c.Session != nil {
		w.session(before, c)
		lost, gained := session.Refacet(before, c.Session)
		w.facets(c.Session.CreatedAt, lost, gained)
	}
	if c.Rewind != nil {
		w.rewind(c.Rewind)
	}
	if c.Copy != nil {
		w.copyMessages(c.Copy)
	}
	w.state(c)
	for i := range c.Runs {
		w.updateRun(&c.Runs[i])
	}
	if c.Begun != nil {
		w.begin(c.Begun)
	}
	if c.NewRun != nil {
		w.insertRun(c.NewRun)
	}
	w.held(c)
	for i := range c.Messages { // a row each: an INSERT of several keeps a journal of its own to undo half of it, and is slower
		w.message(&c.Messages[i])
	}
	w.journal(c)
	if c.Checkpoint != nil {
		w.checkpoint(c.Checkpoint)
	}
	for i := range c.Usage {
		w.usage(&c.Usage[i])
	}
	w.calls(c)
	for i := range c.Children {
		w.child(&c.Children[i])
	}
}
