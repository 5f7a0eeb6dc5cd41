package jetstream_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/logtest"
)

// usable starts a server on the directory twice. Sessions of all partitions must be writable and readable, and
// the second start must find the messages of the first.
func usable(t *testing.T, directory string) {
	t.Helper()
	const sessions = 20
	for round := range 2 {
		server := start(t, directory)
		l := open(t, jetstream.Endpoint{InProcess: server.InProcess()}, options())
		for n := range sessions {
			s := log.Stream{Tenant: "t", Root: strings.Repeat("x", n+1), Session: "s"}
			if got := len(logtest.Stored(t, l, only(s), 0, 10)); got != round {
				t.Errorf("start %d: session %d has %d messages, want %d", round, n, got, round)
			}
			feed := l.Follow(only(s))
			logtest.Append(t, l, s, message(int64(round+1)))
			if got, err := feed.Next(t.Context(), make([]*log.Message, 1)); got != 1 || err != nil {
				t.Errorf("start %d: got %d messages, %v", round, got, err)
			}
			feed.Leave()
		}
		_ = l.Close()
		server.Close()
	}
}

// A kill during the creation of a partition may leave a part of it.
func TestAPartitionOfWhichAStartFindsHalfIsUsable(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(directory string) error{
		"no files":               os.RemoveAll,
		"no configuration":       func(d string) error { return os.Remove(filepath.Join(d, "meta.inf")) },
		"no sum":                 func(d string) error { return os.Remove(filepath.Join(d, "meta.sum")) },
		"an empty sum":           func(d string) error { return os.Truncate(filepath.Join(d, "meta.sum"), 0) },
		"an empty configuration": func(d string) error { return os.Truncate(filepath.Join(d, "meta.inf"), 0) },
		"half a configuration":   func(d string) error { return os.Truncate(filepath.Join(d, "meta.inf"), 100) },
		"no messages":            func(d string) error { return os.RemoveAll(filepath.Join(d, "msgs")) },
		"nothing but a folder": func(d string) error {
			return errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			server := start(t, directory)
			l := open(t, jetstream.Endpoint{InProcess: server.InProcess()}, options())
			_ = l.Close()
			server.Close()
			halves, err := filepath.Glob(filepath.Join(directory, "jetstream", "*", "streams", "*-live-*"))
			if err != nil || len(halves) == 0 {
				t.Fatalf("found partitions %v, %v", halves, err)
			}
			for _, half := range halves {
				if err := damage(half); err != nil {
					t.Fatal(err)
				}
			}
			usable(t, directory)
		})
	}
}

// A kill -9 leaves the files as they are at that moment.
func TestPartitionsThatAKillInterruptsAreUsable(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	server := start(t, directory)
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		o := options()
		o.Partitions = 32
		l, err := jetstream.Open(t.Context(), jetstream.Endpoint{InProcess: server.InProcess()}, o)
		if err != nil {
			t.Error(err)
			return
		}
		_ = l.Close()
	}()
	var copies []string
	for done := false; !done; {
		select {
		case <-opened:
			done = true
		default:
		}
		copied := filepath.Join(t.TempDir(), fmt.Sprint(len(copies)))
		switch err := os.CopyFS(copied, os.DirFS(directory)); {
		case err == nil:
			copies = append(copies, copied)
		case !errors.Is(err, fs.ErrNotExist): // a file was renamed meanwhile
			t.Fatal(err)
		}
	}
	for _, i := range []int{0, len(copies) / 4, len(copies) / 2, len(copies) - 1} {
		usable(t, copies[i])
	}
}
