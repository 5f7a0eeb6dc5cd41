package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Main runs the process and exits. The context of run ends at the first SIGINT or SIGTERM; a second signal exits
// at once with 130. The exit code is 0 if run returns nil, or its context's error after a signal; otherwise Main
// prints the error to standard error and exits with its ExitCode. Main does not return, and deferred functions of
// its caller do not run.
func Main(run func(ctx context.Context) error) {
	signals := make(chan os.Signal, 2) // for both meaningful signals
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(supervise(signals, os.Stderr, run))
}

// supervise returns the exit code. It abandons run at the second signal.
func supervise(signals <-chan os.Signal, stderr io.Writer, run func(context.Context) error) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1) // buffered, so an abandoned run can end
	go func() { ended <- run(ctx) }()
	for {
		select {
		case err := <-ended:
			return report(ctx, stderr, err)
		case <-signals:
			if ctx.Err() != nil {
				return exitInterrupted
			}
			cancel()
		}
	}
}

func report(ctx context.Context, stderr io.Writer, err error) int {
	if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return exitOK
	}
	fmt.Fprintf(stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	return ExitCode(err)
}
