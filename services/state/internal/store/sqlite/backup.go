package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// partSuffix ends the name of a file until it is complete.
const partSuffix = ".part"

// Backup writes what the file at path has at this moment to a new file, while others may use path. The new file
// has its name once it is complete and on the disk. NotFound (DATABASE_MISSING), Conflict (FILE_EXISTS), Unavailable
// (STORE_UNAVAILABLE).
func Backup(ctx context.Context, path, file string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "DATABASE_MISSING", "there is no database %s", path)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	return writeComplete(file, func(part string) error {
		pool, err := openPool(ctx, dataSource(full), 1)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, asFault(ctx, err))
		}
		err = pool.withConn(ctx, func(c *connection) error {
			_, err := c.conn.ExecContext(ctx, `VACUUM INTO ?`, part)
			return err
		})
		return errors.Join(wrap(ctx, err, "copy %s", path), pool.close())
	})
}

// Restore writes a backup to path, where no database is. Invalid (BACKUP_INVALID, BACKUP_TOO_NEW), NotFound
// (BACKUP_MISSING), Conflict (FILE_EXISTS).
func Restore(ctx context.Context, path, file string) error {
	if err := checkBackup(ctx, file); err != nil {
		return err
	}
	// SQLite would replay the log of a former database on the restored one.
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		if _, err := os.Lstat(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			exists := fault.New(fault.Conflict, "FILE_EXISTS", "%s exists and belongs to another database: move it away", path+suffix)
			return errors.Join(exists, err)
		}
	}
	return writeComplete(path, func(part string) error {
		from, err := os.Open(file)
		if err != nil {
			return err
		}
		defer from.Close()
		to, err := os.OpenFile(part, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from)
		return errors.Join(err, to.Close())
	})
}

// checkBackup checks that a file is a complete database of this release or a former one.
func checkBackup(ctx context.Context, file string) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "BACKUP_MISSING", "there is no backup %s", file)
	}
	invalid := func(err error) error {
		return fault.New(fault.Invalid, "BACKUP_INVALID", "%s is not a complete backup of Holdfast: %v", file, err)
	}
	schema, err := ReadSchema(ctx, file)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case err != nil:
		return invalid(err)
	case schema.Applied == 0:
		return invalid(errors.New("it has no migrations"))
	case schema.Applied > schema.Known:
		return fault.New(fault.Invalid, "BACKUP_TOO_NEW",
			"%s has migration %d, and this release knows %d: restore it with the release that made it", file, schema.Applied, schema.Known)
	}
	full, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	q := url.Values{"mode": {"ro"}, "immutable": {"1"}}
	source := url.URL{Scheme: "file", Path: filepath.ToSlash(full), RawQuery: q.Encode()}
	pool, err := openPool(ctx, source.String(), 1)
	if err != nil {
		return store.Unavailable(err)
	}
	var found string
	err = pool.withConn(ctx, func(c *connection) error {
		_, err := c.queryRow(ctx, `PRAGMA quick_check(1)`, nil, &found)
		return err
	})
	if err = errors.Join(err, pool.close()); err != nil {
		return invalid(err)
	}
	if found != "ok" {
		return invalid(errors.New(strconv.Quote(found)))
	}
	return nil
}

// writeComplete calls write with the name of an empty file that only its owner can read, and gives that file its
// name once it is on the disk. It never replaces a file. Conflict (FILE_EXISTS).
func writeComplete(name string, write func(part string) error) error {
	exists := fault.New(fault.Conflict, "FILE_EXISTS", "%s already exists: choose another name, or move it away", name)
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(exists, err)
	}
	part, err := os.OpenFile(name+partSuffix, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Conflict, "FILE_EXISTS", "%s exists: another copy is being written, or was interrupted; remove it",
			name+partSuffix)
	}
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	if err := errors.Join(part.Close(), write(part.Name()), syncPath(part.Name())); err != nil {
		return err
	}
	// A link, in contrast to a new name, never replaces a file.
	if err := os.Link(part.Name(), name); errors.Is(err, fs.ErrExist) {
		return exists
	} else if err != nil {
		return err
	}
	return syncPath(filepath.Dir(name))
}

// syncPath waits until the file or folder is on the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
