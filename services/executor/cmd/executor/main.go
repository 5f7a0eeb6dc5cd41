// Command executor runs the executor service in a process of its own.
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
	"github.com/holdfast-run/holdfast/services/executor"
)

// endGrace is what the server may take after its grace to break what is left.
const endGrace = 6 * time.Second

func main() { process.Main(run) }

func run(ctx context.Context) (err error) {
	c := executor.ProcessConfig{Telemetry: telemetry.Config{ServiceName: "holdfast-executor"}}
	if err := config.Load(&c, os.Environ()); err != nil {
		return err
	}
	t, err := telemetry.Setup(ctx, c.Telemetry, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Shutdown(ctx)) }()
	agents, err := executor.LoadAgents(c.AgentsFile, os.LookupEnv)
	if err != nil {
		return err
	}
	if err := rpc.CheckListen(c.Listen, c.Internal); err != nil {
		return err
	}
	listener, err := rpc.TCP().Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer listener.Close() // Serve has closed it already, unless it never ran
	server, err := rpc.NewServer(rpc.ServerConfig{Security: c.Internal, Log: t.Log})
	if err != nil {
		return err
	}
	service, err := executor.New(ctx, c.Config, executor.Peers{Agents: agents, Security: c.Internal, Log: t.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	service.Register(server)
	t.Log.InfoContext(ctx, "executor serves", "address", listener.Addr().String(), "agents", len(agents.Definitions()))
	return process.Run(ctx, c.Grace+endGrace,
		process.Task{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, c.Grace) }},
		process.Task{Name: "work", Run: service.Run},
	)
}
