package harness

import (
	"os"
	"path/filepath"
	"testing"
)

// Snapshot copies the data folder of a process as a power cut would leave it. It freezes a running process
// meanwhile. The copy ends with the test.
func Snapshot(t testing.TB, p *Process, folder string) (copied string) {
	t.Helper()
	if p.Running() {
		p.Freeze()
		defer p.Thaw()
	}
	copied = filepath.Join(t.TempDir(), "copy")
	copyFolder(t, copied, folder)
	return copied
}

// PutBack replaces the folder's content by the copy. The process of the folder must not run.
func PutBack(t testing.TB, copied, folder string) {
	t.Helper()
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, folder, copied)
}

func copyFolder(t testing.TB, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatalf("copy a data folder: %v", err)
	}
}
