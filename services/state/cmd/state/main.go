// Command state runs the state service. `state expire` expires sessions in a running service.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state"
)

func main() {
	process.ReserveHeap(process.ServiceReserve)
	process.Main(func(ctx context.Context) error {
		return run(ctx, rpc.TCP(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	})
}

func run(ctx context.Context, network rpc.Network, args, environ []string, stdout, stderr io.Writer) error {
	switch {
	case len(args) == 0:
		return service(ctx, environ, stderr)
	case args[0] == "expire":
		return expire(ctx, network, args[1:], environ, stdout, stderr)
	}
	return fault.New(fault.Invalid, "COMMAND_UNKNOWN",
		"there is no command %q: give none to run the service, or `state expire` to expire sessions", args[0])
}

// shutdownTimeout is how long the tasks may take to end after the grace.
const shutdownTimeout = 6 * time.Second

func service(ctx context.Context, environ []string, stderr io.Writer) (err error) {
	var c state.ProcessConfig
	if err := config.Load(&c, environ); err != nil {
		return err
	}
	if c.Telemetry.ServiceName == "" {
		c.Telemetry.ServiceName = "holdfast-state"
	}
	tel, err := telemetry.Setup(ctx, c.Telemetry, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tel.Shutdown(ctx)) }()
	for _, name := range config.Unknown(environ, "HOLDFAST_STATE_", &c) {
		tel.Log.WarnContext(ctx, "unknown environment variable has no effect", "name", name)
	}
	return serve(ctx, c, tel)
}

func serve(ctx context.Context, c state.ProcessConfig, tel *telemetry.Telemetry) (err error) {
	if err := rpc.CheckListen(c.Listen, c.Internal, tel.Log); err != nil {
		return err
	}
	server, err := rpc.NewServer(rpc.ServerConfig{
		Security: c.Internal, Log: tel.Log, Untraced: []string{statev1.WorkService_Heartbeat_FullMethodName},
	})
	if err != nil {
		return err
	}
	service, err := state.New(ctx, c.Config, state.Peers{Log: tel.Log, Meter: tel.Meter("holdfast.state")})
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
	return process.Run(ctx, c.Grace+shutdownTimeout,
		process.Task{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, c.Grace) }},
		process.Task{Name: "work", Run: service.Run},
	)
}
