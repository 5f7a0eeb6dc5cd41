// Package sqlite keeps the rows of the state service in one file, for a single
// process.
//
// One connection writes, each command in one immediate transaction, so
// commands run one after the other and none ever has to be tried again; a few
// connections read beside it, as the write-ahead log allows. A commit is synced to the
// disk before it is answered (synchronous=FULL): it survives kill -9, and a power
// cut where the disk keeps its word.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// readers is the number of reading connections: reads are short, and more of
// them than processors gain nothing.
const readers = 4

// busyTimeout is how long, in milliseconds, a statement waits for another
// process that has the file open, a backup for example.
const busyTimeout = 5000

var _ store.Store = (*Store)(nil)

// Store is a store.Store.
type Store struct {
	writer *sql.DB
	reader *sql.DB
}

// Open opens the file, creates it when it is missing (its folder has to be
// there) so that only its owner can read it, and brings its schema up to date.
// Several processes may do so at once.
func Open(ctx context.Context, path string) (*Store, error) {
	if err := create(path); err != nil {
		return nil, fmt.Errorf("make the database file: %w", err)
	}
	writer, err := connect(path, "immediate", 1)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, writer); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, classify(ctx, err)), writer.Close())
	}
	reader, err := connect(path, "deferred", readers)
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	return &Store{writer: writer, reader: reader}, nil
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

func connect(path, lock string, connections int) (*sql.DB, error) {
	name, err := dataSource(path, lock)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// dataSource writes the path as a URI, in which ? and # and % of the path mean
// nothing.
func dataSource(path, lock string) (string, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	q := url.Values{}
	q.Set("_txlock", lock)
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busyTimeout))
	q.Add("_pragma", "journal_mode(WAL)")
	q.Add("_pragma", "synchronous(FULL)")
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(full), RawQuery: q.Encode()}
	return u.String(), nil
}

// Close closes the file. Commands in flight are undone.
func (s *Store) Close() error {
	return errors.Join(s.reader.Close(), s.writer.Close())
}

// Update implements store.Updater.
func (s *Store) Update(ctx context.Context, key session.Key, need session.Need, decide store.Decide) error {
	err := write(ctx, s.writer, func(tx *sql.Tx) error {
		v, err := view(ctx, tx, key, need)
		if err != nil {
			return err
		}
		change, err := decide(v)
		if err != nil || change == nil {
			return err
		}
		return apply(ctx, tx, key, change)
	})
	return wrap(ctx, err, "update session %q of tenant %q", key.SessionID, key.Tenant)
}

// write runs f in one transaction of the writer.
func write(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// wrap says what failed. Faults of commands come back as they are.
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

func classify(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// The primary code is the low byte of an extended one.
	if e, ok := errors.AsType[*sqlite.Error](err); ok && unavailable[e.Code()&0xff] {
		return store.Unavailable(err)
	}
	// database/sql has no value for a closed database.
	if errors.Is(err, sql.ErrConnDone) || strings.Contains(err.Error(), "database is closed") {
		return store.Unavailable(err)
	}
	return err
}
