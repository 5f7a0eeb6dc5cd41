// Package blobtest is the conformance suite of store.Blobs.
package blobtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Run runs the suite. open returns an empty store, and may return the same one again: each case has keys of its own.
func Run(t *testing.T, open func(*testing.T) store.Blobs) {
	for name, test := range map[string]func(*testing.T, store.Blobs){
		"bytes are read as they were stored, whatever their number": testRoundTrip,
		"a range is read":                                                 testRange,
		"a missing blob is not found":                                     testMissing,
		"a deleted blob is not found":                                     testDelete,
		"an error of the reader ends it":                                  testReaderFails,
		"an error of the source is returned, and the rest can be deleted": testSourceFails,
		"hostile tenants stay apart":                                      testTenants,
		"many blobs are stored at once":                                   testConcurrent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// newKey returns a key that no other test has.
func newKey() session.FileKey {
	return session.FileKey{Tenant: "acme", FileID: "file_" + rand.Text()}
}

func random(t *testing.T, size int) []byte {
	t.Helper()
	data := make([]byte, size)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	return data
}

func put(t *testing.T, s store.Blobs, key session.FileKey, data []byte) {
	t.Helper()
	if err := s.PutBlob(t.Context(), key, iotest.HalfReader(bytes.NewReader(data))); err != nil {
		t.Fatal(err)
	}
}

// read returns a range, and checks the size of its pieces.
func read(t *testing.T, s store.Blobs, key session.FileKey, offset, length int64) ([]byte, error) {
	t.Helper()
	var got []byte
	err := s.ReadBlob(t.Context(), key, offset, length, func(piece []byte) error {
		if len(piece) == 0 || len(piece) > store.BlobPiece {
			t.Errorf("got a piece of %d bytes", len(piece))
		}
		got = append(got, piece...)
		return nil
	})
	return got, err
}

func wantBytes(t *testing.T, s store.Blobs, key session.FileKey, offset, length int64, want []byte) {
	t.Helper()
	got, err := read(t, s, key, offset, length)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes at %d: got %d bytes, %v; want %d", length, offset, len(got), err, len(want))
	}
}

func wantMissing(t *testing.T, s store.Blobs, key session.FileKey) {
	t.Helper()
	if got, err := read(t, s, key, 0, 1); fault.ReasonOf(err) != "BLOB_NOT_FOUND" {
		t.Errorf("got %d bytes, %v; want BLOB_NOT_FOUND", len(got), err)
	}
}

func testRoundTrip(t *testing.T, s store.Blobs) {
	for _, size := range []int{1, 4096, store.BlobPiece - 1, store.BlobPiece, store.BlobPiece + 1, 5*store.BlobPiece + 7} {
		key, data := newKey(), random(t, size)
		put(t, s, key, data)
		wantBytes(t, s, key, 0, int64(size), data)
	}
}

func testRange(t *testing.T, s store.Blobs) {
	key, data := newKey(), random(t, 2*store.BlobPiece+10)
	put(t, s, key, data)
	end := int64(len(data))
	for _, r := range [][2]int64{{0, 1}, {end - 1, 1}, {store.BlobPiece - 1, 2}, {store.BlobPiece, store.BlobPiece}, {5, end - 5}, {end, 0}, {7, 0}} {
		wantBytes(t, s, key, r[0], r[1], data[r[0]:r[0]+r[1]])
	}
}

func testMissing(t *testing.T, s store.Blobs) {
	wantMissing(t, s, newKey())
	key := newKey()
	put(t, s, key, []byte("short"))
	if _, err := read(t, s, key, 0, 6); fault.ReasonOf(err) != "BLOB_NOT_FOUND" {
		t.Errorf("got %v for bytes behind the end, want BLOB_NOT_FOUND", err)
	}
}

func testDelete(t *testing.T, s store.Blobs) {
	key, other := newKey(), newKey()
	put(t, s, key, random(t, store.BlobPiece+1))
	put(t, s, other, []byte("other"))
	for range 2 { // a repetition does nothing
		if err := s.DeleteBlob(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	wantMissing(t, s, key)
	wantBytes(t, s, other, 0, 5, []byte("other"))
}

var errTest = errors.New("it fails")

func testReaderFails(t *testing.T, s store.Blobs) {
	key := newKey()
	put(t, s, key, random(t, 3*store.BlobPiece))
	calls := 0
	err := s.ReadBlob(t.Context(), key, 0, 3*store.BlobPiece, func([]byte) error {
		calls++
		return errTest
	})
	if !errors.Is(err, errTest) || calls != 1 {
		t.Errorf("got %v after %d calls, want the error of the first", err, calls)
	}
}

func testSourceFails(t *testing.T, s store.Blobs) {
	key := newKey()
	source := io.MultiReader(bytes.NewReader(random(t, store.BlobPiece+1)), iotest.ErrReader(fault.New(fault.Invalid, "FILE_INVALID", "no")))
	if err := s.PutBlob(t.Context(), key, source); fault.ReasonOf(err) != "FILE_INVALID" {
		t.Errorf("got %v, want the fault of the source", err)
	}
	if err := s.DeleteBlob(t.Context(), key); err != nil {
		t.Error(err)
	}
	wantMissing(t, s, key)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.PutBlob(ended, newKey(), bytes.NewReader([]byte("x"))); err == nil {
		t.Error("a blob was stored after the end of its context")
	}
}

func testTenants(t *testing.T, s store.Blobs) {
	id := newKey().FileID
	tenants := []string{"a", "A", "a/b", "../a", "..", ".", "a\\b", "日本", "a b%2f", "con", string(bytes.Repeat([]byte("t"), 256))}
	for _, tenant := range tenants {
		put(t, s, session.FileKey{Tenant: tenant, FileID: id}, []byte(tenant))
	}
	for _, tenant := range tenants {
		wantBytes(t, s, session.FileKey{Tenant: tenant, FileID: id}, 0, int64(len(tenant)), []byte(tenant))
	}
	if err := s.DeleteBlob(t.Context(), session.FileKey{Tenant: "a", FileID: id}); err != nil {
		t.Error(err)
	}
	wantBytes(t, s, session.FileKey{Tenant: "A", FileID: id}, 0, 1, []byte("A"))
}

func testConcurrent(t *testing.T, s store.Blobs) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			key, data := newKey(), bytes.Repeat(fmt.Append(nil, i), store.BlobPiece+i)
			if err := s.PutBlob(t.Context(), key, bytes.NewReader(data)); err != nil {
				t.Error(err)
				return
			}
			wantBytes(t, s, key, 0, int64(len(data)), data)
		})
	}
	all.Wait()
}

// Shared proves that each replica reads and deletes the bytes stored by another.
func Shared(t *testing.T, one, other store.Blobs) {
	t.Helper()
	key, data := newKey(), random(t, store.BlobPiece+1)
	put(t, one, key, data)
	wantBytes(t, other, key, 0, int64(len(data)), data)
	if err := other.DeleteBlob(t.Context(), key); err != nil {
		t.Error(err)
	}
	wantMissing(t, one, key)
}
