// Package postgres keeps the rows of the state service in PostgreSQL, for any
// number of processes.
//
// The row of a session is the lock of everything that belongs to the session.
// A command locks it first, reads what else it needs, and writes; each statement
// has a snapshot of its own (read committed), taken after the lock, so it sees
// what the former holder of the lock has written. A session that is new has no
// row to lock: of two commands that create it, the second runs into the primary
// key and is shown the first one's session in another attempt.
//
// What a caller is told about a commit is what PostgreSQL says of it: with
// synchronous_commit on, as is its default, an answered command survives the
// crash of the server.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// statementLimit bounds every statement, the wait for a lock included, and how
// long a transaction may stand still, where the URL says nothing else.
const statementLimit = 30 * time.Second

var _ store.Store = (*Store)(nil)

// Store is a store.Store.
type Store struct{ pool *pgxpool.Pool }

// Open connects to the database with at most the given number of connections
// and brings its schema up to date. Several processes may do so at once.
//
// Invalid (CONFIG_INVALID): the URL cannot be read, or the database does not
// keep its texts as UTF-8. Unavailable (STORE_UNAVAILABLE).
func Open(ctx context.Context, url string, connections int) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error of the parser may quote the URL, and so a password.
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "the postgres URL cannot be read; it looks like postgres://user:password@host:5432/database")
	}
	config.MaxConns = int32(max(connections, 1))
	for _, name := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} {
		if _, given := config.ConnConfig.RuntimeParams[name]; !given {
			config.ConnConfig.RuntimeParams[name] = strconv.FormatInt(statementLimit.Milliseconds(), 10)
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	if err := prepare(ctx, pool); err != nil {
		pool.Close()
		return nil, wrap(ctx, err, "connect")
	}
	return &Store{pool}, nil
}

func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	var encoding string
	if err := pool.QueryRow(ctx, `SHOW server_encoding`).Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "the database has the encoding %s; create it with ENCODING 'UTF8'", encoding)
	}
	return migrate(ctx, pool)
}

// Close waits for the commands in flight and closes the connections.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// Update implements store.Updater.
func (s *Store) Update(ctx context.Context, key session.Key, need session.Need, decide store.Decide) error {
	err := s.write(ctx, func(tx pgx.Tx) error {
		v, err := readView(ctx, tx, key, need)
		if err != nil {
			return err
		}
		change, err := decide(v)
		if err != nil || change == nil {
			return err
		}
		var w writer
		w.apply(key, change)
		return w.send(ctx, tx)
	})
	return wrap(ctx, err, "update session %q of tenant %q", key.SessionID, key.Tenant)
}

// attempts is how often a transaction is run that keeps meeting others. Two
// that create one session need a second attempt; more come from deadlocks,
// which the one order of locks does not leave room for.
const attempts = 5

// write runs f in a transaction, anew when another transaction was in the way.
func (s *Store) write(ctx context.Context, f func(pgx.Tx) error) error {
	var err error
	for range attempts {
		err = pgx.BeginFunc(ctx, s.pool, f)
		if !conflict(err) {
			return err
		}
	}
	return err
}

// conflict reports whether another transaction was in the way:
// serialization_failure, deadlock_detected, unique_violation.
func conflict(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01" || e.Code == "23505")
}

// wrap says what failed. Faults of commands come back as they are.
func wrap(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if _, ok := fault.From(err); ok {
		return err
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	} else if unreachable(err) {
		err = store.Unavailable(err)
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// unreachable reports whether the database, not the command, is at fault and
// may be well again later.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func unreachable(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code[:2] {
		case "08", "53", "58": // connection exception, insufficient resources, system error
			return true
		}
		switch e.Code {
		case "57P01", "57P02", "57P03", // shutdown, crash, cannot connect now
			"57014", "55P03", "25P03", // the limits on statements, locks and idle transactions
			"25006",          // a standby that is not primary yet
			"40001", "40P01": // conflicts that did not end
			return true
		}
		return false
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}
