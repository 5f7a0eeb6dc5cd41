// Package temporal runs the agent on Temporal: the dev server of its command line tool, and a worker with the Go
// SDK.
package temporal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"syscall"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
	"github.com/holdfast-run/holdfast/bench/internal/peer"
	"github.com/holdfast-run/holdfast/bench/internal/process"
)

const (
	name = "temporal"
	tool = "github.com/temporalio/cli/cmd/temporal"
	// go install accepts this version; the go.mod of v1.9.1 has a replace directive.
	version = "v1.5.1"
)

type temporal struct {
	program string // set by Prepare

	server, worker *process.Process
	client         client.Client // nil while stopped
	batch          int
}

// New returns Temporal.
func New() peer.Peer { return &temporal{} }

// Prepare implements peer.Peer.
func (t *temporal) Prepare(ctx context.Context, bin string) (err error) {
	if t.program, err = peer.GoInstall(ctx, bin, tool, version); err != nil {
		return err
	}
	return peer.BuildWorker(ctx, bin, name)
}

// Start implements peer.Peer.
func (t *temporal) Start(ctx context.Context, w peer.World) error {
	address, err := process.FreeAddress()
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if t.server, err = process.Start(process.Spec{
		Name: name, Path: t.program, Dir: w.Dir, Args: []string{
			"server", "start-dev", "--headless", "--ip", host, "--port", port, "--log-level", "error",
			"--db-filename", filepath.Join(w.Dir, "temporal.db"), "--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=full",
		},
	}); err != nil {
		return err
	}
	if err := t.server.WaitReady(ctx, func(ctx context.Context) (err error) {
		t.client, err = client.DialContext(ctx, client.Options{HostPort: address, Logger: log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))})
		return err
	}); err != nil {
		return err
	}
	if t.worker, err = process.Start(process.Spec{
		Name: "the worker of " + name, Path: peer.Worker(w.Bin, name), Dir: w.Dir, Args: []string{"-server", address},
	}); err != nil {
		return err
	}
	return t.server.WaitReady(ctx, func(ctx context.Context) error { return t.Run(ctx, 1) })
}

// Run implements peer.Peer. The client waits for the end of each run with a long poll.
func (t *temporal) Run(ctx context.Context, n int) error {
	t.batch++
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			id := fmt.Sprintf("run-%d-%d", t.batch, i)
			run, err := t.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: "agents"}, "Run", agent.Ask())
			if err != nil {
				return err
			}
			var messages int
			err = run.Get(ctx, &messages)
			if want := 2 * agent.Steps; err == nil && messages != want {
				err = fmt.Errorf("%s has %d messages, want %d", id, messages, want)
			}
			return err
		})
	}
	return g.Wait()
}

// PIDs implements peer.Peer.
func (t *temporal) PIDs() []int { return []int{t.server.PID(), t.worker.PID()} }

// Stop implements peer.Peer.
func (t *temporal) Stop() {
	if t.client != nil {
		t.client.Close()
	}
	t.worker.Stop(syscall.SIGKILL)
	t.server.Stop(syscall.SIGKILL)
	t.client, t.server, t.worker = nil, nil, nil
}
