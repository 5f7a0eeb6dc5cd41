package sqlite

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// erase deletes everything that belongs to the session.
func (w *writer) erase(before *session.Session) {
	for _, table := range table.OfSession() {
		w.exec(`DELETE FROM ` + table + ` WHERE tenant = ? AND session_id = ?`)
	}
	if before != nil {
		lost, _ := session.Refacet(before, nil)
		w.facets(before.CreatedAt, lost, nil)
	}
}

func (w *writer) session(before *session.Session, c *session.Change) {
	s := c.Session
	if s.Key != w.key && w.err == nil {
		w.err = fmt.Errorf("the row names session %q of tenant %q", s.SessionID, s.Tenant)
	}
	switch {
	case c.Created:
		write(w, insertSession, w.scope(), s)
	case sessionRest.Equal(before, s):
		write(w, stepSession, w.scope(), s)
	default:
		write(w, updateSession, w.scope(), s)
	}
}

func (w *writer) facets(createdAt session.Millis, lost, gained []session.Facet) {
	for _, facet := range lost {
		w.exec(`DELETE FROM session_facets WHERE tenant = ? AND session_id = ? AND facet = ? AND created_at = ?`, facet, createdAt)
	}
	for _, facet := range gained {
		w.exec(insertFacet, facet, createdAt)
	}
}

// insertFacet leaves a facet alone that is there: an older binary, which deletes
// a session without them, may have left it behind.
const insertFacet = `INSERT INTO session_facets (tenant, session_id, facet, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`

// rewind takes messages, checkpoints, states and calls away. A checkpoint goes with
// its state too.
func (w *writer) rewind(r *session.Rewind) {
	w.exec(`DELETE FROM messages WHERE tenant = ? AND session_id = ? AND ordinal >= ?`, r.Messages)
	w.exec(`DELETE FROM checkpoints WHERE tenant = ?1 AND session_id = ?2
			AND (message_count > ?3 OR (?4 <> 0 AND state_version > ?4) OR (?5 <> '' AND run_id = ?5) OR (?6 > 0 AND step > ?6))`, r.Messages, r.StateVersion, r.RunID, r.Step)
	if r.StateVersion != 0 {
		w.exec(`DELETE FROM states WHERE tenant = ? AND session_id = ? AND version > ?`, r.StateVersion)
	}
	if r.CallsFrom > 0 {
		w.exec(`DELETE FROM calls WHERE tenant = ? AND session_id = ? AND step >= ?`, r.CallsFrom)
	}
}

var copyMessages = func() string {
	names := strings.Join(table.Messages.All().Names(), ", ")
	return `INSERT INTO messages (tenant, session_id, ` + names + `) SELECT ?1, ?2, ` + names + `
		FROM messages WHERE tenant = ?1 AND session_id = ?3 AND ordinal < ?4 ORDER BY ordinal`
}()

func (w *writer) copyMessages(c *session.Copy) {
	copied := w.exec(copyMessages, c.From, c.Messages)
	if w.err == nil && copied != c.Messages {
		w.err = fmt.Errorf("session %q has no %d messages to copy", c.From, c.Messages)
	}
}

// state keeps the whole, or the write to the one of the version state_base.
func (w *writer) state(c *session.Change) {
	s := c.Session
	switch {
	case s == nil:
	case c.NewState:
		write(w, insertState, w.scope(), &table.State{Version: s.StateVersion, Base: s.StateVersion, Whole: s.State})
	case len(c.StateWrite) > 0:
		write(w, insertState, w.scope(), &table.State{Version: s.StateVersion, Base: s.StateBase, Writes: c.StateWrite})
	}
}

// held keeps what a new run waits with, and deletes what other runs keep.
func (w *writer) held(c *session.Change) {
	for _, id := range c.Unheld {
		w.exec(`DELETE FROM held_runs WHERE tenant = ? AND session_id = ? AND run_id = ?`, id)
	}
	if c.Held != nil && c.NewRun != nil {
		write(w, insertHeld, w.scope(), &table.Held{RunID: c.NewRun.RunID, MessageIDs: c.Held.MessageIDs(), Held: c.Held})
	}
}

// updateRun writes no more of a run that only continues than a step changes,
// which is in no index.
func (w *writer) updateRun(after *session.Run) {
	for _, before := range []*session.Run{w.shown.Run, w.shown.Current, w.shown.Live, w.shown.Keyed} {
		if before != nil && before.RunID == after.RunID {
			if runRest.Equal(before, after) {
				write(w, stepRun, w.scope(), after)
				return
			}
			break
		}
	}
	write(w, updateRun, w.scope(), after)
}
