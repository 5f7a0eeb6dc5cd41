package sqlite

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// owned are the tables whose rows belong to a session and go with it, but for
// its facets.
var owned = strings.Fields(`sessions states runs messages plans results checkpoints usage_entries calls sub_sessions`)

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

func (w *writer) session(c *session.Change) {
	s := c.Session
	if s.Key != w.key && w.err == nil {
		w.err = fmt.Errorf("the row names session %q of tenant %q", s.SessionID, s.Tenant)
	}
	if c.Created {
		w.exec(`INSERT INTO sessions (tenant, session_id, agent_type, parent_id, root_id, created_at, status, version, epoch, turn, step_count,
				resume_count, message_count, state_version, state_base, state_writes, state_bytes, output, failure, stream_sequence,
				stream_step, current_run_id, checkpoint_id, suspension_context, interruption, children, usage_count, user_id,
				organization_id, tags, metadata, updated_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			append([]any{s.AgentType, s.ParentID, s.RootID, s.CreatedAt}, changing(s)...)...)
		return
	}
	w.update("session", `UPDATE sessions SET status = ?3, version = ?4, epoch = ?5, turn = ?6, step_count = ?7,
			resume_count = ?8, message_count = ?9, state_version = ?10, state_base = ?11, state_writes = ?12, state_bytes = ?13, output = ?14,
			failure = ?15, stream_sequence = ?16, stream_step = ?17, current_run_id = ?18, checkpoint_id = ?19, suspension_context = ?20,
			interruption = ?21, children = ?22, usage_count = ?23, user_id = ?24, organization_id = ?25, tags = ?26, metadata = ?27,
			updated_at = ?28, expires_at = ?29
		WHERE tenant = ?1 AND session_id = ?2`, changing(s)...)
}

// changing are the columns of a session that commands write over.
func changing(s *session.Session) []any {
	return []any{
		s.Status, s.Version, s.Epoch, s.Turn, s.StepCount,
		s.ResumeCount, s.MessageCount, s.StateVersion, s.StateBase, s.StateWrites, s.StateBytes, s.Output,
		store.In(&s.Failure), s.StreamSequence, s.StreamStep, s.CurrentRunID, s.CheckpointID, store.In(&s.Suspension),
		store.In(&s.Interruption), s.Children, s.UsageCount, s.UserID, s.OrganizationID, store.In(&s.Tags), store.In(&s.Metadata),
		s.UpdatedAt, s.ExpiresAt,
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

const insertFacet = `INSERT INTO session_facets (tenant, session_id, facet, created_at) VALUES (?, ?, ?, ?)`

// rewind takes messages, checkpoints and states away. A checkpoint goes with
// its state too.
func (w *writer) rewind(r *session.Rewind) {
	w.exec(`DELETE FROM messages WHERE tenant = ? AND session_id = ? AND ordinal >= ?`, r.Messages)
	w.exec(`DELETE FROM checkpoints WHERE tenant = ?1 AND session_id = ?2 AND (message_count > ?3 OR (?4 <> 0 AND state_version > ?4))`,
		r.Messages, r.StateVersion)
	if r.StateVersion != 0 {
		w.exec(`DELETE FROM states WHERE tenant = ? AND session_id = ? AND version > ?`, r.StateVersion)
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
	w.exec(`INSERT INTO runs (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, start_sequence,
			step_count, output, failure, completion_reason, settled, attempt, entry, stop, due_at, losses, epoch, executor_id, claimed_at,
			finish_step, finish_version, traceparent, tracestate, created_at, started_at, completed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.RunID, r.AgentType, r.Turn, r.Status, r.RequestKey, blob(r.RequestHash), r.MessageID, r.StartSequence,
		r.StepCount, r.Outcome.Output, store.In(&r.Outcome.Failure), r.Outcome.CompletionReason, r.Settled, r.Attempt, r.Entry, store.In(&r.Stop),
		r.DueAt, r.Losses, r.Epoch, r.ExecutorID, r.ClaimedAt, r.FinishStep, r.FinishVersion, r.Traceparent, r.Tracestate, r.CreatedAt,
		r.StartedAt, r.CompletedAt)
}

// updateRun writes what of a run can change after its start.
func (w *writer) updateRun(r *session.Run) {
	w.update("run", `UPDATE runs SET status = ?4, start_sequence = ?5, step_count = ?6, output = ?7, failure = ?8, completion_reason = ?9,
			settled = ?10, attempt = ?11, stop = ?12, due_at = ?13, losses = ?14, epoch = ?15, executor_id = ?16, claimed_at = ?17,
			finish_step = ?18, finish_version = ?19, started_at = ?20, completed_at = ?21
		WHERE tenant = ?1 AND session_id = ?2 AND run_id = ?3`,
		r.RunID, r.Status, r.StartSequence, r.StepCount, r.Outcome.Output, store.In(&r.Outcome.Failure), r.Outcome.CompletionReason,
		r.Settled, r.Attempt, store.In(&r.Stop), r.DueAt, r.Losses, r.Epoch, r.ExecutorID, r.ClaimedAt, r.FinishStep, r.FinishVersion,
		r.StartedAt, r.CompletedAt)
}
