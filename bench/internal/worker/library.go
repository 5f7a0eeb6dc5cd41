package worker

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/bench/internal/peer"
	"github.com/holdfast-run/holdfast/bench/internal/process"
)

// Library is a peer whose runtime is a library: one worker executes and starts the runs.
type Library struct {
	// Build builds the program in Spec.
	Build func(ctx context.Context, bin string) error
	Spec  func(w peer.World) process.Spec

	worker *Worker // nil while stopped
}

var _ peer.Peer = (*Library)(nil)

// Prepare implements peer.Peer.
func (l *Library) Prepare(ctx context.Context, bin string) error { return l.Build(ctx, bin) }

// Start implements peer.Peer.
func (l *Library) Start(ctx context.Context, w peer.World) (err error) {
	l.worker, err = Start(ctx, l.Spec(w))
	return err
}

// Run implements peer.Peer.
func (l *Library) Run(ctx context.Context, n int) error {
	if l.worker == nil {
		return errors.New("it is not started")
	}
	return l.worker.Run(ctx, n)
}

// PIDs implements peer.Peer.
func (l *Library) PIDs() []int { return []int{l.worker.PID()} }

// Stop implements peer.Peer.
func (l *Library) Stop() {
	l.worker.Stop()
	l.worker = nil
}
