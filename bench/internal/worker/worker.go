// Package worker connects the benchmark to a process with a runtime as a library. The process first writes
// "ready" to its standard output. For each line "run N" on its standard input it executes N concurrent runs to
// their ends and writes "ok", or "error" with the reason.
package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/bench/internal/process"
)

const (
	ready   = "ready"
	success = "ok"
)

// Main serves the standard input until its end. run executes the run with the id.
func Main(ctx context.Context, run func(ctx context.Context, id string) error) error {
	return serve(ctx, os.Stdin, os.Stdout, run)
}

func serve(ctx context.Context, in io.Reader, out io.Writer, run func(ctx context.Context, id string) error) error {
	if _, err := fmt.Fprintln(out, ready); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for batch := 1; lines.Scan(); batch++ {
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "run %d", &n); err != nil {
			return fmt.Errorf("the command %q: %w", lines.Text(), err)
		}
		answer := success
		g, ctx := errgroup.WithContext(ctx)
		for i := range n {
			g.Go(func() error { return run(ctx, fmt.Sprintf("run-%d-%d", batch, i)) })
		}
		if err := g.Wait(); err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Worker is a running worker process.
type Worker struct {
	*process.Process
	lines chan string // lines of its standard output; closed with it
}

// Start starts a worker and waits until it is ready.
func Start(ctx context.Context, s process.Spec) (*Worker, error) {
	read, write := io.Pipe()
	s.Output = write
	p, err := process.Start(s)
	if err != nil {
		return nil, err
	}
	w := &Worker{Process: p, lines: make(chan string)}
	go func() { // ends with the process
		<-p.Ended()
		_ = write.Close()
	}()
	go func() { // ends with the pipe
		defer close(w.lines)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			w.lines <- lines.Text()
		}
	}()
	if err := w.expect(ctx, ready); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// Run executes n concurrent runs.
func (w *Worker) Run(ctx context.Context, n int) error {
	if _, err := fmt.Fprintf(w.Input(), "run %d\n", n); err != nil {
		return w.Failure(err)
	}
	return w.expect(ctx, success)
}

func (w *Worker) expect(ctx context.Context, want string) error {
	select {
	case line, ok := <-w.lines:
		switch {
		case !ok:
			return w.Failure(errors.New("it ended"))
		case line != want:
			return w.Failure(fmt.Errorf("it answered %q", line))
		}
		return nil
	case <-ctx.Done():
		return w.Failure(ctx.Err())
	}
}

// Stop ends the worker. Stopping a nil worker does nothing.
func (w *Worker) Stop() {
	if w != nil {
		w.Process.Stop(syscall.SIGTERM)
	}
}
