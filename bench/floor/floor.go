// Package floor is not a runtime: one Go process performs only two transactions and five publishes per step. It
// shows the least cost of the database and the log.
package floor

import (
	"context"

	"github.com/holdfast-run/holdfast/bench/internal/peer"
	"github.com/holdfast-run/holdfast/bench/internal/process"
	"github.com/holdfast-run/holdfast/bench/internal/worker"
)

const name = "floor"

// New returns the floor.
func New() peer.Peer {
	return &worker.Library{
		Build: func(ctx context.Context, bin string) error { return peer.BuildWorker(ctx, bin, name) },
		Spec: func(w peer.World) process.Spec {
			return process.Spec{
				Name: name, Path: peer.Worker(w.Bin, name), Dir: w.Dir,
				Env: []string{"DATABASE_URL=" + w.Database, "STREAM_DIR=" + w.Dir},
			}
		},
	}
}
