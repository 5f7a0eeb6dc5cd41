package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// The time limits, where the URL sets no others.
const (
	statementTimeout = 30 * time.Second // of a statement
	lockTimeout      = time.Second      // of a wait for a lock, after which a batch is split
	idleTimeout      = 3 * time.Second  // of an idle transaction; between the two round trips a command only decides, so the process is frozen
	migrationTimeout = 15 * time.Minute // of a statement of a migration
)

// settings are set on every connection unless the URL sets them. Plans use indexes,
// return rows in the order of the index, and do not depend on parameters. Random pages
// cost nothing, since the needed pages are in memory.
var settings = map[string]string{
	"statement_timeout":                   strconv.FormatInt(statementTimeout.Milliseconds(), 10),
	"lock_timeout":                        strconv.FormatInt(lockTimeout.Milliseconds(), 10),
	"idle_in_transaction_session_timeout": strconv.FormatInt(idleTimeout.Milliseconds(), 10),
	"plan_cache_mode":                     "force_generic_plan",
	"enable_seqscan":                      "off",
	"enable_hashjoin":                     "off",
	"enable_mergejoin":                    "off",
	"enable_sort":                         "off",
	"random_page_cost":                    "0",
	"jit":                                 "off",
}

// Store implements all parts of store.Store.
type Store struct {
	pool     *pgxpool.Pool
	group    *group.Committer[command]
	hot      *hotCache
	composer composer
	capped   chan struct{} // holds one: a claim with caps
	name     string        // marks the signals of this replica

	governing chan struct{} // one token: see UpdateGovernors
}

// Open connects to the database and migrates its schema. Several processes may do so
// at the same time. The store uses at most that many connections, and one more while
// it listens for signals. A nil meter measures nothing.
//
// Invalid (CONFIG_INVALID): the URL or commits is not usable, or the encoding of the
// database is not UTF-8. Unavailable (STORE_UNAVAILABLE).
func Open(ctx context.Context, url string, connections int, commits group.Config, meter metric.Meter) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error of the parser may quote the URL with its password.
		return nil, fault.New(
			fault.Invalid,
			"CONFIG_INVALID",
			"the postgres URL cannot be read; it looks like postgres://user:password@host:5432/database",
		)
	}
	if err := prepareDatabase(ctx, config.ConnConfig.Copy()); err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	config.MaxConns = int32(max(connections, 1))
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // pipelines name prepared statements
	setOnConnect(config.ConnConfig, settings)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return rpc.Socket(conn), nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	s := &Store{pool: pool, hot: newHotCache(), capped: make(chan struct{}, 1), name: rand.Text(), governing: make(chan struct{}, 1)}
	if s.group, err = group.New(commits, s.write, meter); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// prepareDatabase checks the encoding and migrates, on a connection of its own.
func prepareDatabase(ctx context.Context, config *pgx.ConnConfig) error {
	setOnConnect(config, map[string]string{"statement_timeout": strconv.FormatInt(migrationTimeout.Milliseconds(), 10)})
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return refusedParameter(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := checkPooling(ctx, conn, config); err != nil {
		return err
	}
	var encoding string
	if err := conn.QueryRow(ctx, `SHOW server_encoding`).Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "the database has the encoding %s; create it with ENCODING 'UTF8'", encoding)
	}
	return migrate(ctx, conn)
}

// Parts of the store with a contract of their own.
type (
	registry struct{ *Store }
	memories struct{ *Store }
	files    struct{ *Store } // and their blobs
	auditLog struct{ *Store } // and the erasures that it proves

	storedAgents struct{ *Store }
	outbox       struct{ *Store }
)

// Parts returns the store as its contract.
func (s *Store) Parts() store.Store {
	audit := auditLog{s}
	return store.Store{
		Updater: s, Reader: ownedReader{Store: s}, Registry: registry{s}, Lister: s, Accounts: s, Memories: memories{s}, Files: files{s},
		StoredAgents: storedAgents{s}, Governors: s, Counts: s, AuditLog: audit, Erasures: audit, Outbox: outbox{s},
		Closer: s, Blobs: files{s}, Signals: s,
	}
}

// Close waits for queued and running commands, and closes the connections.
func (s *Store) Close() error {
	s.group.Close()
	s.pool.Close()
	return nil
}

// isConflict reports a conflict with another transaction: serialization_failure,
// deadlock_detected, lock_not_available or unique_violation.
func isConflict(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01" || e.Code == "55P03" || e.Code == "23505")
}

// isCanceled reports query_canceled: a statement has exceeded its time limit.
func isCanceled(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "57014"
}

// isDuplicate reports unique_violation.
func isDuplicate(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "23505"
}

// wrap adds what failed, marks conflicts with group.Conflict, and turns errors of the
// database into faults. It returns faults unchanged.
func wrap(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if _, ok := fault.From(err); ok {
		return err
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case isConflict(err):
		err = group.Conflict(err)
	case isUnreachable(err):
		err = store.Unavailable(err)
	case isUnknownFile(err):
		return store.FileNotFound()
	case isTooLarge(err):
		return fault.New(
			fault.TooLarge,
			"STATE_SIZE_EXCEEDED",
			"a value is too large for the database; store large artefacts elsewhere and refer to them",
		)
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// isTooLarge reports program_limit_exceeded: no database accepts a value of this size.
func isTooLarge(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "54000"
}

// isUnreachable reports a failure of the database or the network. A retry may succeed.
//
// Source: https://www.postgresql.org/docs/current/errcodes-appendix.html
func isUnreachable(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code[:2] {
		case "08", "53", "58": // connection exception, insufficient resources, system error
			return true
		}
		switch e.Code {
		case "57P01", "57P02", "57P03", "57P05", // shutdown, crash, cannot connect now, idle for too long
			"57014", "25P03", // the time limits of statements and idle transactions
			"25006": // a standby
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
