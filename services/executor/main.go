package executor

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// endGrace is what the server may take after its grace to break what is left.
const endGrace = 6 * time.Second

// Main is the main function of an executor with the agents of the registry: it reads
// its configuration from the environment (see ProcessConfig), serves, and ends the
// process. Agents in YAML files that the environment names are served beside them. It
// does not return.
func Main(registry *Registry) {
	process.ReserveHeap(process.ServiceReserve)
	process.Main(func(ctx context.Context) error {
		return Run(ctx, os.Environ(), Peers{Registry: registry})
	})
}

// Run is Main for a program of one's own: it runs an executor, configured by environ,
// until ctx ends. Agents, Log, Security, Network and LookupEnv of the peers are not used.
//
// Invalid (CONFIG_INVALID, MODEL_INVALID, INSECURE_LISTEN), the faults of Registry.Load, and
// what listening gives.
func Run(ctx context.Context, environ []string, p Peers) (err error) {
	c := ProcessConfig{Telemetry: telemetry.Config{ServiceName: "holdfast-executor"}}
	if err := config.Load(&c, environ); err != nil {
		return err
	}
	t, err := telemetry.Setup(ctx, c.Telemetry, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Shutdown(ctx)) }()
	p.Agents = nil
	p.Log, p.Security, p.Network, p.LookupEnv = t.Log, c.Internal, rpc.TCP(), lookup(environ)
	if p.Registry == nil {
		p.Registry = NewRegistry()
	}
	defer func() { err = errors.Join(err, p.Registry.Close()) }()
	if err := load(ctx, p, c); err != nil {
		return err
	}
	if err := rpc.CheckListen(c.Listen, c.Internal); err != nil {
		return err
	}
	listener, err := p.Network.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer listener.Close() // Serve has closed it already, unless it never ran
	server, err := rpc.NewServer(rpc.ServerConfig{Security: c.Internal, Log: t.Log})
	if err != nil {
		return err
	}
	service, err := New(ctx, c.Config, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	service.Register(server)
	t.Log.InfoContext(ctx, "executor serves", "address", listener.Addr().String(), "agents", len(p.Registry.Types()))
	tasks := []process.Task{
		{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, c.Grace) }},
		{Name: "work", Run: service.Run},
	}
	if c.AgentsFiles != "" {
		tasks = append(tasks, process.Task{Name: "reload", Run: func(ctx context.Context) error { return reload(ctx, p) }})
	}
	return process.Run(ctx, c.Grace+endGrace, tasks...)
}

// load reads the agents in YAML.
func load(ctx context.Context, p Peers, c ProcessConfig) error {
	if c.AgentsFiles == "" {
		if len(p.Registry.Types()) == 0 {
			return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_AGENTS is not set, and no agent is registered: name YAML files with agents")
		}
		return nil
	}
	return p.Registry.Load(ctx, c.AgentsConfig, p)
}

// reload reads the files of agents again at each SIGHUP, until ctx ends.
func reload(ctx context.Context, p Peers) error {
	signals := make(chan os.Signal, 1) // one that waits says the same as many
	signal.Notify(signals, syscall.SIGHUP)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
			tell(ctx, p.Log, p.Registry, p.Registry.Reload(ctx))
		}
	}
}

// lookup looks variables up in a list of "NAME=value".
func lookup(environ []string) func(string) (string, bool) {
	values := make(map[string]string, len(environ))
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok {
			values[name] = value
		}
	}
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}
