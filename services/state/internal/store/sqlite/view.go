package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// view reads what need names. It makes one query for each part: in one
// process a query costs microseconds.
func view(ctx context.Context, tx *sql.Tx, key session.Key, need session.Need) (*session.View, error) {
	v := &session.View{}
	if need.AgentType != "" {
		err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM agents WHERE agent_type = ?)`, need.AgentType).Scan(&v.AgentKnown)
		if err != nil {
			return nil, err
		}
	}
	var err error
	if v.Session, err = readSession(ctx, tx, key); err != nil || v.Session == nil {
		return v, err
	}
	steps := []func(context.Context, *sql.Tx, session.Key, session.Need, *session.View) error{viewRuns, viewJournal, viewCheckpoint, viewMessages}
	for _, step := range steps {
		if err := step(ctx, tx, key, need, v); err != nil {
			return nil, err
		}
	}
	if need.State || need.Written && v.Journal.Writes() {
		if err := readState(ctx, tx, v.Session); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// readSession returns nil when there is no such session.
func readSession(ctx context.Context, q querier, key session.Key) (*session.Session, error) {
	s := session.Session{Key: key}
	err := q.QueryRowContext(ctx, `SELECT `+sessionColumns+` FROM sessions s WHERE s.tenant = ? AND s.session_id = ?`,
		key.Tenant, key.SessionID).Scan(sessionFields(&s)...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// readState fills in the session's custom state.
func readState(ctx context.Context, q querier, s *session.Session) error {
	return q.QueryRowContext(ctx, `SELECT state FROM states WHERE tenant = ? AND session_id = ? AND version = ?`,
		s.Tenant, s.SessionID, s.StateVersion).Scan(&s.State)
}

func viewRuns(ctx context.Context, tx *sql.Tx, key session.Key, need session.Need, v *session.View) (err error) {
	if need.RunID != "" {
		if v.Run, err = readRun(ctx, tx, key, need.RunID); err != nil {
			return err
		}
	}
	if need.RequestKey != "" {
		v.Keyed, err = scanRun(tx.QueryRowContext(ctx, `SELECT `+runColumns+` FROM runs r
			WHERE r.tenant = ? AND r.session_id = ? AND r.request_key = ? AND r.request_key <> ''`, key.Tenant, key.SessionID, need.RequestKey))
		if err != nil {
			return err
		}
	}
	if need.Open {
		return viewOpen(ctx, tx, key, v)
	}
	return nil
}

func readRun(ctx context.Context, q querier, key session.Key, runID string) (*session.Run, error) {
	return scanRun(q.QueryRowContext(ctx, `SELECT `+runColumns+` FROM runs r
		WHERE r.tenant = ? AND r.session_id = ? AND r.run_id = ?`, key.Tenant, key.SessionID, runID))
}

func viewOpen(ctx context.Context, tx *sql.Tx, key session.Key, v *session.View) (err error) {
	v.Live, err = scanRun(tx.QueryRowContext(ctx, `SELECT `+runColumns+` FROM runs r
		WHERE r.tenant = ? AND r.session_id = ? AND r.status IN ('queued', 'running')`, key.Tenant, key.SessionID))
	if err != nil {
		return err
	}
	v.Unsettled, err = scanRun(tx.QueryRowContext(ctx, `SELECT `+runColumns+` FROM runs r
		WHERE r.tenant = ? AND r.session_id = ? AND NOT r.settled AND r.status NOT IN ('queued', 'running')`, key.Tenant, key.SessionID))
	return err
}

func viewJournal(ctx context.Context, tx *sql.Tx, key session.Key, need session.Need, v *session.View) error {
	if !need.Journal {
		return nil
	}
	var j session.Journal
	err := tx.QueryRowContext(ctx, `SELECT step, body, call_ids, stream_sequence, usage FROM plans WHERE tenant = ? AND session_id = ?`,
		key.Tenant, key.SessionID).Scan(&j.Step, &j.Plan, store.In(&j.CallIDs), &j.Sequence, store.In(&j.Usage))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	v.Journal = &j
	rows, err := tx.QueryContext(ctx, `SELECT call_id, body, ops, usage FROM results WHERE tenant = ? AND session_id = ? ORDER BY position`,
		key.Tenant, key.SessionID)
	return collect(rows, err, func(row scanner) error {
		var r session.Result
		err := row.Scan(&r.CallID, &r.Body, store.In(&r.Ops), store.In(&r.Usage))
		j.Results = append(j.Results, r)
		return err
	})
}

func viewCheckpoint(ctx context.Context, tx *sql.Tx, key session.Key, need session.Need, v *session.View) error {
	if !need.Checkpoint || v.Session.StepCount == 0 {
		return nil
	}
	var c session.Checkpoint
	err := tx.QueryRowContext(ctx, `SELECT checkpoint_id, run_id, step, epoch, version, message_count, stream_sequence, status,
			state_version, warnings, created_at
		FROM checkpoints WHERE tenant = ? AND session_id = ? AND step = ?`, key.Tenant, key.SessionID, v.Session.StepCount).
		Scan(&c.ID, &c.RunID, &c.Step, &c.Epoch, &c.Version, &c.MessageCount, &c.StreamSequence, &c.Status,
			&c.StateVersion, store.In(&c.Warnings), &c.CreatedAt)
	if err != nil {
		return err
	}
	v.Checkpoint = &c
	return nil
}

func viewMessages(ctx context.Context, tx *sql.Tx, key session.Key, need session.Need, v *session.View) error {
	if len(need.MessageIDs) > 0 {
		rows, err := tx.QueryContext(ctx, `SELECT message_id FROM messages
			WHERE tenant = ? AND session_id = ? AND message_id IN (SELECT value FROM json_each(?))`, key.Tenant, key.SessionID, list(need.MessageIDs))
		err = collect(rows, err, func(row scanner) error {
			var id string
			err := row.Scan(&id)
			v.Taken = append(v.Taken, id)
			return err
		})
		if err != nil {
			return err
		}
	}
	if need.Tail.Messages == 0 {
		return nil
	}
	var err error
	v.Tail, err = readMessages(ctx, tx, `SELECT `+messageColumns+` FROM
			(SELECT *, sum(size) OVER (ORDER BY ordinal DESC) AS total, row_number() OVER (ORDER BY ordinal DESC) AS place FROM
				(SELECT * FROM messages WHERE tenant = ? AND session_id = ? ORDER BY ordinal DESC LIMIT ?)) m
		WHERE m.total <= ? OR m.place = 1 ORDER BY m.ordinal DESC`, key.Tenant, key.SessionID, need.Tail.Messages, need.Tail.Bytes)
	slices.Reverse(v.Tail)
	return err
}

func readMessages(ctx context.Context, q querier, query string, args ...any) ([]session.Message, error) {
	var messages []session.Message
	rows, err := q.QueryContext(ctx, query, args...)
	err = collect(rows, err, func(row scanner) error {
		var m session.Message
		err := row.Scan(messageFields(&m)...)
		messages = append(messages, m)
		return err
	})
	return messages, err
}
