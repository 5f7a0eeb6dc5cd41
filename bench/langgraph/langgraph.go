// Package langgraph runs the agent on LangGraph.js, with its checkpoints in Postgres.
package langgraph

import (
	"context"
	"os/exec"
	"path/filepath"

	"github.com/holdfast-run/holdfast/bench/internal/peer"
	"github.com/holdfast-run/holdfast/bench/internal/process"
	"github.com/holdfast-run/holdfast/bench/internal/worker"
)

const folder = "langgraph" // with the worker and the lock file

// New returns LangGraph.js.
func New() peer.Peer {
	var node, script string // set by Prepare
	return &worker.Library{
		Build: func(ctx context.Context, _ string) (err error) {
			if node, err = exec.LookPath("node"); err != nil {
				return err
			}
			if script, err = filepath.Abs(filepath.Join(folder, "worker.mjs")); err != nil {
				return err
			}
			return peer.Install(ctx, folder)
		},
		Spec: func(w peer.World) process.Spec {
			return process.Spec{
				Name: "langgraph", Path: node, Args: []string{script}, Dir: w.Dir,
				Env: []string{"DATABASE_URL=" + w.Database, "NODE_ENV=production", "LANGCHAIN_TRACING_V2=false"},
			}
		},
	}
}
