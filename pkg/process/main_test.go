package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestTheExitCodeSaysHowTheProcessEnded(t *testing.T) {
	t.Parallel()
	broken := errors.New("no database")
	untilEnd := func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("serve: %w", ctx.Err()) }
	tests := []struct {
		name    string
		signals []os.Signal
		run     func(context.Context) error
		code    int
		stderr  string
	}{
		{"done", nil, func(context.Context) error { return nil }, 0, ""},
		{"failed", nil, func(context.Context) error { return broken }, 1, "no database"},
		{"asked to stop", []os.Signal{syscall.SIGTERM}, untilEnd, 0, ""},
		{"failed while stopping", []os.Signal{os.Interrupt}, func(ctx context.Context) error { <-ctx.Done(); return broken }, 1, "no database"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal, len(test.signals))
				for _, s := range test.signals {
					signals <- s
				}
				var stderr bytes.Buffer
				if got := supervise(signals, &stderr, test.run); got != test.code {
					t.Errorf("exit code = %d, want %d", got, test.code)
				}
				if got := stderr.String(); !strings.Contains(got, test.stderr) || test.stderr == "" && got != "" {
					t.Errorf("standard error = %q, want %q", got, test.stderr)
				}
			})
		})
	}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		signals := make(chan os.Signal, 2)
		signals <- os.Interrupt
		signals <- os.Interrupt
		var stderr bytes.Buffer
		if got := supervise(signals, &stderr, func(context.Context) error { <-release; return nil }); got != 130 {
			t.Errorf("exit code = %d, want 130", got)
		}
	})
}
