package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/service"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// stopTime is what Serve may take beyond the grace.
const stopTime = 6 * time.Second

// Program is the gateway with a process of its own.
func Program() service.Program[ProcessConfig] {
	return service.Program[ProcessConfig]{
		Name: "gateway",
		About: `gateway is the service of Holdfast that serves the public: /chat for the AI SDK, server-sent events,
WebSockets and a Connect API. It stores nothing, so any replica serves any client. It calls the
state and the stream service.`,
		Telemetry: func(c *ProcessConfig) *telemetry.Config { return &c.Telemetry },
		Run:       runProcess,
	}
}

// runProcess serves until ctx ends.
func runProcess(ctx context.Context, c ProcessConfig, t *telemetry.Telemetry) (err error) {
	if err := CheckListen("HOLDFAST_GATEWAY_LISTEN", c.Listen, c.Config); err != nil {
		return err
	}
	s, err := New(ctx, c.Config, Peers{Security: c.Internal, Log: t.Log, Meter: t.Meter("holdfast.gateway")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	listener, err := rpc.TCP().Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	t.Log.InfoContext(ctx, "gateway serves", "address", listener.Addr().String())
	return process.Run(ctx, c.Grace+stopTime,
		process.Task{Name: "serve", Run: func(ctx context.Context) error { return s.Serve(ctx, listener, c.Grace) }},
		process.Task{Name: "work", Run: s.Run},
	)
}
