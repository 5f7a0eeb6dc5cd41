package rpc

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// watched is a value made from files. It is made anew when one of them has changed, so that credentials rotate
// without a restart. Safe for concurrent use.
type watched[T any] struct {
	files []string
	every time.Duration // between two looks at the files; 0 looks at each use
	load  func() (T, error)
	log   *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	version []fileVersion
	value   T
}

// fileVersion distinguishes the contents of a file; zero for a missing one.
type fileVersion struct {
	modified time.Time
	bytes    int64
}

// watch loads the value and returns it with its files. Empty names are ignored.
func watch[T any](files []string, every time.Duration, log *slog.Logger, load func() (T, error)) (*watched[T], error) {
	w := &watched[T]{files: files, every: every, load: load, log: log, looked: time.Now()}
	w.version = w.versions() // before the files are read: a later change is noticed
	var err error
	w.value, err = load()
	return w, err
}

// get returns the value of the current files. If they cannot be used, for example while they are replaced one after the
// other, it logs this once and returns the last value.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.every > 0 && time.Since(w.looked) < w.every {
		return w.value
	}
	w.looked = time.Now()
	current := w.versions()
	if slices.Equal(current, w.version) {
		return w.value
	}
	w.version = current
	value, err := w.load()
	if err != nil {
		w.log.Error("changed credentials cannot be used; the earlier ones stay in use", "files", w.files, "error", err)
		return w.value
	}
	w.log.Info("changed credentials are in use", "files", w.files)
	w.value = value
	return value
}

func (w *watched[T]) versions() []fileVersion {
	var list []fileVersion
	for _, name := range w.files {
		var v fileVersion
		if info, err := os.Stat(name); name != "" && err == nil {
			v = fileVersion{info.ModTime(), info.Size()}
		}
		list = append(list, v)
	}
	return list
}
