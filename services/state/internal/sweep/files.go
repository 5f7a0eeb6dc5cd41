package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Files deletes files without a session, and the bytes of deleted files. All fields but Tenant must be set. Replicas may run it
// at the same time.
type Files struct {
	Store  store.Files
	Blobs  store.Blobs
	Tenant string // empty for all tenants
	Now    func() session.Millis
}

// Run is Delete without the number.
func (f Files) Run(ctx context.Context) error {
	_, err := f.Delete(ctx)
	return err
}

// Delete deletes what is due: the descriptions of files first, then their bytes. It continues after a failure, and
// returns all. deleted is the number of files.
func (f Files) Delete(ctx context.Context) (deleted int64, err error) {
	err = f.each(ctx, f.Store.FilesWithExpiredLinks, func(ctx context.Context, key session.FileKey) error {
		gone, err := f.Store.DeleteExpiredLinks(ctx, key, f.Now())
		if gone {
			deleted++
		}
		return err
	})
	return deleted, errors.Join(err, f.deleteBlobs(ctx))
}

// blobRetry is when bytes that could not be deleted are due again, in milliseconds.
const blobRetry session.Millis = 10 * 60 * 1000

// deleteBlobs deletes all due bytes. It returns the first failure, and how many there were.
func (f Files) deleteBlobs(ctx context.Context) error {
	var failures int
	var first error
	err := f.each(ctx, f.Store.DueBlobDeletions, func(ctx context.Context, key session.FileKey) error {
		now := f.Now()
		started, err := f.Store.StartBlobDeletion(ctx, key, now, now+blobRetry)
		if err != nil || !started {
			return err
		}
		if err := f.Blobs.DeleteBlob(ctx, key); err != nil {
			failures++
			first = cmp.Or(first, err)
			return nil // it is no longer due, so the next page has other files
		}
		return f.Store.BlobDeleted(ctx, key)
	})
	if failures > 0 {
		err = errors.Join(err, fmt.Errorf("the bytes of %d files could not be deleted, the first with: %w", failures, first))
	}
	return err
}

// each calls do for pages of due files, until a page is the last or has a failure: a failed file is still due.
func (f Files) each(
	ctx context.Context,
	find func(context.Context, string, session.Millis, int) ([]session.FileKey, error),
	do func(context.Context, session.FileKey) error,
) error {
	for {
		keys, err := find(ctx, f.Tenant, f.Now(), pageSize)
		if err != nil {
			return err
		}
		var errs []error
		for _, key := range keys {
			errs = append(errs, do(ctx, key))
		}
		if err := errors.Join(errs...); err != nil || len(keys) < pageSize {
			return err
		}
	}
}
