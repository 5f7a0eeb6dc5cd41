// Package sqlite keeps the rows of the state service in one file, for a single
// process.
//
// One connection writes. Commands that wait for it are written together in one
// immediate transaction (package group), one after the other, so none ever has
// to be tried again because of its neighbours; a few connections read beside it,
// as the write-ahead log allows. A batch is synced to the disk before its commands are
// answered (synchronous=FULL): it survives kill -9, and a power cut where the disk
// keeps its word.
//
// A command that its rules refuse has written nothing yet, and leaves the batch as
// it is. One whose SQL fails has met a bug or a failing disk; the whole batch is
// undone, and package group writes each command of it alone. A savepoint around
// each command would save that, at the price of two more statements for every
// command that goes well.
//
// What finds its own work (UpdateDue, the registry) takes its turn at the
// writing connection beside the batches. Who waits the longest has it next, so
// neither starves.
//
// A database in memory has a single connection, for reads and writes: it ends with
// its connection.
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
	"time"

	"go.opentelemetry.io/otel/metric"
	"modernc.org/sqlite"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// readers is the number of reading connections: reads are short, and more of
// them than processors gain nothing.
const readers = 4

// busyTimeout is how long, in milliseconds, a statement waits for another
// process that has the file open, a backup for example.
const busyTimeout = 5000

// openingWait is how long a process that boots waits for others that bring the
// schema up to date, which takes minutes for a large file, or hold the file for
// another reason.
const openingWait = 10 * time.Minute

// openingPause is the time between two tries of a process that boots. The wait
// of a statement has no queue: of several that wait, one may be unlucky for the
// whole of it.
const openingPause = 50 * time.Millisecond

var _ store.Store = (*Store)(nil)

// Store is a store.Store.
type Store struct {
	writer    *pool // of one
	reader    *pool // the writer itself, of a database in memory
	committer *group.Committer[command]
	close     func() error
}

// Open opens the file, creates it when it is missing (its folder has to be
// there) so that only its owner can read it, and brings its schema up to date.
// Several processes may do so at once. Of the config it leaves Lanes out: there is
// one writer. A nil meter measures nothing. Invalid (CONFIG_INVALID).
func Open(ctx context.Context, path string, config group.Config, meter metric.Meter) (*Store, error) {
	s := &Store{}
	s.close = sync.OnceValue(s.shut)
	if err := s.open(ctx, path, config, meter); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, classify(ctx, err)), s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, path string, config group.Config, meter metric.Meter) (err error) {
	full := path
	if path != InMemory {
		if err := create(path); err != nil {
			return fmt.Errorf("make the database file: %w", err)
		}
		if full, err = filepath.Abs(path); err != nil {
			return err
		}
	}
	if err := patiently(ctx, openingWait, func() error {
		s.writer, err = openPool(ctx, dataSource(full), 1)
		return err
	}); err != nil {
		return err
	}
	if err := patiently(ctx, openingWait, func() error {
		return s.writer.use(ctx, func(c *connection) error {
			if path == InMemory {
				return loadEmpty(c)
			}
			return migrate(ctx, c)
		})
	}); err != nil {
		return err
	}
	if s.reader = s.writer; path != InMemory {
		if err := patiently(ctx, openingWait, func() error {
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

// patiently runs f again for as long as another process is in its way. It gives
// up with ctx and after wait, with what f has returned last.
func patiently(ctx context.Context, wait time.Duration, f func() error) error {
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
		case <-time.After(openingPause):
		}
	}
}

// create makes an empty file where there is none. SQLite itself would let
// everybody read it; its log takes the file's permissions.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// dataSource writes the path as a URI, in which ? and # and % of the path mean
// nothing.
func dataSource(path string, pragmas ...string) string {
	q := url.Values{}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busyTimeout))
	q.Add("_pragma", "journal_mode(WAL)")
	q.Add("_pragma", "synchronous(FULL)")
	for _, pragma := range pragmas {
		q.Add("_pragma", pragma)
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: q.Encode()}
	if path == InMemory {
		u.Path, u.Opaque = "", path
	}
	return u.String()
}

// Close waits for the commands that are there, refuses further ones, and closes
// the file. It may be called again.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
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

// read runs f in one reading transaction: what it sees is as of one moment.
func (s *Store) read(ctx context.Context, f func(*connection) error) error {
	return s.reader.use(ctx, func(c *connection) error {
		return c.transact(ctx, `BEGIN`, func() error { return f(c) })
	})
}

// write runs f in one transaction of the writer. f and its statements are not
// interrupted, which would cost each of them a goroutine: they find rows by their
// keys and are over at once.
func (s *Store) write(ctx context.Context, f func(context.Context, *connection) error) error {
	return s.writer.use(ctx, func(c *connection) error {
		whole := context.WithoutCancel(ctx)
		return c.transact(whole, `BEGIN IMMEDIATE`, func() error { return f(whole, c) })
	})
}

// wrap says what failed. Faults come back as they are.
func wrap(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	if _, ok := fault.From(err); ok {
		return err
	}
	return fmt.Errorf(format+": %w", append(args, classify(ctx, err))...)
}

// The primary result codes that say that the file cannot be used now.
// https://www.sqlite.org/rescode.html
var unavailable = map[int]bool{
	5: true, 6: true, // BUSY, LOCKED
	8: true, 10: true, 13: true, 14: true, // READONLY, IOERR, FULL, CANTOPEN
}

// isBusy tells whether another process was in the way.
func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == 5
}

func classify(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The primary code is the low byte of an extended one.
	if e, ok := errors.AsType[*sqlite.Error](err); ok && unavailable[e.Code()&0xff] {
		return store.Unavailable(err)
	}
	if errors.Is(err, errClosed) || errors.Is(err, sql.ErrConnDone) {
		return store.Unavailable(err)
	}
	return err
}
