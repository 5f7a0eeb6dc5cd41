package sqlite

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

func (w *writer) message(m *session.Message) {
	w.exec(`INSERT INTO messages (tenant, session_id, ordinal, message_id, role, run_id, step, created_at, size, body)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, m.Ordinal, m.ID, m.Role, m.RunID, m.Step, m.CreatedAt, len(m.Body), blob(m.Body))
}

func (w *writer) journal(c *session.Change) {
	if p := c.Plan; p != nil {
		w.exec(`INSERT INTO plans (tenant, session_id, step, body, call_ids, usage, ops) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			p.Step, blob(p.Plan), store.In(&p.CallIDs), store.In(&p.Usage), store.In(&p.Ops))
	}
	if r := c.Result; r != nil {
		w.exec(`INSERT INTO results (tenant, session_id, position, call_id, body, ops, usage) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			c.ResultAt, r.CallID, blob(r.Body), store.In(&r.Ops), store.In(&r.Usage))
	}
	if c.ClearJournal {
		w.exec(`DELETE FROM plans WHERE tenant = ? AND session_id = ?`)
		w.exec(`DELETE FROM results WHERE tenant = ? AND session_id = ?`)
	}
}

func (w *writer) checkpoint(k *session.Checkpoint) {
	w.exec(`INSERT INTO checkpoints (tenant, session_id, checkpoint_id, run_id, step, epoch, version, message_count,
			status, state_version, state_base, warnings, created_at, record)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, k.ID, k.RunID, k.Step, k.Epoch, k.Version, k.MessageCount,
		k.Status, k.StateVersion, k.StateBase, store.In(&k.Warnings), k.CreatedAt, blob(k.Record))
}

func (w *writer) usage(u *session.UsageEntry) {
	w.exec(`INSERT INTO usage_entries (tenant, session_id, run_id, step, position, recorded_at, kind, source, model, prompt_tokens,
			completion_tokens, reasoning_tokens, cached_tokens, total_tokens, tool, success, duration_ms, type, name, value)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, u.RunID, u.Step, u.Position, u.At, u.Kind, u.Source, u.Model, u.PromptTokens,
		u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens, u.Tool, u.Success, u.DurationMS, u.Type, u.Name, u.Value)
}

func (w *writer) calls(c *session.Change) {
	for _, id := range c.DropCalls {
		w.exec(`DELETE FROM calls WHERE tenant = ? AND session_id = ? AND root_id = ? AND call_id = ?`, w.root, id)
	}
	for i := range c.NewCalls {
		l := &c.NewCalls[i]
		w.exec(`INSERT INTO calls (tenant, session_id, root_id, call_id, run_id, step, step_id, tool_name, kind, approval_id, input, stash,
				created_at, deadline_at, answer, revision, response, answered_at, consumed_at, consumed_step, late, late_at, told, told_step)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, append([]any{w.root, l.CallID}, callColumnsOf(l)...)...)
	}
	for i := range c.Calls {
		l := &c.Calls[i]
		w.update("call", `UPDATE calls SET run_id = ?, step = ?, step_id = ?, tool_name = ?, kind = ?, approval_id = ?, input = ?,
				stash = ?, created_at = ?, deadline_at = ?, answer = ?, revision = ?, response = ?, answered_at = ?, consumed_at = ?,
				consumed_step = ?, late = ?, late_at = ?, told = ?, told_step = ?
			WHERE root_id = ? AND call_id = ? AND tenant = ? AND session_id = ?`, append(callColumnsOf(l), w.root, l.CallID)...)
	}
}

func callColumnsOf(l *session.Call) []any {
	return []any{
		l.RunID, l.Step, l.StepID, l.ToolName, l.Kind, l.ApprovalID, l.Input, blob(l.Stash),
		l.CreatedAt, l.DeadlineAt, l.Answer, l.Revision, blob(l.Response), l.AnsweredAt, l.ConsumedAt, l.ConsumedStep, blob(l.Late), l.LateAt, l.Told,
		l.ToldStep,
	}
}

func (w *writer) child(d *session.Child) {
	w.exec(`INSERT INTO sub_sessions (tenant, session_id, child_id, agent_type, call_id, status, mode, name, location, remote, started_at, completed_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant, session_id, child_id) DO UPDATE SET agent_type = excluded.agent_type, call_id = excluded.call_id,
			status = excluded.status, mode = excluded.mode, name = excluded.name, location = excluded.location, remote = excluded.remote,
			started_at = excluded.started_at, completed_at = excluded.completed_at`,
		d.SessionID, d.AgentType, d.CallID, d.Status, d.Mode, d.Name, d.Location, d.Remote, d.StartedAt, d.CompletedAt)
}

// blob keeps a missing body apart from NULL, which no column takes.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
