// Package dbos runs the agent on DBOS Transact for Go.
package dbos

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/bench/internal/peer"
	"github.com/holdfast-run/holdfast/bench/internal/process"
	"github.com/holdfast-run/holdfast/bench/internal/worker"
)

const name = "dbos"

// Options configure the agent's use of DBOS.
type Options struct {
	// Stream writes a step's chunks to a stream, in one write.
	Stream bool
	// OneRecord runs the model and the tool as one step of DBOS, with both messages as its result. A crash
	// between the two repeats the model call.
	OneRecord bool
}

// New returns DBOS.
func New(o Options) func() peer.Peer {
	return func() peer.Peer {
		return &worker.Library{
			Build: func(ctx context.Context, bin string) error { return peer.BuildWorker(ctx, bin, name) },
			Spec: func(w peer.World) process.Spec {
				return process.Spec{
					Name: name, Path: peer.Worker(w.Bin, name), Dir: w.Dir,
					Env:  []string{"DATABASE_URL=" + w.Database},
					Args: []string{fmt.Sprint("-stream=", o.Stream), fmt.Sprint("-one-record=", o.OneRecord)},
				}
			},
		}
	}
}
