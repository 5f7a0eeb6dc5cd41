// Command state runs the state service alone.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/state"
)

func main() { process.Main(run) }

// leaveWithin is how long the tasks get beyond the grace to notice that it is
// over.
const leaveWithin = 6 * time.Second

func run(ctx context.Context) (err error) {
	var c state.ProcessConfig
	if err := config.Load(&c, os.Environ()); err != nil {
		return err
	}
	if c.Telemetry.ServiceName == "" {
		c.Telemetry.ServiceName = "holdfast-state"
	}
	tel, err := telemetry.Setup(ctx, c.Telemetry, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tel.Shutdown(ctx)) }()
	for _, name := range config.Unknown(os.Environ(), "HOLDFAST_STATE_", &c) {
		tel.Log.WarnContext(ctx, "unknown environment variable has no effect", "name", name)
	}
	return serve(ctx, c, tel)
}

func serve(ctx context.Context, c state.ProcessConfig, tel *telemetry.Telemetry) (err error) {
	if err := rpc.CheckListen(c.Listen, c.Internal); err != nil {
		return err
	}
	server, err := rpc.NewServer(rpc.ServerConfig{Security: c.Internal, Log: tel.Log})
	if err != nil {
		return err
	}
	service, err := state.New(ctx, c.Config, state.Peers{Log: tel.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	service.Register(server)
	listener, err := rpc.TCP().Listen(ctx, c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	tel.Log.InfoContext(ctx, "state service listens", "address", listener.Addr().String(), "store", c.Config.Store)
	return process.Run(ctx, c.Grace+leaveWithin,
		process.Task{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, c.Grace) }},
		process.Task{Name: "work", Run: service.Run},
	)
}
