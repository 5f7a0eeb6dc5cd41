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
	if due, err := s.DueBlobDeletions(t.Context(), "", 1e15, 9); err != nil || len(due) != 0 {
		t.Errorf("got %v, %v to delete", due, err)
	}
}

func TestBytesThatCannotBeDeletedAreDeletedLater(t *testing.T) {
	t.Parallel()
	s := sqlitetest.Open(t)
	keys := addFiles(t, s, 3)
	blobs := stubbornBlobs{s.Blobs, map[string]bool{"f1": true}}
	now := session.Millis(100)
	files := sweep.Files{Store: s, Blobs: blobs, Now: func() session.Millis { return now }}
	if err := files.Run(t.Context()); err == nil {
		t.Error("the failure was not returned")
	}
	if described, withBytes := stored(t, s, keys); described != 0 || withBytes != 1 {
		t.Errorf("got %d files and the bytes of %d, want the stuck bytes alone", described, withBytes)
	}
	delete(blobs.stuck, "f1")
	now += 10 * 60 * 1000
	if err := files.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if _, withBytes := stored(t, s, keys); withBytes != 0 {
		t.Error("the bytes are still stored")
	}
}

func TestBytesThatCannotBeDeletedDelayNoOthers(t *testing.T) {
	t.Parallel()
	s := sqlitetest.Open(t)
	keys := addFiles(t, s, 250)
	blobs := stubbornBlobs{s.Blobs, map[string]bool{}}
	for _, key := range keys[:200] { // two pages
		blobs.stuck[key.FileID] = true
		if _, err := s.DeleteExpiredLinks(t.Context(), key, 100); err != nil { // due first
			t.Fatal(err)
		}
	}
	files := sweep.Files{Store: s, Blobs: blobs, Now: func() session.Millis { return 101 }}
	if err := files.Run(t.Context()); err == nil {
		t.Error("the failures were not returned")
	}
	if _, withBytes := stored(t, s, keys); withBytes != 200 {
		t.Errorf("got the bytes of %d files, want the 200 stuck ones", withBytes)
	}
}

// addingBlobs calls add after each deletion of bytes.
type addingBlobs struct {
	store.Blobs
	add func(session.FileKey)
}

func (b addingBlobs) DeleteBlob(ctx context.Context, key session.FileKey) error {
	err := b.Blobs.DeleteBlob(ctx, key)
	b.add(key)
	return err
}

func TestAFileIsNotAddedWhileItsBytesAreDeleted(t *testing.T) {
	t.Parallel()
	s := sqlitetest.Open(t)
	key := session.FileKey{Tenant: "acme", FileID: "slow"}
	if err := errors.Join(s.ScheduleBlobDeletion(t.Context(), key, 50), s.Blobs.PutBlob(t.Context(), key, bytes.NewReader([]byte("x")))); err != nil {
		t.Fatal(err)
	}
	var added error
	blobs := addingBlobs{s.Blobs, func(key session.FileKey) {
		_, added = s.AddFile(t.Context(), key.Tenant, session.File{ID: key.FileID, MediaType: "image/png", Size: 1, Digest: make([]byte, sha256.Size)}, 1e6)
	}}
	if err := (sweep.Files{Store: s, Blobs: blobs, Now: func() session.Millis { return 100 }}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if fault.ReasonOf(added) != "UPLOAD_EXPIRED" {
		t.Errorf("got %v, want UPLOAD_EXPIRED", added)
	}
	if described, _ := stored(t, s, []session.FileKey{key}); described != 0 {
		t.Error("the file without bytes is stored")
	}
}
