package executor

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/service"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor/internal/registry"
)

// endGrace is how long the server may take after its grace to cut the remaining calls.
const endGrace = 6 * time.Second

// Main is the main function of an executor with the agents of the registry: it reads
// its configuration from the environment (see ProcessConfig), serves, and ends the
// process. It also serves agents in the YAML files that the environment names. It
// answers --help and --version and refuses other arguments; a program with arguments of
// its own calls Run. It does not return.
func Main(r *Registry) { Program(os.Environ(), Peers{Registry: r}).Main() }

// Run is Main for programs with a main function of their own: it runs an executor, configured by
// environ, until ctx ends. It ignores Agents, Log, Meter, Security, Network and LookupEnv of the peers.
//
// Invalid (CONFIG_INVALID, MODEL_INVALID, INSECURE_LISTEN), and the faults of Registry.Load and
// of listening.
func Run(ctx context.Context, environ []string, p Peers) error {
	return Program(environ, p).Serve(ctx, environ, os.Stderr)
}

// Program is the executor with a process of its own. The files of agents may name variables of
// environ. It uses the same peers as Run.
func Program(environ []string, p Peers) service.Program[ProcessConfig] {
	return service.Program[ProcessConfig]{
		Name: "executor",
		About: `executor is the service of Holdfast that calls models and tools: it runs agents. It stores nothing, so
any replica may die between two instructions. It calls the state and the stream service.`,
		Telemetry: func(c *ProcessConfig) *telemetry.Config { return &c.Telemetry },
		Run: func(ctx context.Context, c ProcessConfig, t *telemetry.Telemetry) error {
			p.LookupEnv = config.Lookup(environ)
			return runProcess(ctx, c, t, p)
		},
	}
}

// runProcess serves until ctx ends.
func runProcess(ctx context.Context, c ProcessConfig, t *telemetry.Telemetry, p Peers) (err error) {
	p.Agents = nil // they come from the files of the configuration
	p.Registry = orNew(p.Registry)
	p.Log = t.Log
	p.Meter = t.Meter("holdfast.executor")
	p.Security = c.Internal
	p.Network = rpc.TCP()
	defer func() { err = errors.Join(err, p.Registry.Close()) }()
	fromOutside := c.AgentsFiles != "" || c.Endpoints != ""
	if !fromOutside && !c.StoredAgents && len(p.Registry.Types()) == 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "neither HOLDFAST_EXECUTOR_AGENTS nor HOLDFAST_EXECUTOR_ENDPOINTS is set, "+
			"and no agent is registered: name YAML files with agents, or endpoints")
	}
	if err := p.Registry.ServeStored(c.AgentsConfig, RegistryPeers{LookupEnv: p.LookupEnv, Log: p.Log}); err != nil {
		return err
	}
	if fromOutside {
		if err := p.Registry.Load(ctx, c.AgentsConfig, RegistryPeers{LookupEnv: p.LookupEnv, Log: p.Log}); err != nil {
			return err
		}
	}
	if err := rpc.CheckListen("HOLDFAST_EXECUTOR_LISTEN", c.Listen, c.Internal, t.Log); err != nil {
		return err
	}
	s, err := New(ctx, c.Config, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.serve(ctx, c, p.Network)
}

// serve serves and works until ctx ends.
func (s *Service) serve(ctx context.Context, c ProcessConfig, network rpc.Network) error {
	listener, err := network.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	defer listener.Close() // rpc.Serve has closed it already, unless it never ran
	server, err := rpc.NewServer(rpc.ServerConfig{Security: c.Internal, Log: s.log})
	if err != nil {
		return err
	}
	s.Register(server)
	s.log.InfoContext(ctx, "executor serves", "address", listener.Addr().String(), "agents", len(s.registry.Types()))
	tasks := []process.Task{
		{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, c.Grace) }},
		{Name: "work", Run: s.Run},
		{Name: "reload", Run: s.reloadOnHangup}, // also without files: a hangup must not end the process
	}
	return process.Run(ctx, c.Grace+endGrace, tasks...)
}

// reloadOnHangup reloads the files of agents at each SIGHUP, until ctx ends.
func (s *Service) reloadOnHangup(ctx context.Context) error {
	signals := make(chan os.Signal, 1) // a pending signal stands for all that follow
	signal.Notify(signals, syscall.SIGHUP)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
			registry.ReloadAndLog(ctx, s.registry, s.log)
		}
	}
}
