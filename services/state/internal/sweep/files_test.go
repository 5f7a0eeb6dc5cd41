package sweep_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// stubbornBlobs cannot delete some blobs.
type stubbornBlobs struct {
	store.Blobs
	stuck map[string]bool
}

func (b stubbornBlobs) DeleteBlob(ctx context.Context, key session.FileKey) error {
	if b.stuck[key.FileID] {
		return errors.New("the bucket cannot be reached")
	}
	return b.Blobs.DeleteBlob(ctx, key)
}

// addFiles adds files that are held until the time 100.
func addFiles(t *testing.T, s store.Store, count int) []session.FileKey {
	t.Helper()
	var keys []session.FileKey
	for i := range count {
		key := session.FileKey{Tenant: "acme", FileID: fmt.Sprint("f", i)}
		content := []byte(key.FileID)
		digest := sha256.Sum256(content)
		err := errors.Join(s.ScheduleBlobDeletion(t.Context(), key, 50), s.Blobs.PutBlob(t.Context(), key, bytes.NewReader(content)))
		if _, add := s.AddFile(t.Context(), key.Tenant, session.File{ID: key.FileID, MediaType: "image/png", Size: int64(len(content)), Digest: digest[:]}, 100); errors.Join(err, add) != nil {
			t.Fatal(err, add)
		}
		keys = append(keys, key)
	}
	return keys
}

// stored returns how many of the files are described, and how many have bytes.
func stored(t *testing.T, s store.Store, keys []session.FileKey) (described, withBytes int) {
	t.Helper()
	for _, key := range keys {
		if _, _, err := s.File(t.Context(), key.FileID); err == nil {
			described++
		} else if fault.ReasonOf(err) != "FILE_NOT_FOUND" {
			t.Fatal(err)
		}
		if s.Blobs.ReadBlob(t.Context(), key, 0, 1, func([]byte) error { return nil }) == nil {
			withBytes++
		}
	}
	return described, withBytes
}

func TestFilesWithoutASessionAreDeletedWithTheirBytes(t *testing.T) {
	t.Parallel()
	s := sqlitetest.Open(t)
	keys := addFiles(t, s, 250) // several pages
	at := session.Millis(99)
	files := sweep.Files{Store: s, Blobs: s.Blobs, Now: func() session.Millis { return at }}
	if err := files.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if described, withBytes := stored(t, s, keys); described != 250 || withBytes != 250 {
		t.Errorf("before their time: got %d files and the bytes of %d, want all", described, withBytes)
	}
	at = 100
	var replicas sync.WaitGroup
	for range 2 {
		replicas.Go(func() {
			if err := files.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	replicas.Wait()
	if described, withBytes := stored(t, s, keys); described != 0 || withBytes != 0 {
		t.Errorf("got %d files and the bytes of %d, want none", described, withBytes)
	}
	if due, err := s.DueBlobDeletions(t.Context(), 1e15, 9); err != nil || len(due) != 0 {
		t.Errorf("got %v, %v to delete", due, err)
	}
}

func TestBytesThatCannotBeDeletedAreDeletedLater(t *testing.T) {
	t.Parallel()
	s := sqlitetest.Open(t)
	keys := addFiles(t, s, 3)
	blobs := stubbornBlobs{s.Blobs, map[string]bool{"f1": true}}
	files := sweep.Files{Store: s, Blobs: blobs, Now: func() session.Millis { return 100 }}
	if err := files.Run(t.Context()); err == nil {
		t.Error("the failure was not returned")
	}
	if described, withBytes := stored(t, s, keys); described != 0 || withBytes != 1 {
		t.Errorf("got %d files and the bytes of %d, want the stuck bytes alone", described, withBytes)
	}
	delete(blobs.stuck, "f1")
	if err := files.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if _, withBytes := stored(t, s, keys); withBytes != 0 {
		t.Error("the bytes are still stored")
	}
}
