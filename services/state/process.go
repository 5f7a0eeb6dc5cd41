package state

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/service"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// shutdownTimeout is how long the tasks may take to end after the grace.
const shutdownTimeout = 6 * time.Second

// Program is the state service with a process of its own.
func Program() service.Program[ProcessConfig] {
	return service.Program[ProcessConfig]{
		Name: "state",
		About: `state is the service of Holdfast that owns the database, PostgreSQL or SQLite: what happened in every
session. It updates the schema at its start, and gives runs to executors.`,
		Telemetry: func(c *ProcessConfig) *telemetry.Config { return &c.Telemetry },
		Run:       runProcess,
	}
}

// runProcess serves until ctx ends.
func runProcess(ctx context.Context, c ProcessConfig, t *telemetry.Telemetry) (err error) {
	if err := rpc.CheckListen("HOLDFAST_STATE_LISTEN", c.Listen, c.Internal, t.Log); err != nil {
		return err
	}
	if c.Config.Grants.Secret == "" && !rpc.Loopback(c.Listen) {
		t.Log.WarnContext(
			ctx,
			"executors may write for runs that they do not own: set HOLDFAST_GRANT_SECRET, the same for state and stream",
			"address",
			c.Listen,
		)
	}
	server, err := rpc.NewServer(rpc.ServerConfig{
		Security: c.Internal, Log: t.Log, Untraced: []string{statev1.WorkService_Heartbeat_FullMethodName},
	})
	if err != nil {
		return err
	}
	s, err := New(ctx, c.Config, Peers{Log: t.Log, Meter: t.Meter("holdfast.state")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.Register(server)
	listener, err := rpc.TCP().Listen(ctx, c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	t.Log.InfoContext(ctx, "state service listens", "address", listener.Addr().String(), "store", c.Config.Store)
	return process.Run(ctx, c.Grace+shutdownTimeout,
		process.Task{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, c.Grace) }},
		process.Task{Name: "work", Run: s.Run},
	)
}
