package agents

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFileBytes bounds a file.
const maxFileBytes = 1 << 20

// Source is a file of agents in memory.
type Source struct {
	Name string // in errors
	Dir  string // base of its relative paths
	Data []byte
}

// Versions records the files and patterns that a set was read from, with their versions. Safe for
// concurrent use.
type Versions struct {
	files    map[string]string // path to version
	patterns map[string]string // pattern to the paths that matched
}

func newVersions() *Versions {
	return &Versions{files: map[string]string{}, patterns: map[string]string{}}
}

// Changed reports whether a file was written, created or deleted since.
func (v *Versions) Changed() bool { return !v.Equal(v.Current()) }

// Current returns the versions of the same files and patterns as they are now.
func (v *Versions) Current() *Versions {
	now := newVersions()
	for path := range v.files {
		now.files[path] = version(path)
	}
	for pattern := range v.patterns {
		now.find(pattern)
	}
	return now
}

// Equal reports whether two records are equal. None equals nil.
func (v *Versions) Equal(other *Versions) bool {
	return other != nil && maps.Equal(v.files, other.files) && maps.Equal(v.patterns, other.patterns)
}

// version distinguishes versions of a file by time and size. It is "" for a file that does not exist.
func version(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %d", info.ModTime().UnixNano(), info.Size())
}

// read reads a file and records its version. Errors are for people.
func (v *Versions) read(path string) (Source, error) { return v.readUpTo(path, maxFileBytes) }

// readUpTo is read for files of another size.
func (v *Versions) readUpTo(path string, limit int64) (Source, error) {
	v.files[path] = version(path) // before it is read: a write in between counts as a change
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Source{}, fmt.Errorf("there is no file %q", path)
	case err != nil:
		return Source{}, err
	case !info.Mode().IsRegular():
		return Source{}, fmt.Errorf("%q is not a file", path)
	case info.Size() > limit:
		return Source{}, fmt.Errorf("%q has %d bytes; at most %d are allowed", path, info.Size(), limit)
	}
	data, err := os.ReadFile(path)
	return Source{Name: path, Dir: filepath.Dir(path), Data: data}, err
}

// find returns the files that match a pattern, and records both.
func (v *Versions) find(pattern string) []string {
	found := expand(pattern)
	for _, path := range found {
		v.files[path] = version(path)
	}
	v.patterns[pattern] = strings.Join(found, "\n")
	return found
}

// expand returns the YAML files of a folder, a file itself, or the files that match a pattern.
func expand(pattern string) []string {
	info, err := os.Stat(pattern)
	if err == nil && !info.IsDir() {
		return []string{pattern}
	}
	patterns := []string{pattern}
	if err == nil {
		escaped := escape(pattern)
		patterns = []string{filepath.Join(escaped, "*.yaml"), filepath.Join(escaped, "*.yml")}
	}
	var found []string
	for _, p := range patterns {
		matches, _ := filepath.Glob(p) // an invalid pattern matches nothing
		found = append(found, matches...)
	}
	slices.Sort(found)
	return slices.DeleteFunc(found, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || info.IsDir()
	})
}

// escape returns a pattern that matches only the path.
func escape(path string) string {
	if filepath.Separator == '\\' {
		return path // a backslash separates folders and cannot escape
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// mayMatchNothing reports whether a path is a folder or a pattern, which may have no files.
func mayMatchNothing(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir() || strings.ContainsAny(path, "*?[")
}
