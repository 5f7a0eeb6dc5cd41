// Package sqlite stores the rows of the state service in one file, for a single
// process.
//
// One connection writes. Waiting commands share one immediate transaction (package
// group), in which they run one after the other, so they never conflict. A few more
// connections read at the same time, as the write-ahead log allows. A batch is synced to
// the disk before its commands are answered (synchronous=FULL). It survives kill -9, and
// a power failure if the disk honours the sync.
//
// A command refused by its rules has written nothing, and the batch continues. When an
// SQL statement fails, because of a bug or a failing disk, the whole batch is rolled
// back and package group writes each command separately. A savepoint for each command
// would avoid that, at the cost of two more statements for every command.
//
// UpdateDue and the registry use the writing connection between the batches. The
// longest waiting caller gets it next, so neither starves.
//
// Deleted rows are overwritten with zeros (secure_delete). After a write that erases
// content, a checkpoint moves the log into the file and truncates it, so neither has the
// content when the command is answered. While a long read prevents the checkpoint, each
// later write tries it again.
//
// A database in memory has a single connection for reads and writes. The database
// ends with it.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"modernc.org/sqlite"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// readers is the number of reading connections. Reads are short, so more connections
// than processors bring nothing.
const readers = 4

// busyTimeout is how many milliseconds a statement waits for a lock of another
// process, for example a backup.
const busyTimeout = 5000

// openTimeout is how long Open waits for other processes that lock the file. The
// migration of a large file takes minutes.
const openTimeout = 10 * time.Minute

// openRetryPause is the pause between two tries of Open. SQLite does not queue waiting
// statements, so one of several processes may exceed busyTimeout.
const openRetryPause = 50 * time.Millisecond

// Store implements all parts of store.Store but signals.
type Store struct {
	writer    *pool // of one connection
	reader    *pool // the writer itself for a database in memory
	committer *group.Committer[command]
	erased    atomic.Bool // content was erased since the last truncation of the log
	close     func() error
}

// Open opens the file and migrates its schema. It creates a missing file, which only
// its owner can read, in an existing folder. Several processes may open a file at the
// same time. It ignores config.Lanes, since there is one writer. A nil meter measures
// nothing. Invalid (CONFIG_INVALID).
func Open(ctx context.Context, path string, config group.Config, meter metric.Meter) (*Store, error) {
	s := &Store{}
	s.close = sync.OnceValue(s.closeAll)
	if err := s.open(ctx, path, config, meter); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, asFault(ctx, err)), s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, path string, config group.Config, meter metric.Meter) (err error) {
	full := path
	if path != InMemory {
		if err := createFile(path); err != nil {
			return fmt.Errorf("create the database file: %w", err)
		}
		if full, err = filepath.Abs(path); err != nil {
			return err
		}
	}
	if err := retryBusy(ctx, openTimeout, func() error {
		s.writer, err = openPool(ctx, dataSource(full), 1)
		return err
	}); err != nil {
		return err
	}
	if err := retryBusy(ctx, openTimeout, func() error {
		return s.writer.withConn(ctx, func(c *connection) error {
			if path == InMemory {
				return loadEmpty(c)
			}
			return migrate(ctx, c)
		})
	}); err != nil {
		return err
	}
	if s.reader = s.writer; path != InMemory {
		if err := retryBusy(ctx, openTimeout, func() error {
			s.reader, err = openPool(ctx, dataSource(full, "query_only(1)"), readers)
			return err
		}); err != nil {
			return err
		}
	}
	config.Lanes = 1
	s.committer, err = group.New(config, s.writeBatch, meter)
	return err
}

// retryBusy retries f while another process locks the file, until ctx ends or for at
// most wait. It returns the last error of f.
func retryBusy(ctx context.Context, wait time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		err := f()
		if !isBusy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(openRetryPause):
		}
	}
}

// createFile creates a missing file. SQLite itself would make it readable for all
// users. The files of the log get the same permissions.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// dataSource returns the path as a URI, which escapes ?, # and %.
func dataSource(path string, pragmas ...string) string {
	q := url.Values{}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busyTimeout))
	q.Add("_pragma", "journal_mode(WAL)")
	q.Add("_pragma", "synchronous(FULL)")
	q.Add("_pragma", "secure_delete(1)") // deleted rows are overwritten
	for _, pragma := range pragmas {
		q.Add("_pragma", pragma)
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}
	if path == InMemory {
		u.Path, u.Opaque = "", path
	}
	return u.String()
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
		StoredAgents: storedAgents{s}, Governors: s, Counts: s, AuditLog: audit, Erasures: audit, Outbox: outbox{s}, Closer: s, Blobs: files{s},
	}
}

// Close refuses new commands, waits for the accepted ones, and closes the file. It may
// be called more than once.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeAll() error {
	if s.committer != nil {
		s.committer.Close()
	}
	var errs []error
	if s.reader != nil && s.reader != s.writer {
		errs = append(errs, s.reader.close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	return errors.Join(errs...)
}

// read runs f in one reading transaction, on a consistent snapshot.
func (s *Store) read(ctx context.Context, f func(*connection) error) error {
	return s.reader.withConn(ctx, func(c *connection) error {
		return c.inTransaction(ctx, `BEGIN`, func() error { return f(c) })
	})
}

// write runs f in one transaction of the writer. The context of f is never canceled:
// the driver would start a goroutine for every statement, and statements by key are
// short.
func (s *Store) write(ctx context.Context, f func(context.Context, *connection) error) error {
	return s.writer.withConn(ctx, func(c *connection) error {
		uncanceled := context.WithoutCancel(ctx)
		retried := s.erased.Load()
		err := c.inTransaction(uncanceled, `BEGIN IMMEDIATE`, func() error { return f(uncanceled, c) })
		if s.erased.Load() {
			s.truncateLog(uncanceled, c, retried)
		}
		return err
	})
}

// truncateWait is how many milliseconds the truncation of the log waits for reads.
const truncateWait = 200

// truncateLog moves the log into the file and truncates it. It waits for the reads of this
// process, unless it is retried. A read that lasts longer leaves it to the next write.
func (s *Store) truncateLog(ctx context.Context, c *connection, retried bool) {
	wait := truncateWait
	if retried {
		wait = 0
	}
	busy := true
	row := c.conn.QueryRowContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, wait))
	var ignored, frames, moved int64
	err := row.Scan(&ignored)
	if err == nil {
		err = c.conn.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &frames, &moved)
	}
	if err == nil && !busy {
		s.erased.Store(false)
	}
	_ = c.conn.QueryRowContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, busyTimeout)).Scan(&ignored) // it cannot fail
}

// wrap adds what failed, and turns errors of the database into faults. It returns
// faults unchanged.
func wrap(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if _, ok := fault.From(err); ok {
		return err
	}
	return fmt.Errorf(format+": %w", append(args, asFault(ctx, err))...)
}

// unavailableCodes are the primary result codes of a file that cannot be used now.
//
// Source: https://www.sqlite.org/rescode.html
var unavailableCodes = map[int]bool{
	5: true, 6: true, // BUSY, LOCKED
	8: true, 10: true, 13: true, 14: true, // READONLY, IOERR, FULL, CANTOPEN
}

// isBusy reports whether another process has locked the file.
func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == 5
}

func asFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The primary code is the low byte of an extended one.
	if e, ok := errors.AsType[*sqlite.Error](err); ok && unavailableCodes[e.Code()&0xff] {
		return store.Unavailable(err)
	}
	if errors.Is(err, errClosed) || errors.Is(err, sql.ErrConnDone) {
		return store.Unavailable(err)
	}
	return err
}
