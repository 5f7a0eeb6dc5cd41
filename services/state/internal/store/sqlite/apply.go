package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// writer collects the statements of a change.
type writer struct {
	key        session.Key
	statements []statement
}

type statement struct {
	query string
	args  []any
}

// exec adds a statement whose first two arguments are tenant and session id.
func (w *writer) exec(query string, args ...any) {
	w.statements = append(w.statements, statement{query, append([]any{w.key.Tenant, w.key.SessionID}, args...)})
}

// apply writes the change.
func apply(ctx context.Context, tx *sql.Tx, key session.Key, c *session.Change) error {
	w := writer{key: key}
	w.change(c)
	for _, s := range w.statements {
		if _, err := tx.ExecContext(ctx, s.query, s.args...); err != nil {
			return fmt.Errorf("write rows: %w", err)
		}
	}
	return nil
}

func (w *writer) change(c *session.Change) {
	if c.Session != nil {
		w.session(c)
	}
	if c.NewRun != nil {
		w.insertRun(c.NewRun)
	}
	for i := range c.Runs {
		w.updateRun(&c.Runs[i])
	}
	for _, m := range c.Messages {
		w.exec(`INSERT INTO messages (tenant, session_id, ordinal, message_id, role, run_id, step, created_at, size, body)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, m.Ordinal, m.ID, m.Role, m.RunID, m.Step, m.CreatedAt, len(m.Body), blob(m.Body))
	}
	w.journal(c)
	if c.Checkpoint != nil {
		w.checkpoint(c.Checkpoint)
	}
	for _, u := range c.Usage {
		w.exec(`INSERT INTO usage_entries (tenant, session_id, run_id, step, position, recorded_at, model, prompt_tokens, completion_tokens,
				reasoning_tokens, cached_tokens, total_tokens, tool, success, duration_ms)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, u.RunID, u.Step, u.Position, u.At, u.Model, u.PromptTokens, u.CompletionTokens,
			u.ReasoningTokens, u.CachedTokens, u.TotalTokens, u.Tool, u.Success, u.DurationMS)
	}
}

func (w *writer) session(c *session.Change) {
	s := c.Session
	if c.Created {
		w.exec(`INSERT INTO sessions (tenant, session_id, agent_type, parent_id, root_id, status, version, epoch, turn, step_count,
				message_count, state_version, output, failure, stream_sequence, stream_step, current_run_id, user_id, tags, metadata,
				created_at, updated_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			s.AgentType, s.ParentID, s.RootID, s.Status, s.Version, s.Epoch, s.Turn, s.StepCount,
			s.MessageCount, s.StateVersion, s.Output, store.In(&s.Failure), s.StreamSequence, s.StreamStep, s.CurrentRunID, s.UserID, store.In(&s.Tags),
			store.In(&s.Metadata), s.CreatedAt, s.UpdatedAt, s.ExpiresAt)
	} else {
		w.exec(`UPDATE sessions SET status = ?3, version = ?4, epoch = ?5, turn = ?6, step_count = ?7, message_count = ?8,
				state_version = ?9, output = ?10, failure = ?11, stream_sequence = ?12, stream_step = ?13, current_run_id = ?14, updated_at = ?15,
				expires_at = ?16
			WHERE tenant = ?1 AND session_id = ?2`,
			s.Status, s.Version, s.Epoch, s.Turn, s.StepCount, s.MessageCount,
			s.StateVersion, s.Output, store.In(&s.Failure), s.StreamSequence, s.StreamStep, s.CurrentRunID, s.UpdatedAt, s.ExpiresAt)
	}
	if c.NewState {
		w.exec(`INSERT INTO states (tenant, session_id, version, state) VALUES (?, ?, ?, ?)`, s.StateVersion, s.State)
	}
}

func (w *writer) insertRun(r *session.Run) {
	w.exec(`INSERT INTO runs (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, start_sequence,
			step_count, output, failure, completion_reason, settled, attempt, epoch, executor_id, claimed_at, finish_step,
			finish_version, traceparent, tracestate, created_at, started_at, completed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.RunID, r.AgentType, r.Turn, r.Status, r.RequestKey, blob(r.RequestHash), r.MessageID, r.StartSequence,
		r.StepCount, r.Outcome.Output, store.In(&r.Outcome.Failure), r.Outcome.CompletionReason, r.Settled, r.Attempt, r.Epoch,
		r.ExecutorID, r.ClaimedAt, r.FinishStep, r.FinishVersion, r.Traceparent, r.Tracestate, r.CreatedAt, r.StartedAt, r.CompletedAt)
}

// updateRun writes what of a run can change after its start.
func (w *writer) updateRun(r *session.Run) {
	w.exec(`UPDATE runs SET status = ?4, start_sequence = ?5, step_count = ?6, output = ?7, failure = ?8, completion_reason = ?9,
			settled = ?10, attempt = ?11, epoch = ?12, executor_id = ?13, claimed_at = ?14, finish_step = ?15, finish_version = ?16,
			started_at = ?17, completed_at = ?18
		WHERE tenant = ?1 AND session_id = ?2 AND run_id = ?3`,
		r.RunID, r.Status, r.StartSequence, r.StepCount, r.Outcome.Output, store.In(&r.Outcome.Failure), r.Outcome.CompletionReason,
		r.Settled, r.Attempt, r.Epoch, r.ExecutorID, r.ClaimedAt, r.FinishStep, r.FinishVersion, r.StartedAt, r.CompletedAt)
}

func (w *writer) journal(c *session.Change) {
	if c.ClearJournal {
		w.exec(`DELETE FROM plans WHERE tenant = ? AND session_id = ?`)
		w.exec(`DELETE FROM results WHERE tenant = ? AND session_id = ?`)
	}
	if p := c.Plan; p != nil {
		w.exec(`INSERT INTO plans (tenant, session_id, step, body, call_ids, stream_sequence, usage) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			p.Step, blob(p.Plan), store.In(&p.CallIDs), p.Sequence, store.In(&p.Usage))
	}
	if r := c.Result; r != nil {
		w.exec(`INSERT INTO results (tenant, session_id, position, call_id, body, ops, usage) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			c.ResultAt, r.CallID, blob(r.Body), store.In(&r.Ops), store.In(&r.Usage))
	}
}

func (w *writer) checkpoint(c *session.Checkpoint) {
	w.exec(`INSERT INTO checkpoints (tenant, session_id, checkpoint_id, run_id, step, epoch, version, message_count, stream_sequence,
			status, state_version, warnings, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, c.ID, c.RunID, c.Step, c.Epoch, c.Version, c.MessageCount, c.StreamSequence,
		c.Status, c.StateVersion, store.In(&c.Warnings), c.CreatedAt)
}

// blob keeps a missing body apart from NULL, which no column takes.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
