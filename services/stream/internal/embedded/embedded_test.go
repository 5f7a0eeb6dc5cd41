package embedded_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/embedded"
)

func options(directory string) embedded.Options {
	return embedded.Options{Directory: directory, Wait: time.Minute, Log: slog.New(slog.DiscardHandler)}
}

func TestADirectoryHasOneServerAtATime(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "new")
	first, err := embedded.Start(options(directory))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(options(directory)); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v from a second server, want CONFIG_INVALID", err)
	}
	first.Close()
	first.Close()
	second, err := embedded.Start(options(directory))
	if err != nil {
		t.Fatalf("start after a close: %v", err)
	}
	second.Close()
}

func TestADirectoryThatCannotBeMadeIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(options(filepath.Join(file, "below"))); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v, want CONFIG_INVALID", err)
	}
}
