package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

const sessionColumns = `s.agent_type, s.parent_id, s.root_id, s.status, s.version, s.epoch, s.turn, s.step_count,
	s.resume_count, s.message_count, s.state_version, s.state_base, s.state_writes, s.state_bytes, s.output, s.failure,
	s.current_run_id, s.checkpoint_id, s.suspension_context, s.interruption, s.children, s.waiting, s.usage_count, s.user_id,
	s.organization_id, s.tags, s.metadata, s.created_at, s.updated_at, s.expires_at,
	s.position, s.claims`

func sessionFields(s *session.Session) []any {
	return []any{
		&s.AgentType, &s.ParentID, &s.RootID, &s.Status, &s.Version, &s.Epoch, &s.Turn, &s.StepCount,
		&s.ResumeCount, &s.MessageCount, &s.StateVersion, &s.StateBase, &s.StateWrites, &s.StateBytes, &s.Output, store.In(&s.Failure),
		&s.CurrentRunID, &s.CheckpointID, store.In(&s.Suspension), store.In(&s.Interruption), &s.Children, &s.Waiting, &s.UsageCount, &s.UserID,
		&s.OrganizationID, store.In(&s.Tags), store.In(&s.Metadata), &s.CreatedAt, &s.UpdatedAt, &s.ExpiresAt,
		&s.Position, &s.Claims,
	}
}

// readSession returns the session without its custom state, and nil when there
// is none.
func readSession(ctx context.Context, c *connection, key session.Key) (*session.Session, error) {
	s := session.Session{Key: key}
	found, err := c.one(ctx, `SELECT `+sessionColumns+` FROM sessions s WHERE s.tenant = ? AND s.session_id = ?`,
		arguments(key.Tenant, key.SessionID), sessionFields(&s)...)
	if !found {
		return nil, err
	}
	return &s, nil
}

var errNotKept = errors.New("the custom state is not kept")

// readState returns the custom state of a version, made of the whole one of
// the version base and the writes after it.
func readState(ctx context.Context, c *connection, key session.Key, base, version int64) (string, error) {
	var texts []string
	err := c.each(ctx, `SELECT state FROM states WHERE tenant = ? AND session_id = ? AND version BETWEEN ? AND ? ORDER BY version`,
		arguments(key.Tenant, key.SessionID, base, version), func(row scanner) error {
			var text string
			err := row.Scan(&text)
			texts = append(texts, text)
			return err
		})
	switch {
	case err != nil:
		return "", err
	case len(texts) == 0:
		return "", fmt.Errorf("version %d: %w", version, errNotKept)
	case len(texts) == 1:
		return texts[0], nil
	default:
		return session.Fold(texts[0], texts[1:])
	}
}

// runColumns are those of a run, with its output or what stands for it.
func runColumns(output string) string {
	return `r.run_id, r.agent_type, r.turn, r.status, r.request_key, r.request_hash, r.message_id,
		r.step_count, ` + output + `, r.failure, r.completion_reason, r.attempt, r.entry, r.stop, r.due_at, r.losses, r.epoch,
		r.executor_id, r.claimed_at, r.finish_step, r.finish_version, r.traceparent, r.tracestate, r.created_at, r.started_at, r.completed_at,
		r.deadline_at, r.on_busy, r.place, r.start_message_count, r.start_state_version, r.start_state_base, r.turn_message_count,
		r.finish_reason, r.start_position, r.end_position, r.usage`
}

func runFields(r *session.Run) []any {
	return []any{
		&r.RunID, &r.AgentType, &r.Turn, &r.Status, &r.RequestKey, &r.RequestHash, &r.MessageID,
		&r.StepCount, &r.Outcome.Output, store.In(&r.Outcome.Failure), &r.Outcome.CompletionReason, &r.Attempt, &r.Entry,
		store.In(&r.Stop), &r.DueAt, &r.Losses, &r.Epoch, &r.ExecutorID, &r.ClaimedAt, &r.FinishStep, &r.FinishVersion, &r.Traceparent,
		&r.Tracestate, &r.CreatedAt, &r.StartedAt, &r.CompletedAt,
		&r.DeadlineAt, &r.OnBusy, &r.Place, &r.StartMessageCount, &r.StartStateVersion, &r.StartStateBase, &r.TurnMessageCount,
		&r.Outcome.FinishReason, &r.StartPosition, &r.EndPosition, store.In(&r.Outcome.Usage),
	}
}

// ended fills in what a run's row keeps once.
func ended(r *session.Run) {
	if r.Status.Over() {
		r.Outcome.Status = r.Status
	}
}

// readWaiting returns the runs that wait, in the order in which they will begin.
func readWaiting(ctx context.Context, c *connection, key session.Key) (runs []session.Run, err error) {
	err = c.each(ctx, runsWaiting, arguments(key.Tenant, key.SessionID), func(row scanner) error {
		var r session.Run
		err := row.Scan(runFields(&r)...)
		runs = append(runs, r)
		return err
	})
	return runs, err
}

// The queries of single runs are whole texts, so that they are not put together
// for every command.
var (
	runByID     = `SELECT ` + runColumns("r.output") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.run_id = ?`
	runBare     = `SELECT ` + runColumns("''") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.run_id = ?`
	runByKey    = `SELECT ` + runColumns("r.output") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.request_key = ? AND r.request_key <> ''`
	runAnswers  = `SELECT ` + runColumns("r.output") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.message_id = ? AND r.turn > 0 ORDER BY r.turn DESC LIMIT 1`
	runsWaiting = `SELECT ` + runColumns("r.output") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.status = 'waiting' ORDER BY r.place`
	runLive     = `SELECT ` + runColumns("r.output") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.status IN ('queued', 'running')`
)

