// Command stream runs the stream service as a process. Environment variables configure it; stream.ProcessConfig
// declares them.
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
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream"
)

// shutdownSlack is how much longer than the calls' grace the process waits.
const shutdownSlack = 6 * time.Second

func main() {
	process.ReserveHeap(process.ServiceReserve)
	process.Main(run)
}

func run(ctx context.Context) (err error) {
	var c stream.ProcessConfig
	if err := config.Load(&c, os.Environ()); err != nil {
		return err
	}
	c.Telemetry.ServiceName = "holdfast-stream"
	t, err := telemetry.Setup(ctx, c.Telemetry, os.Stderr)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Grace)
		defer cancel()
		err = errors.Join(err, t.Shutdown(ctx))
	}()
	return serve(ctx, c, t)
}

func serve(ctx context.Context, c stream.ProcessConfig, t *telemetry.Telemetry) (err error) {
	if err := rpc.CheckListen(c.Listen, c.Internal, t.Log); err != nil {
		return err
	}
	server, err := rpc.NewServer(rpc.ServerConfig{
		Security: c.Internal, Log: t.Log, Untraced: []string{streamv2.StreamService_Append_FullMethodName},
	})
	if err != nil {
		return err
	}
	service, err := stream.New(ctx, c.Config, stream.Peers{Log: t.Log, Meter: t.Meter("holdfast.stream")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	service.Register(server)
	listener, err := rpc.TCP().Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	t.Log.InfoContext(ctx, "stream serves", "address", listener.Addr().String(), "bus", c.Bus)
	return process.Run(ctx, c.Grace+shutdownSlack,
		process.Task{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, c.Grace) }},
		process.Task{Name: "work", Run: service.Run},
	)
}
