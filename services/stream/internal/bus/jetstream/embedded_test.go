package jetstream

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// use starts a server in the directory on a machine with that boot.
func use(t *testing.T, directory, boot string, interval time.Duration) *Server {
	t.Helper()
	s, err := startServer(ServerOptions{
		Directory: directory, Wait: 2 * time.Minute, SyncInterval: interval, Log: slog.New(slog.DiscardHandler),
	}, boot)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// killed returns the directory as a process leaves it that is killed while it
// uses it.
func killed(t *testing.T, directory string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(directory)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return to
}

const (
	lax    = 5 * time.Second
	strict = 0
)

func TestALossOfPowerIsToldFromTheEndOfAProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		closed        bool
		boot          string
		before, after time.Duration // sync intervals
		lost          bool
	}{
		"closed, same boot":                 {closed: true, boot: "one", before: lax},
		"closed, another boot":              {closed: true, boot: "two", before: lax},
		"killed, same boot":                 {boot: "one", before: lax},
		"killed, another boot":              {boot: "two", before: lax, lost: true},
		"killed, another boot, now strict":  {boot: "two", before: lax, after: strict, lost: true},
		"killed while strict, another boot": {boot: "two", before: strict, after: lax},
		"killed, unknown boot":              {boot: "", before: lax},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			first := use(t, directory, "one", c.before)
			if first.PowerLost() {
				t.Error("a directory that is new says that power was lost")
			}
			if c.closed {
				first.Close()
			} else {
				directory = killed(t, directory)
			}
			if got := use(t, directory, c.boot, c.after).PowerLost(); got != c.lost {
				t.Errorf("got power lost %v, want %v", got, c.lost)
			}
		})
	}
}

func TestALossOfPowerIsToldUntilTheLogWasBegunAnew(t *testing.T) {
	t.Parallel()
	use(t, t.TempDir(), "one", lax)
	directory := t.TempDir()
	use(t, directory, "one", lax)
	directory = killed(t, directory)
	for _, end := range []func(*Server){
		func(s *Server) { directory = killed(t, directory) }, // before it could begin the log anew
		func(s *Server) { s.Close() },                        // likewise
		func(s *Server) {
			if err := s.Renewed(); err != nil {
				t.Fatal(err)
			}
			directory = killed(t, directory)
		},
	} {
		s := use(t, directory, "two", lax)
		if !s.PowerLost() {
			t.Fatal("got no loss of power, and the log was not begun anew")
		}
		end(s)
	}
	s := use(t, directory, "two", lax)
	if s.PowerLost() {
		t.Error("got a loss of power, and the log was begun anew")
	}
	if err := s.Renewed(); err != nil {
		t.Errorf("nothing was lost: got %v", err)
	}
}

func TestThreeBootsInARowAreTwoLossesOfPower(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	for i, boot := range []string{"one", "two", "three"} {
		s := use(t, directory, boot, lax)
		if s.PowerLost() != (i > 0) {
			t.Fatalf("boot %s: got power lost %v", boot, s.PowerLost())
		}
		if err := s.Renewed(); err != nil {
			t.Fatal(err)
		}
		directory = killed(t, directory)
	}
}

func TestANoteThatIsDamagedSaysThatPowerWasLost(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, noteName), []byte("\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !use(t, directory, "one", lax).PowerLost() {
		t.Error("got no loss of power from a note of zeroes")
	}
}

func TestAMachineThatDoesNotNameItsBootNotesNothing(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	s := use(t, directory, "", lax)
	if err := s.Renewed(); err != nil {
		t.Error(err)
	}
	s.Close()
	if _, err := os.Stat(filepath.Join(directory, noteName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no note", err)
	}
}

func TestTheServerSyncsAsItIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		interval time.Duration
		always   bool
	}{{0, true}, {time.Second, false}} {
		got := use(t, t.TempDir(), "one", c.interval).server.JetStreamConfig()
		if got.SyncAlways != c.always || !c.always && got.SyncInterval != c.interval {
			t.Errorf("interval %v: got sync always %v, every %v", c.interval, got.SyncAlways, got.SyncInterval)
		}
	}
	for _, interval := range []time.Duration{-time.Second, time.Nanosecond} {
		_, err := StartServer(ServerOptions{Directory: t.TempDir(), Wait: time.Second, SyncInterval: interval})
		if fault.ReasonOf(err) != "CONFIG_INVALID" {
			t.Errorf("interval %v: got %v, want CONFIG_INVALID", interval, err)
		}
	}
}

func TestADirectoryThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	use(t, directory, "one", lax)
	_, err := StartServer(ServerOptions{Directory: directory, Wait: time.Second, SyncInterval: lax})
	if fault.ReasonOf(err) != "CONFIG_INVALID" || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v, want that another process uses it", err)
	}
	file := filepath.Join(directory, noteName)
	if _, err := StartServer(ServerOptions{Directory: file, Wait: time.Second, SyncInterval: lax}); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("a file as directory: got %v, want CONFIG_INVALID", err)
	}
	blocked := t.TempDir()
	if err := os.Mkdir(filepath.Join(blocked, noteName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := startServer(ServerOptions{Directory: blocked, Wait: time.Second, SyncInterval: lax}, "one"); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("a note that cannot be written: got %v, want CONFIG_INVALID", err)
	}
}
