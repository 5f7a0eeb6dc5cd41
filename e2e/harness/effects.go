package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Effects reads the effects of the note tools: one line in a file per execution.
type Effects struct {
	t   testing.TB
	dir string
}

// Lines returns the lines with the text.
func (e Effects) Lines(text string) []string {
	e.t.Helper()
	var lines []string
	err := filepath.WalkDir(e.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, text) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return err
	})
	if err != nil {
		e.t.Fatalf("read the effects: %v", err)
	}
	return lines
}

// Wait waits for a line with the text.
func (e Effects) Wait(text string) {
	e.t.Helper()
	WaitFor(e.t, startLimit, "the effect "+text, func() (bool, string) {
		return len(e.Lines(text)) > 0, show(e.Lines(""))
	})
}
