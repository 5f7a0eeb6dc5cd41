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

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Limits of what is read.
const (
	maxFileBytes = 1 << 20
	maxFiles     = 1000
)

// Source is a file of agents in memory.
type Source struct {
	Name string // for errors
	Dir  string // what relative paths in it are relative to
	Data []byte
}

// Trail is what was looked at to read a set, as it was then. Safe for concurrent use.
type Trail struct {
	files    map[string]string // path to stamp
	patterns map[string]string // pattern to the paths that it stood for
}

func newTrail() *Trail { return &Trail{files: map[string]string{}, patterns: map[string]string{}} }

// Changed reports whether anything is not as it was: a file was written, has come or
// has gone.
func (t *Trail) Changed() bool { return !t.Same(t.Look()) }

// Look gives the same places as they are now.
func (t *Trail) Look() *Trail {
	now := newTrail()
	for path := range t.files {
		now.files[path] = stamp(path)
	}
	for pattern := range t.patterns {
		now.find(pattern)
	}
	return now
}

// Same reports whether nothing differs between the two. Nil is not the same as any.
func (t *Trail) Same(other *Trail) bool {
	return other != nil && maps.Equal(t.files, other.files) && maps.Equal(t.patterns, other.patterns)
}

// stamp tells versions of a file apart by time and size, "" for one that is not there.
func stamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %d", info.ModTime().UnixNano(), info.Size())
}

// read reads a file and notes it. Errors are for people.
func (t *Trail) read(path string) ([]byte, error) {
	t.files[path] = stamp(path) // before it is read: a write in between counts as a change
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %q", path)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%q is not a file", path)
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("%q has %d bytes, %d are allowed", path, info.Size(), maxFileBytes)
	}
	return os.ReadFile(path)
}

// find gives the files that a pattern stands for and notes it and them.
func (t *Trail) find(pattern string) []string {
	found := expand(pattern)
	for _, path := range found {
		t.files[path] = stamp(path)
	}
	t.patterns[pattern] = strings.Join(found, "\n")
	return found
}

// expand gives the YAML files of a folder, the file itself, or the files that match.
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
		matches, _ := filepath.Glob(p) // a bad pattern matches nothing
		found = append(found, matches...)
	}
	slices.Sort(found)
	return slices.DeleteFunc(found, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || info.IsDir()
	})
}

// escape makes a pattern of a path that matches it alone.
func escape(path string) string {
	if filepath.Separator == '\\' {
		return path // where a backslash separates there is no way to escape
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// isPattern reports whether a path that is no file may stand for none.
func isPattern(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir() || strings.ContainsAny(path, "*?[")
}

// load reads what the patterns stand for, and what that includes.
func (r *reader) load(patterns []string) error {
	for _, pattern := range patterns {
		found := r.trail.find(pattern)
		if len(found) == 0 {
			return fault.New(fault.NotFound, "AGENTS_NOT_FOUND", "there is no agents file %q", pattern)
		}
		for _, path := range found {
			data, err := r.trail.read(path)
			if err != nil {
				return fault.New(fault.NotFound, "AGENTS_NOT_FOUND", "the agents cannot be read: %v", err)
			}
			r.take(Source{Name: path, Dir: filepath.Dir(path), Data: data}, path)
		}
	}
	return nil
}

// include reads the files that a file names.
func (r *reader) include(f *file, o *object) {
	for _, item := range o.list("include") {
		pattern, ok := item.text()
		if !ok || pattern == "" {
			r.mistake(item, "include must be a list of files, folders or patterns")
			continue
		}
		pattern = f.path(pattern)
		found := r.trail.find(pattern)
		if len(found) == 0 && !isPattern(pattern) {
			r.mistake(item, "there is no file %q to include", pattern)
		}
		for _, path := range found {
			data, err := r.trail.read(path)
			if err != nil {
				r.mistake(item, "the included file cannot be read: %v", err)
				continue
			}
			r.take(Source{Name: path, Dir: filepath.Dir(path), Data: data}, path)
		}
	}
}

// take reads a file, once, and notes what it declares. A file in memory has no path.
func (r *reader) take(s Source, path string) {
	if path != "" {
		whole, err := filepath.Abs(path)
		if err != nil {
			whole = path
		}
		if r.taken[whole] {
			return
		}
		r.taken[whole] = true
	}
	r.order[s.Name] = len(r.order)
	if len(r.files) == maxFiles {
		r.mistake(value{file: &file{name: s.Name}, line: 1}, "there are more than %d files of agents", maxFiles)
		return
	}
	f := r.parse(s)
	if f == nil {
		return
	}
	r.files = append(r.files, f)
	r.declarations(f)
}

// path makes a path of a file relative to its folder.
func (f *file) path(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(f.dir, path)
}

// content reads the file that a field names; ok is false, with a mistake, where it
// cannot be read.
func (r *reader) content(o *object, name string) (s Source, ok bool) {
	at, _ := o.field(name)
	path := at.file.path(o.text(name))
	data, err := r.trail.read(path)
	if err != nil {
		o.mistake(name, "%s cannot be read: %v", name, err)
		return Source{}, false
	}
	return Source{Name: path, Dir: filepath.Dir(path), Data: data}, true
}
