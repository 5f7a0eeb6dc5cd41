package stream

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/service"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// shutdownSlack is how much longer than the calls' grace the process waits.
const shutdownSlack = 6 * time.Second

// Program is the stream service with a process of its own.
func Program() service.Program[ProcessConfig] {
	return service.Program[ProcessConfig]{
		Name: "stream",
		About: `stream is the service of Holdfast that owns the live log in NATS JetStream. The log holds the step in
flight of every session.`,
		Telemetry: func(c *ProcessConfig) *telemetry.Config { return &c.Telemetry },
		Run:       runProcess,
	}
}

// runProcess serves until ctx ends.
func runProcess(ctx context.Context, c ProcessConfig, t *telemetry.Telemetry) (err error) {
	if err := rpc.CheckListen("HOLDFAST_STREAM_LISTEN", c.Listen, c.Internal, t.Log); err != nil {
		return err
	}
	if c.Grants.Secret == "" && !rpc.Loopback(c.Listen) {
		t.Log.WarnContext(ctx,
			"executors may write for runs that they do not own: set HOLDFAST_GRANT_SECRET, the same for state and stream",
			"address", c.Listen)
	}
	server, err := rpc.NewServer(rpc.ServerConfig{
		Security: c.Internal, Log: t.Log, Untraced: []string{streamv2.StreamService_Append_FullMethodName},
	})
	if err != nil {
		return err
	}
	s, err := New(ctx, c.Config, Peers{Log: t.Log, Meter: t.Meter("holdfast.stream")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	s.Register(server)
	listener, err := rpc.TCP().Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	t.Log.InfoContext(ctx, "stream serves", "address", listener.Addr().String(), "bus", c.Bus)
	return process.Run(ctx, c.Grace+shutdownSlack,
		process.Task{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, c.Grace) }},
		process.Task{Name: "work", Run: s.Run},
	)
}
