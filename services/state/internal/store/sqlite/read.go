package sqlite

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// read runs f in one reading transaction: what it sees is as of one moment.
func (s *Store) read(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.reader.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // there is nothing to keep
	return f(tx)
}

// known gives NotFound (SESSION_NOT_FOUND) when there is no such session, and
// its number of messages.
func known(ctx context.Context, tx *sql.Tx, key session.Key) (messages int64, err error) {
	s, err := readSession(ctx, tx, key)
	if err != nil {
		return 0, err
	}
	if s == nil {
		return 0, session.NoSession(key)
	}
	return s.MessageCount, nil
}

// Session implements store.Reader.
func (s *Store) Session(ctx context.Context, key session.Key) (found *session.Session, run *session.Run, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if found, err = readSession(ctx, tx, key); err != nil {
			return err
		}
		if found == nil {
			return session.NoSession(key)
		}
		if err := readState(ctx, tx, found); err != nil {
			return err
		}
		run, err = readRun(ctx, tx, key, found.CurrentRunID)
		return err
	})
	return found, run, wrap(ctx, err, "read session %q of tenant %q", key.SessionID, key.Tenant)
}

// Run implements store.Reader.
func (s *Store) Run(ctx context.Context, key session.Key, runID string) (run *session.Run, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if _, err := known(ctx, tx, key); err != nil {
			return err
		}
		run, err = readRun(ctx, tx, key, runID)
		if err == nil && run == nil {
			return session.NoRun(runID)
		}
		return err
	})
	return run, wrap(ctx, err, "read run %q", runID)
}

// Runs implements store.Reader.
func (s *Store) Runs(ctx context.Context, key session.Key, beforeTurn int32, limit int) (page []session.Run, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		if _, err := known(ctx, tx, key); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT `+runColumns+` FROM runs r
			WHERE r.tenant = ?1 AND r.session_id = ?2 AND (?3 = 0 OR r.turn < ?3) ORDER BY r.turn DESC LIMIT ?4`,
			key.Tenant, key.SessionID, beforeTurn, limit)
		return collect(rows, err, func(row scanner) error {
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
	err = s.read(ctx, func(tx *sql.Tx) error {
		if total, err = known(ctx, tx, key); err != nil {
			return err
		}
		messages, err = readMessages(ctx, tx, `SELECT `+messageColumns+` FROM
				(SELECT *, sum(size) OVER (ORDER BY ordinal) AS total FROM
					(SELECT * FROM messages WHERE tenant = ?1 AND session_id = ?2 AND ordinal >= ?3 ORDER BY ordinal LIMIT ?4)) m
			WHERE m.total <= ?5 OR m.ordinal = ?3 ORDER BY m.ordinal`, key.Tenant, key.SessionID, page.From, page.Limit, page.MaxBytes)
		return err
	})
	return messages, total, wrap(ctx, err, "read messages of session %q", key.SessionID)
}
