package folder_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/blobtest"
	"github.com/holdfast-run/holdfast/services/state/internal/store/folder"
)

func open(t *testing.T, name string) *folder.Folder {
	t.Helper()
	f, err := folder.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestAFolderConforms(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) store.Blobs { return open(t, filepath.Join(t.TempDir(), "a", "b")) })
}

func TestTwoReplicasMayShareAFolder(t *testing.T) {
	t.Parallel()
	name := t.TempDir()
	blobtest.Shared(t, open(t, name), open(t, name))
}

func TestAFolderThatCannotBeMadeIsRefused(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := folder.Open(name); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v, want CONFIG_INVALID", err)
	}
}
