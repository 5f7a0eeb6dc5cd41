// Command gateway serves the public HTTP interfaces.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/gateway"
)

// stopTime is what Serve may take beyond the grace.
const stopTime = 6 * time.Second

func main() {
	process.ReserveHeap(process.ServiceReserve)
	process.Main(run)
}

func run(ctx context.Context) (err error) {
	c := gateway.ProcessConfig{}
	c.Telemetry.ServiceName = "holdfast-gateway"
	if err := config.Load(&c, os.Environ()); err != nil {
		return err
	}
	t, err := telemetry.Setup(ctx, c.Telemetry, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Shutdown(ctx)) }()
	if err := gateway.CheckListen(c.Listen, c.Config); err != nil {
		return err
	}
	service, err := gateway.New(ctx, c.Config, gateway.Peers{Security: c.Internal, Log: t.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	listener, err := rpc.TCP().Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	t.Log.InfoContext(ctx, "gateway serves", "address", listener.Addr().String())
	return process.Run(ctx, c.Grace+stopTime,
		process.Task{Name: "serve", Run: func(ctx context.Context) error { return service.Serve(ctx, listener, c.Grace) }},
		process.Task{Name: "work", Run: service.Run},
	)
}
