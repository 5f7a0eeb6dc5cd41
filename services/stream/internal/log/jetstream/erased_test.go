package jetstream_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/logtest"
)

// holds reports whether a file below the directory holds the text.
func holds(t *testing.T, directory, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // below a directory of the test
		found = found || bytes.Contains(data, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestErasedRecordsLeaveTheFilesWithTheirBlock(t *testing.T) {
	t.Parallel()
	const secret = "a secret of this user"
	directory := t.TempDir()
	o := options()
	o.Partitions = 1
	l := open(t, jetstream.Endpoint{InProcess: start(t, directory).InProcess()}, o)
	erased := log.Stream{Tenant: "acme", Root: "erased", Session: "erased"}
	logtest.Append(t, l, erased, &log.Message{Epoch: 1, Last: 1, Body: []byte(secret)})
	if !holds(t, directory, secret) {
		t.Fatal("the files do not hold the record")
	}
	if err := l.Erase(t.Context(), erased); err != nil {
		t.Fatal(err)
	}
	if holds(t, directory, secret) {
		t.Error("the block has no other records, and its file still holds the erased one")
	}
}
