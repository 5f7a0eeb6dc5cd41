package sqlite

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// writer writes the change of one session. After the first error, which it keeps, it
// writes nothing more.
type writer struct {
	run    func(query string, args ...any) (changed int64, err error)
	link   func(fileID string) error // links the session to a file
	key    session.Key
	view   *session.View // the rows before the change
	erased *atomic.Bool  // Store.erased
	root   string        // of the session's family
	err    error
}

// exec runs a statement with the tenant and the session id as its first arguments.
func (w *writer) exec(query string, args ...any) (changed int64) {
	if w.err != nil {
		return 0
	}
	changed, w.err = w.run(query, append([]any{w.key.Tenant, w.key.SessionID}, args...)...)
	return changed
}

// scope is the scope of tables with rows of the session.
func (w *writer) scope() [2]string { return [2]string{w.key.Tenant, w.key.SessionID} }

// apply writes the change of a session. The view has no session when it is new.
func (s *Store) apply(ctx context.Context, c *connection, key session.Key, view *session.View, change *session.Change) error {
	before := view.Session
	w := &writer{
		key: key, view: view, erased: &s.erased, link: func(id string) error { return linkFile(ctx, c, key, id, 0) },
		run: func(query string, args ...any) (int64, error) { return c.exec(ctx, query, args...) },
	}
	for i := range change.Audit {
		write(w, insertAudit, w.scope(), &change.Audit[i])
	}
	for i := range change.Events {
		e := &change.Events[i]
		w.exec(insertDeliveries, e.ID, string(e.Kind), e.RootID, e.RunID, e.CallID, e.AgentType, int64(e.At), e.Facts)
	}
	switch {
	case change.Delete:
		w.deleteSession(before)
		w.erased.Store(true)
		if e := change.LogErasure; e != nil {
			write(w, upsertLogErasure, [2]string{e.Tenant, e.RootID}, e)
		}
	case before == nil && (!change.Created || change.Session == nil):
		return errors.New("there is no such session")
	default:
		w.root = cmp.Or(before, change.Session).RootID
		w.change(before, change)
	}
	return w.err
}

// change writes the parts of the change. It writes ended runs before the beginning run, since only one may be live.
func (w *writer) change(before *session.Session, c *session.Change) {
	if c.Session != nil {
		w.session(before, c)
		lost, gained := session.DiffFacets(before, c.Session)
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
	if c.Dequeued != nil {
		write(w, updateRun, w.scope(), c.Dequeued)
	}
	if c.NewRun != nil {
		write(w, insertRun, w.scope(), c.NewRun)
	}
	w.waitingInput(c)
	for i := range c.Messages { // one by one: a multi-row INSERT needs a statement journal and is slower
		write(w, insertMessage, w.scope(), &c.Messages[i])
	}
	for _, id := range c.FileIDs() {
		w.linkFile(id)
	}
	w.journal(c)
	if c.Checkpoint != nil {
		write(w, insertCheckpoint, w.scope(), c.Checkpoint)
	}
	for i := range c.Usage {
		write(w, insertUsage, w.scope(), &c.Usage[i])
	}
	w.calls(c)
	for i := range c.Children {
		write(w, upsertChild, w.scope(), &c.Children[i])
	}
	for _, key := range c.StoreDeletes {
		w.exec(`DELETE FROM store_entries WHERE tenant = ? AND session_id = ? AND key = ?`, key)
	}
	for i := range c.StorePuts {
		write(w, upsertStoreEntry, w.scope(), &c.StorePuts[i])
	}
}
