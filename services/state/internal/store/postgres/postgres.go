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
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// The limits of statements, where the URL says nothing else.
const (
	statementLimit = 30 * time.Second // of one
	lockLimit      = time.Second      // of a wait for a lock: a batch that does not get one is taken apart
	idleLimit      = 3 * time.Second  // of standing still in a transaction: only decisions lie between the two trips, so a process that does is frozen
	migrationLimit = 15 * time.Minute // of one while the schema is brought up to date
)

// settings are those of every connection that the URL does not set. A plan is
// made for no particular values, and goes by index and in the index's order;
// what it costs is what it computes, since the pages that matter are in memory.
var settings = map[string]string{
	"statement_timeout":                   strconv.FormatInt(statementLimit.Milliseconds(), 10),
	"lock_timeout":                        strconv.FormatInt(lockLimit.Milliseconds(), 10),
	"idle_in_transaction_session_timeout": strconv.FormatInt(idleLimit.Milliseconds(), 10),
	"plan_cache_mode":                     "force_generic_plan",
	"enable_seqscan":                      "off",
	"enable_hashjoin":                     "off",
	"enable_mergejoin":                    "off",
	"enable_sort":                         "off",
	"random_page_cost":                    "0",
	"jit":                                 "off",
}

var _ store.Store = (*Store)(nil)

// Store is a store.Store.
type Store struct {
	pool  *pgxpool.Pool
	group *group.Committer[command]
	hot   *hotSessions
	name  string // tells its signals from those of other replicas
}

// Open connects to the database with at most the given number of connections, and one
// more while it hears signals,
// and brings its schema up to date. Several processes may do so at once. A nil
// meter measures nothing.
//
// Invalid (CONFIG_INVALID): the URL or the configuration of the group cannot be
// used, or the database does not keep its texts as UTF-8. Unavailable
// (STORE_UNAVAILABLE).
func Open(ctx context.Context, url string, connections int, commits group.Config, meter metric.Meter) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error of the parser may quote the URL, and so a password.
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "the postgres URL cannot be read; it looks like postgres://user:password@host:5432/database")
	}
	if err := prepare(ctx, config.ConnConfig.Copy()); err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	config.MaxConns = int32(max(connections, 1))
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // pipelines name prepared statements
	for name, value := range settings {
		if _, given := config.ConnConfig.RuntimeParams[name]; !given {
			config.ConnConfig.RuntimeParams[name] = value
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	s := &Store{pool: pool, hot: newHotSessions(), name: rand.Text()}
	if s.group, err = group.New(commits, s.write, meter); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// prepare makes the database ready, on a connection of its own.
func prepare(ctx context.Context, config *pgx.ConnConfig) error {
	if _, given := config.RuntimeParams["statement_timeout"]; !given {
		config.RuntimeParams["statement_timeout"] = strconv.FormatInt(migrationLimit.Milliseconds(), 10)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var encoding string
	if err := conn.QueryRow(ctx, `SHOW server_encoding`).Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "the database has the encoding %s; create it with ENCODING 'UTF8'", encoding)
	}
	return migrate(ctx, conn)
}

// Close waits for the commands in flight and closes the connections.
func (s *Store) Close() error {
	s.group.Close()
	s.pool.Close()
	return nil
}

// isConflict reports whether another transaction was in the way:
// serialization_failure, deadlock_detected, lock_not_available,
// unique_violation.
func isConflict(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01" || e.Code == "55P03" || e.Code == "23505")
}

// cancelled reports whether a statement has run into its limit: query_canceled.
func cancelled(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "57014"
}

// duplicate reports whether the conflict was unique_violation.
func duplicate(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "23505"
}

// missingRows is the SQLSTATE that the function holdfast_missing_rows raises: a
// statement has written fewer rows than it should.
const missingRows = "HF001"

// notWritten reports whether a condition of a write was not met: missingRows or
// unique_violation.
func notWritten(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == missingRows || e.Code == "23505")
}

// wrap says what failed, and marks conflicts with other transactions. Faults
// come back as they are.
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
	case unreachable(err):
		err = store.Unavailable(err)
	case tooLarge(err):
		return fault.New(fault.TooLarge, "STATE_SIZE_EXCEEDED", "the database cannot keep a value of this size; keep large artefacts elsewhere and refer to them")
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// tooLarge reports whether a value is beyond what the database takes at all:
// program_limit_exceeded.
func tooLarge(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "54000"
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
		case "57P01", "57P02", "57P03", "57P05", // shutdown, crash, cannot connect now, idle for too long
			"57014", "25P03", // the limits on statements and idle transactions
			"25006": // a standby that is not primary yet
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
