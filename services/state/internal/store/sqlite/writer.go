package sqlite

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// deleteSession deletes all rows of the session.
func (w *writer) deleteSession(before *session.Session) {
	for _, table := range table.OfSession() {
		w.exec(`DELETE FROM ` + table + ` WHERE tenant = ? AND session_id = ?`)
	}
	// A sweep deletes the links and the holds of the files, with the files.
	w.exec(`UPDATE file_links SET lapses_at = 1 WHERE tenant = ?1 AND session_id IN (?2, '')
		AND file_id IN (SELECT file_id FROM file_links WHERE tenant = ?1 AND session_id = ?2)`)
	if before != nil {
		lost, _ := session.DiffFacets(before, nil)
		w.facets(before.CreatedAt, lost, nil)
	}
}

func (w *writer) session(before *session.Session, c *session.Change) {
	s := c.Session
	if s.Key != w.key && w.err == nil {
		w.err = fmt.Errorf("the changed row is of session %q of tenant %q", s.SessionID, s.Tenant)
	}
	switch {
	case c.Created:
		write(w, insertSession, w.scope(), s)
	case sessionRestColumns.Equal(before, s):
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

// insertFacet ignores existing facets: an older release deletes sessions without their
// facets.
const insertFacet = `INSERT INTO session_facets (tenant, session_id, facet, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`

// rewind deletes messages, checkpoints, states and calls. A checkpoint without its state
// is deleted too.
func (w *writer) rewind(r *session.Rewind) {
	w.exec(`DELETE FROM messages WHERE tenant = ? AND session_id = ? AND ordinal >= ?`, r.Messages)
	w.exec(`DELETE FROM checkpoints WHERE tenant = ?1 AND session_id = ?2
			AND (message_count > ?3 OR (?4 <> 0 AND state_version > ?4) OR (?5 <> '' AND run_id = ?5) OR (?6 > 0
			AND step > ?6))`, r.Messages, r.StateVersion, r.RunID, r.Step)
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
		w.err = fmt.Errorf("session %q has fewer than %d messages to copy", c.From, c.Messages)
	}
	w.exec(`INSERT INTO file_links (tenant, session_id, file_id, lapses_at) SELECT tenant, ?2, file_id, 0 FROM file_links
		WHERE tenant = ?1 AND session_id = ?3 AND lapses_at = 0 ON CONFLICT (tenant, session_id, file_id) DO UPDATE SET lapses_at = 0`, c.From)
}

func (w *writer) linkFile(id string) {
	if w.err == nil {
		w.err = w.link(id)
	}
}

// state stores the whole custom state, or the writes to the state of version StateBase.
func (w *writer) state(c *session.Change) {
	s := c.Session
	switch {
	case s == nil:
	case c.NewState:
		write(w, insertState, w.scope(), &table.State{Version: s.StateVersion, Base: s.StateVersion, Text: s.State})
	case len(c.StateWrite) > 0:
		write(w, insertState, w.scope(), &table.State{Version: s.StateVersion, Base: s.StateBase, Writes: c.StateWrite})
	}
}

// waitingInput stores the input of a new waiting run, and deletes the input of other runs.
func (w *writer) waitingInput(c *session.Change) {
	for _, id := range c.DropInputs {
		w.exec(`DELETE FROM held_runs WHERE tenant = ? AND session_id = ? AND run_id = ?`, id)
	}
	if c.WaitingInput != nil && c.NewRun != nil {
		write(w, insertWaitingInput, w.scope(),
			&table.WaitingInput{RunID: c.NewRun.RunID, MessageIDs: c.WaitingInput.MessageIDs(), Input: c.WaitingInput})
	}
}

// updateRun writes only unindexed columns of a run continued by a step.
func (w *writer) updateRun(after *session.Run) {
	for _, before := range []*session.Run{w.view.Run, w.view.Current, w.view.Live, w.view.KeyedRun} {
		if before != nil && before.RunID == after.RunID {
			if runRestColumns.Equal(before, after) {
				write(w, stepRun, w.scope(), after)
				return
			}
			break
		}
	}
	write(w, updateRun, w.scope(), after)
}

func (w *writer) journal(c *session.Change) {
	if c.Plan != nil {
		write(w, insertPlan, w.scope(), c.Plan)
	}
	if c.Result != nil {
		write(w, insertResult, w.scope(), &table.Result{Position: c.ResultAt, Result: *c.Result})
	}
	if c.ClearJournal {
		w.exec(`DELETE FROM plans WHERE tenant = ? AND session_id = ?`)
		w.exec(`DELETE FROM results WHERE tenant = ? AND session_id = ?`)
	}
}

func (w *writer) calls(c *session.Change) {
	family := [2]string{w.key.Tenant, w.root}
	for _, id := range c.DropCalls {
		w.exec(`DELETE FROM calls WHERE tenant = ? AND session_id = ? AND root_id = ? AND call_id = ?`, w.root, id)
	}
	for i := range c.NewCalls {
		write(w, insertCall, family, &c.NewCalls[i])
	}
	for i := range c.Calls {
		write(w, updateCall, family, &c.Calls[i])
	}
}
