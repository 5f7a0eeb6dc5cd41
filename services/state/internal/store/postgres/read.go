package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// read runs f in a transaction with one snapshot: what it sees is as of one
// moment.
func (s *Store) read(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, f)
}

// known gives NotFound (SESSION_NOT_FOUND) when there is no such session, and
// its number of messages.
func known(ctx context.Context, tx pgx.Tx, key session.Key) (messages int64, err error) {
	err = tx.QueryRow(ctx, `SELECT message_count FROM sessions WHERE tenant = $1 AND session_id = $2`, key.Tenant, key.SessionID).Scan(&messages)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, session.NoSession(key)
	}
	return messages, err
}

// Session implements store.Reader.
func (s *Store) Session(ctx context.Context, key session.Key) (*session.Session, *session.Run, error) {
	found, run := session.Session{Key: key}, session.Run{}
	fields := append(append(sessionFields(&found), &found.State), runFields(&run)...)
	err := s.pool.QueryRow(ctx, `SELECT `+sessionColumns+`, st.state, `+runColumns+` FROM sessions s
		JOIN states st ON st.tenant = s.tenant AND st.session_id = s.session_id AND st.version = s.state_version
		JOIN runs r ON r.tenant = s.tenant AND r.session_id = s.session_id AND r.run_id = s.current_run_id
		WHERE s.tenant = $1 AND s.session_id = $2`, key.Tenant, key.SessionID).Scan(fields...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, session.NoSession(key)
	}
	if err != nil {
		return nil, nil, wrap(ctx, err, "read session %q of tenant %q", key.SessionID, key.Tenant)
	}
	if !run.Status.Live() {
		run.Outcome.Status = run.Status
	}
	return &found, &run, nil
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, key session.Key, runID string) (run *session.Run, err error) {
	err = s.read(ctx, func(tx pgx.Tx) error {
		if _, err := known(ctx, tx, key); err != nil {
			return err
		}
		run, err = scanRun(tx.QueryRow(ctx, `SELECT `+runColumns+` FROM runs r
			WHERE r.tenant = $1 AND r.session_id = $2 AND r.run_id = $3`, key.Tenant, key.SessionID, runID))
		if err == nil && run == nil {
			return session.NoRun(runID)
		}
		return err
	})
	return run, wrap(ctx, err, "read run %q", runID)
}

// Runs implements store.Reader.
func (s *Store) Runs(ctx context.Context, key session.Key, beforeTurn int32, limit int) (page []session.Run, err error) {
	err = s.read(ctx, func(tx pgx.Tx) error {
		if _, err := known(ctx, tx, key); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT `+runColumns+` FROM runs r
			WHERE r.tenant = $1 AND r.session_id = $2 AND ($3 = 0 OR r.turn < $3) ORDER BY r.turn DESC LIMIT $4`,
			key.Tenant, key.SessionID, beforeTurn, limit)
		if err != nil {
			return err
		}
		return each(rows, func(row pgx.Row) error {
			r, err := scanRun(row)
			if err != nil {
				return err
			}
			page = append(page, *r)
			return nil
		})
	})
	return page, wrap(ctx, err, "read runs of session %q", key.SessionID)
}

// Messages implements store.Reader.
func (s *Store) Messages(ctx context.Context, key session.Key, page store.Page) (messages []session.Message, total int64, err error) {
	err = s.read(ctx, func(tx pgx.Tx) error {
		if total, err = known(ctx, tx, key); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT `+messageColumns+` FROM
				(SELECT *, sum(size) OVER (ORDER BY ordinal) AS total FROM
					(SELECT * FROM messages WHERE tenant = $1 AND session_id = $2 AND ordinal >= $3 ORDER BY ordinal LIMIT $4) page) m
			WHERE m.total <= $5 OR m.ordinal = $3 ORDER BY m.ordinal`, key.Tenant, key.SessionID, page.From, page.Limit, page.MaxBytes)
		if err != nil {
			return err
		}
		return each(rows, func(row pgx.Row) error {
			m, err := scanMessage(row)
			messages = append(messages, m)
			return err
		})
	})
	return messages, total, wrap(ctx, err, "read messages of session %q", key.SessionID)
}
