package sqlite

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// owned are the tables whose rows belong to a session and go with it, but for
// its facets.
var owned = strings.Fields(`sessions states runs messages plans results checkpoints usage_entries calls sub_sessions held_runs`)

// erase deletes everything that belongs to the session.
func (w *writer) erase(before *session.Session) {
	for _, table := range owned {
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
		w.exec(`INSERT INTO sessions (tenant, session_id, agent_type, parent_id, root_id, created_at, version, step_count, message_count,
				state_version, state_base, state_writes, state_bytes, checkpoint_id, usage_count, updated_at,
				position, claims, status, epoch, turn, resume_count, output, failure, current_run_id, suspension_context, interruption, children, waiting,
				user_id, organization_id, tags, metadata, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			slices.Concat([]any{s.AgentType, s.ParentID, s.RootID, s.CreatedAt}, pace(s), rest(s))...)
	case paced(before, s):
		w.update("session", `UPDATE sessions SET version = ?, step_count = ?, message_count = ?, state_version = ?, state_base = ?,
				state_writes = ?, state_bytes = ?, checkpoint_id = ?, usage_count = ?, updated_at = ?,
				position = ?, claims = ?
			WHERE tenant = ? AND session_id = ?`, pace(s)...)
	default:
		w.update("session", `UPDATE sessions SET version = ?, step_count = ?, message_count = ?, state_version = ?, state_base = ?,
				state_writes = ?, state_bytes = ?, checkpoint_id = ?, usage_count = ?, updated_at = ?,
				position = ?, claims = ?, status = ?, epoch = ?, turn = ?, resume_count = ?, output = ?, failure = ?, current_run_id = ?, suspension_context = ?,
				interruption = ?, children = ?, waiting = ?, user_id = ?, organization_id = ?, tags = ?, metadata = ?, expires_at = ?
			WHERE tenant = ? AND session_id = ?`, append(pace(s), rest(s)...)...)
	}
}

// pace are the columns of a session that every step writes. None is in an
// index: SQLite writes each index anew that has a column of a SET.
func pace(s *session.Session) []any {
	return []any{
		s.Version, s.StepCount, s.MessageCount, s.StateVersion, s.StateBase, s.StateWrites, s.StateBytes,
		s.CheckpointID, s.UsageCount, s.UpdatedAt, s.Position, s.Claims,
	}
}

// rest are the other columns of a session that commands write over.
func rest(s *session.Session) []any {
	return []any{
		s.Status, s.Epoch, s.Turn, s.ResumeCount, s.Output, store.In(&s.Failure), s.CurrentRunID, store.In(&s.Suspension),
		store.In(&s.Interruption), s.Children, s.Waiting, s.UserID, s.OrganizationID, store.In(&s.Tags), store.In(&s.Metadata), s.ExpiresAt,
	}
}

// paced reports whether a write changes nothing of a session but its pace.
func paced(before, after *session.Session) bool {
	b, a := *before, *after
	b.Version, b.StepCount, b.MessageCount, b.StateVersion, b.StateBase, b.StateWrites, b.StateBytes,
		b.CheckpointID, b.UsageCount, b.UpdatedAt = a.Version, a.StepCount, a.MessageCount, a.StateVersion, a.StateBase, a.StateWrites,
		a.StateBytes, a.CheckpointID, a.UsageCount, a.UpdatedAt
	b.Position, b.Claims = a.Position, a.Claims
	a.State, b.State = "", "" // has a table of its own
	return reflect.DeepEqual(a, b)
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

func (w *writer) copyMessages(c *session.Copy) {
	copied := w.exec(`INSERT INTO messages (tenant, session_id, ordinal, message_id, role, run_id, step, created_at, size, body)
		SELECT ?1, ?2, ordinal, message_id, role, run_id, step, created_at, size, body
		FROM messages WHERE tenant = ?1 AND session_id = ?3 AND ordinal < ?4 ORDER BY ordinal`, c.From, c.Messages)
	if w.err == nil && copied != c.Messages {
		w.err = fmt.Errorf("session %q has no %d messages to copy", c.From, c.Messages)
	}
}

// state keeps the whole, or the write to the one of the version state_base.
func (w *writer) state(c *session.Change) {
	const insert = `INSERT INTO states (tenant, session_id, version, base_version, state) VALUES (?, ?, ?, ?, ?)`
	s := c.Session
	switch {
	case s == nil:
	case c.NewState:
		w.exec(insert, s.StateVersion, s.StateVersion, s.State)
	case len(c.StateWrite) > 0:
		w.exec(insert, s.StateVersion, s.StateBase, store.In(&c.StateWrite))
	}
}

func (w *writer) insertRun(r *session.Run) {
	w.exec(`INSERT INTO runs (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id,
			step_count, output, failure, completion_reason, attempt, entry, stop, due_at, losses, epoch, executor_id, claimed_at,
			finish_step, finish_version, traceparent, tracestate, created_at, started_at, completed_at,
			deadline_at, on_busy, place, start_message_count, start_state_version, start_state_base, turn_message_count, finish_reason,
			start_position, end_position, usage)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.RunID, r.AgentType, r.Turn, r.Status, r.RequestKey, blob(r.RequestHash), r.MessageID,
		r.StepCount, r.Outcome.Output, store.In(&r.Outcome.Failure), r.Outcome.CompletionReason, r.Attempt, r.Entry, store.In(&r.Stop),
		r.DueAt, r.Losses, r.Epoch, r.ExecutorID, r.ClaimedAt, r.FinishStep, r.FinishVersion, r.Traceparent, r.Tracestate, r.CreatedAt,
		r.StartedAt, r.CompletedAt, r.DeadlineAt, r.OnBusy, r.Place, r.StartMessageCount, r.StartStateVersion, r.StartStateBase,
		r.TurnMessageCount, r.Outcome.FinishReason, r.StartPosition, r.EndPosition, store.In(&r.Outcome.Usage))
}

// begin gives a run that has waited its turn.
func (w *writer) begin(r *session.Run) {
	w.update("run that begins", `UPDATE runs SET status = ?, turn = ?, start_message_count = ?,
			start_state_version = ?, start_state_base = ?, turn_message_count = ?, stop = ?, start_position = ?
		WHERE run_id = ? AND tenant = ? AND session_id = ?`,
		r.Status, r.Turn, r.StartMessageCount, r.StartStateVersion, r.StartStateBase,
		r.TurnMessageCount, store.In(&r.Stop), r.StartPosition, r.RunID)
}

// held keeps what a new run waits with, and lets go what others have.
func (w *writer) held(c *session.Change) {
	for _, id := range c.Unheld {
		w.exec(`DELETE FROM held_runs WHERE tenant = ? AND session_id = ? AND run_id = ?`, id)
	}
	if c.Held != nil && c.NewRun != nil {
		ids := c.Held.MessageIDs()
		w.exec(`INSERT INTO held_runs (tenant, session_id, run_id, message_ids, held) VALUES (?, ?, ?, ?, ?)`,
			c.NewRun.RunID, store.In(&ids), store.In(c.Held))
	}
}

// updateRun writes what of a run can change after its start; of one that goes
// on, only what a step changes, which is in no index.
func (w *writer) updateRun(r *session.Run) {
	if goesOn(w.shown, r) {
		w.update("run", `UPDATE runs SET step_count = ?, losses = ? WHERE run_id = ? AND tenant = ? AND session_id = ?`, r.StepCount, r.Losses, r.RunID)
		return
	}
	w.update("run", `UPDATE runs SET status = ?, step_count = ?, output = ?, failure = ?, completion_reason = ?,
			attempt = ?, stop = ?, due_at = ?, losses = ?, epoch = ?, executor_id = ?, claimed_at = ?, finish_step = ?,
			finish_version = ?, started_at = ?, completed_at = ?, finish_reason = ?, start_position = ?, end_position = ?, usage = ?
		WHERE run_id = ? AND tenant = ? AND session_id = ?`,
		r.Status, r.StepCount, r.Outcome.Output, store.In(&r.Outcome.Failure), r.Outcome.CompletionReason,
		r.Attempt, store.In(&r.Stop), r.DueAt, r.Losses, r.Epoch, r.ExecutorID, r.ClaimedAt, r.FinishStep, r.FinishVersion,
		r.StartedAt, r.CompletedAt, r.Outcome.FinishReason, r.StartPosition, r.EndPosition, store.In(&r.Outcome.Usage), r.RunID)
}

// goesOn reports whether the run was shown and differs by a step at most.
func goesOn(shown *session.View, r *session.Run) bool {
	for _, before := range []*session.Run{shown.Run, shown.Current, shown.Live, shown.Keyed} {
		if before != nil && before.RunID == r.RunID {
			b := *before
			b.StepCount, b.Losses = r.StepCount, r.Losses
			return reflect.DeepEqual(b, *r)
		}
	}
	return false
}
