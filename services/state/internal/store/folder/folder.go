// Package folder stores the bytes of files in a folder, which all replicas of the state service share.
package folder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Folder implements store.Blobs.
type Folder struct{ root *os.Root }

// Open opens a folder, and creates a missing one, which only its owner can read. Invalid (CONFIG_INVALID).
func Open(name string) (*Folder, error) {
	if err := os.MkdirAll(name, 0o700); err != nil {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "the folder of files cannot be made: %v", err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "the folder of files cannot be opened: %v", err)
	}
	return &Folder{root}, nil
}

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// partial is the suffix of a file until it is complete.
const partial = ".partial"

// names returns the folder of a tenant and the name of a file. Ids become digests: they may have any characters,
// and file systems may not tell letters of both cases apart.
func names(key session.FileKey) (dir, name string) {
	digest := func(id string) string {
		sum := sha256.Sum256([]byte(id))
		return hex.EncodeToString(sum[:16])
	}
	dir = digest(key.Tenant)
	return dir, path.Join(dir, digest(key.FileID))
}

// PutBlob implements store.Blobs.
func (f *Folder) PutBlob(ctx context.Context, key session.FileKey, from io.Reader) error {
	dir, name := names(key)
	if err := f.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return unavailable("make the folder of a tenant", err)
	}
	if err := f.write(ctx, name+partial, from); err != nil {
		return err
	}
	if err := f.root.Rename(name+partial, name); err != nil {
		return unavailable("name a file", err)
	}
	return errors.Join(f.sync(dir), f.sync("."))
}

// write writes a new file to the disk.
func (f *Folder) write(ctx context.Context, name string, from io.Reader) (err error) {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return unavailable("create a file", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	err = store.EachPiece(from, func(_ int64, piece []byte) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := file.Write(piece); err != nil {
			return unavailable("write a file", err)
		}
		return nil
	})
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return unavailable("write a file to the disk", err)
	}
	return nil
}

// sync writes the names in a folder to the disk.
func (f *Folder) sync(dir string) error {
	d, err := f.root.Open(dir)
	if err != nil {
		return unavailable("open a folder", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return unavailable("write a folder to the disk", err)
	}
	return nil
}

// ReadBlob implements store.Blobs.
func (f *Folder) ReadBlob(ctx context.Context, key session.FileKey, offset, length int64, each func([]byte) error) error {
	_, name := names(key)
	file, err := f.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return store.BlobNotFound()
	}
	if err != nil {
		return unavailable("open a file", err)
	}
	defer file.Close()
	rest := length
	err = store.EachPiece(io.NewSectionReader(file, offset, length), func(_ int64, piece []byte) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rest -= int64(len(piece))
		return each(piece)
	})
	if _, broken := errors.AsType[*fs.PathError](err); broken {
		return unavailable("read a file", err)
	}
	if err == nil && rest > 0 {
		err = store.BlobNotFound()
	}
	return err
}

// DeleteBlob implements store.Blobs.
func (f *Folder) DeleteBlob(_ context.Context, key session.FileKey) error {
	_, name := names(key)
	for _, name := range []string{name, name + partial} {
		if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unavailable("delete a file", err)
		}
	}
	return nil
}

func unavailable(what string, err error) error {
	return store.Unavailable(fmt.Errorf("%s: %w", what, err))
}
