package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/fault"
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
		{"refused", nil, func(context.Context) error { return fmt.Errorf("call: %w", fault.New(fault.Denied, "X", "no")) }, 4, "X: no"},
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

func TestEveryKindOfFaultHasAnExitCodeInTheHelp(t *testing.T) {
	t.Parallel()
	for _, kind := range fault.Kinds() {
		code := ExitCode(fault.New(kind, "X", ""))
		if code == 0 || (code == 1) != (kind == fault.Internal) || !strings.Contains(ExitCodes, fmt.Sprintf("\n  %d  ", code)) {
			t.Errorf("%v ends with %d, want a code of the help other than 0, and 1 for internal alone", kind, code)
		}
	}
	if ExitCode(nil) != 0 || ExitCode(errors.New("x")) != 1 {
		t.Errorf("got %d and %d, want 0 and 1", ExitCode(nil), ExitCode(errors.New("x")))
	}
}

func TestTheVersionNamesTheCommit(t *testing.T) {
	t.Parallel()
	build := debug.BuildInfo{GoVersion: "go1.26.0", Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}, {Key: "vcs.modified", Value: "true"},
	}}
	if got, want := describe(&build), "(devel), commit 0123456789ab, modified, go1.26.0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	build.Main.Version, build.Settings = "v1.2.3", nil
	if got, want := describe(&build), "v1.2.3, go1.26.0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
