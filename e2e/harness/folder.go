package harness

import (
	"os"
	"path/filepath"
	"testing"
)

// Snapshot copies a data folder as the disk of its process has it at one
// moment, which is what a power cut would leave: the process, where it runs, is
// frozen meanwhile. The copy ends with the test.
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

// PutBack gives the folder the content of the copy, and no other. The process of
// the folder must not run.
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
