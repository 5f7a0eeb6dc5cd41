package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

const sessionColumns = `s.agent_type, s.parent_id, s.root_id, s.status, s.version, s.epoch, s.turn, s.step_count,
	s.message_count, s.state_version, s.output, s.failure, s.stream_sequence, s.stream_step, s.current_run_id, s.user_id, s.tags,
	s.metadata, s.created_at, s.updated_at, s.expires_at`

func sessionFields(s *session.Session) []any {
	return []any{
		&s.AgentType, &s.ParentID, &s.RootID, &s.Status, &s.Version, &s.Epoch, &s.Turn, &s.StepCount,
		&s.MessageCount, &s.StateVersion, &s.Output, store.In(&s.Failure), &s.StreamSequence, &s.StreamStep, &s.CurrentRunID, &s.UserID, store.In(&s.Tags),
		store.In(&s.Metadata), &s.CreatedAt, &s.UpdatedAt, &s.ExpiresAt,
	}
}

const runColumns = `r.run_id, r.agent_type, r.turn, r.status, r.request_key, r.request_hash, r.message_id, r.start_sequence,
	r.step_count, r.output, r.failure, r.completion_reason, r.settled, r.attempt, r.epoch, r.executor_id, r.claimed_at,
	r.finish_step, r.finish_version, r.traceparent, r.tracestate, r.created_at, r.started_at, r.completed_at`

func runFields(r *session.Run) []any {
	return []any{
		&r.RunID, &r.AgentType, &r.Turn, &r.Status, &r.RequestKey, &r.RequestHash, &r.MessageID, &r.StartSequence,
		&r.StepCount, &r.Outcome.Output, store.In(&r.Outcome.Failure), &r.Outcome.CompletionReason, &r.Settled, &r.Attempt, &r.Epoch,
		&r.ExecutorID, &r.ClaimedAt, &r.FinishStep, &r.FinishVersion, &r.Traceparent, &r.Tracestate, &r.CreatedAt,
		&r.StartedAt, &r.CompletedAt,
	}
}

// scanRun returns nil for no row.
func scanRun(row pgx.Row) (*session.Run, error) {
	var r session.Run
	err := row.Scan(runFields(&r)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !r.Status.Live() {
		r.Outcome.Status = r.Status
	}
	return &r, nil
}

const messageColumns = `m.ordinal, m.message_id, m.role, m.run_id, m.step, m.created_at, m.body`

func scanMessage(row pgx.Row) (m session.Message, err error) {
	err = row.Scan(&m.Ordinal, &m.ID, &m.Role, &m.RunID, &m.Step, &m.CreatedAt, &m.Body)
	return m, err
}

// each calls scan for every row and closes the rows.
func each(rows pgx.Rows, scan func(pgx.Row) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// optional makes scan leave things as they are when there is no row.
func optional(scan func(pgx.Row) error) func(pgx.Row) error {
	return func(row pgx.Row) error {
		if err := scan(row); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	}
}
