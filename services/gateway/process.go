package gateway

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/service"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// stopTime is what Serve may take beyond the grace.
const stopTime = 6 * time.Second

// Main is the main function of a gateway with hooks, routes and callers of the program: it reads its configuration from the
// environment (see ProcessConfig), serves, and ends the process. It answers --help and --version and refuses other arguments.
// It uses BeforeEntry, AfterEntry, Routes and Authenticate of the peers. It does not return.
func Main(p Peers) { Program(p).Main() }

// Run is Main for programs with a main function of their own: it runs a gateway, configured by environ, until ctx ends.
//
// Invalid (INSECURE_LISTEN), the faults of New, and those of listening.
func Run(ctx context.Context, environ []string, p Peers) error {
	return Program(p).Serve(ctx, environ, os.Stderr)
}

// Program is the gateway with a process of its own. It uses the same peers as Main.
func Program(p Peers) service.Program[ProcessConfig] {
	return service.Program[ProcessConfig]{
		Name: "gateway",
		About: `gateway is the service of Holdfast that serves the public: /chat for the AI SDK, server-sent events,
WebSockets and a Connect API. It stores nothing, so any replica serves any client. It calls the
state and the stream service.`,
		Telemetry: func(c *ProcessConfig) *telemetry.Config { return &c.Telemetry },
		Run: func(ctx context.Context, c ProcessConfig, t *telemetry.Telemetry) error {
			return runProcess(ctx, c, t, p)
		},
	}
}

// runProcess serves until ctx ends.
func runProcess(ctx context.Context, c ProcessConfig, t *telemetry.Telemetry, p Peers) (err error) {
	if p.Authenticate == nil {
		if err := CheckListen("HOLDFAST_GATEWAY_LISTEN", c.Listen, c.Config); err != nil {
			return err
		}
	}
	s, err := New(ctx, c.Config, Peers{
		Security: c.Internal, Log: t.Log, Meter: t.Meter("holdfast.gateway"),
		BeforeEntry: p.BeforeEntry, AfterEntry: p.AfterEntry, Routes: p.Routes, Authenticate: p.Authenticate,
	})
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
		process.Task{Name: "clients", Run: func(ctx context.Context) error { return s.ServeWithin(ctx, c.Grace) }},
		process.Task{Name: "work", Run: s.Run},
	)
}