// readRun returns the run that one of the queries above finds, or nil. which is
// empty for those without a third argument.
func readRun(ctx context.Context, c *connection, query string, key session.Key, which ...any) (*session.Run, error) {
	var r session.Run
	found, err := c.one(ctx, query, append(arguments(key.Tenant, key.SessionID), which...), runFields(&r)...)
	if !found {
		return nil, err
	}
	ended(&r)
	return &r, nil
}

const messageColumns = `m.ordinal, m.message_id, m.role, m.run_id, m.step, m.created_at, m.body`

func readMessages(ctx context.Context, c *connection, query string, args ...any) ([]session.Message, error) {
	var messages []session.Message
	err := c.each(ctx, query, args, func(row scanner) error {
		var m session.Message
		err := row.Scan(&m.Ordinal, &m.ID, &m.Role, &m.RunID, &m.Step, &m.CreatedAt, &m.Body)
		messages = append(messages, m)
		return err
	})
	return messages, err
}

const checkpointColumns = `k.checkpoint_id, k.run_id, k.step, k.epoch, k.version, k.message_count, k.status,
	k.state_version, k.state_base, k.warnings, k.created_at`

func checkpointFields(k *session.Checkpoint) []any {
	return []any{
		&k.ID, &k.RunID, &k.Step, &k.Epoch, &k.Version, &k.MessageCount, &k.Status,
		&k.StateVersion, &k.StateBase, store.In(&k.Warnings), &k.CreatedAt,
	}
}

// readCheckpoint returns the newest checkpoint that fits a condition on k, or
// nil.
func readCheckpoint(ctx context.Context, c *connection, key session.Key, condition string, which ...any) (*session.Checkpoint, error) {
	var k session.Checkpoint
	found, err := c.one(ctx, `SELECT `+checkpointColumns+` FROM checkpoints k WHERE k.tenant = ? AND k.session_id = ? `+condition+` ORDER BY k.step DESC LIMIT 1`,
		append(arguments(key.Tenant, key.SessionID), which...), checkpointFields(&k)...)
	if !found {
		return nil, err
	}
	return &k, nil
}

// readCheckpointNamed finds a checkpoint by the step that its id tells.
func readCheckpointNamed(ctx context.Context, c *connection, key session.Key, id string) (*session.Checkpoint, error) {
	first, last := session.CheckpointSteps(id)
	return readCheckpoint(ctx, c, key, `AND k.step BETWEEN ? AND ? AND k.checkpoint_id = ?`, first, last, id)
}

const callColumns = `l.call_id, l.session_id, l.run_id, l.step, l.step_id, l.tool_name, l.kind, l.approval_id, l.input, l.stash,
	l.created_at, l.deadline_at, l.answer, l.revision, l.response, l.answered_at, l.consumed_at, l.consumed_step, l.late, l.late_at, l.told,
	l.told_step`

// readCalls returns the calls that fit a condition on l, which has the order
// too.
func readCalls(ctx context.Context, c *connection, condition string, args ...any) ([]session.Call, error) {
	var calls []session.Call
	err := c.each(ctx, `SELECT `+callColumns+` FROM calls l WHERE `+condition, args, func(row scanner) error {
		var l session.Call
		err := row.Scan(&l.CallID, &l.SessionID, &l.RunID, &l.Step, &l.StepID, &l.ToolName, &l.Kind, &l.ApprovalID, &l.Input, bytesOf(&l.Stash),
			&l.CreatedAt, &l.DeadlineAt, &l.Answer, &l.Revision, bytesOf(&l.Response), &l.AnsweredAt, &l.ConsumedAt, &l.ConsumedStep, bytesOf(&l.Late), &l.LateAt, &l.Told,
			&l.ToldStep)
		calls = append(calls, l)
		return err
	})
	return calls, err
}

// readChildren returns the sub-sessions by session id.
func readChildren(ctx context.Context, c *connection, key session.Key) ([]session.Child, error) {
	var children []session.Child
	err := c.each(ctx, `SELECT child_id, agent_type, call_id, status, mode, name, location, remote, started_at, completed_at
		FROM sub_sessions WHERE tenant = ? AND session_id = ? ORDER BY child_id`, arguments(key.Tenant, key.SessionID), func(row scanner) error {
		var d session.Child
		err := row.Scan(&d.SessionID, &d.AgentType, &d.CallID, &d.Status, &d.Mode, &d.Name, &d.Location, &d.Remote, &d.StartedAt, &d.CompletedAt)
		children = append(children, d)
		return err
	})
	return children, err
}

// column reads bytes where none are kept as the empty text.
type column struct{ of *[]byte }

func bytesOf(b *[]byte) column { return column{b} }

// Scan implements sql.Scanner.
func (c column) Scan(from any) error {
	b, ok := from.([]byte)
	if !ok {
		return fmt.Errorf("decode column: %T is not a blob", from)
	}
	*c.of = append([]byte(nil), b...)
	return nil
}

// list passes strings as one argument, for json_each.
func list[T ~string](items []T) string {
	text, err := json.Marshal(items)
	if err != nil || items == nil {
		return "[]" // strings always encode
	}
	return string(text)
}
