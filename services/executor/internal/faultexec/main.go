// Command faultexec is an executor for tests of crashes. It kills itself with SIGKILL when a run passes a
// configured point between two effects (see package worker).
//
// Its agents are in agents.go. Each can be served under many names: text@NAME is the agent "text" under a name
// that only one test uses. So the test decides which process takes its runs.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/scripted"
)

// headerLimit bounds the time for the header of a request to the control address.
const headerLimit = 5 * time.Second

// settings are read from the environment.
type settings struct {
	Executor  executor.Config
	Listen    string        `env:"HOLDFAST_EXECUTOR_LISTEN,required" doc:"address to serve on"`
	Grace     time.Duration `env:"HOLDFAST_SHUTDOWN_GRACE" envDefault:"10s" doc:"time for everything to end at shutdown"`
	Internal  rpc.Security  `envPrefix:"HOLDFAST_INTERNAL_"`
	Telemetry telemetry.Config

	Fault   faultSettings
	Ledger  string `env:"FAULT_LEDGER,required" doc:"URL of the outside system that the tools have their effects on"`
	Agent   string `env:"FAULT_AGENT,required" doc:"the agent to serve from the beginning, as in text@NAME"`
	Control string `env:"FAULT_CONTROL" doc:"address that takes POST /serve?agent=text@NAME, to serve one more"`
}

func main() { process.Main(run) }

func run(ctx context.Context) (err error) {
	s := settings{Telemetry: telemetry.Config{ServiceName: "holdfast-faultexec"}}
	if err := config.Load(&s, os.Environ()); err != nil {
		return err
	}
	t, err := telemetry.Setup(ctx, s.Telemetry, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Shutdown(ctx)) }()
	crew, err := newAgentServer(s.Ledger)
	if err != nil {
		return err
	}
	if err := crew.serve(s.Agent); err != nil {
		return err
	}
	dies, err := newFaults(s.Fault)
	if err != nil {
		return err
	}
	listener, err := rpc.TCP().Listen(ctx, s.Listen)
	if err != nil {
		return err
	}
	defer listener.Close() // Serve has closed it already, unless it never ran
	server, err := rpc.NewServer(rpc.ServerConfig{Security: s.Internal, Log: t.Log})
	if err != nil {
		return err
	}
	service, err := executor.New(ctx, s.Executor, executor.Peers{
		Registry: crew.registry, Security: s.Internal, Log: t.Log, Passed: dies.passed,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }()
	service.Register(server)
	return process.Run(ctx, s.Grace,
		process.Task{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, s.Grace) }},
		process.Task{Name: "work", Run: service.Run},
		process.Task{Name: "control", Run: func(ctx context.Context) error { return control(ctx, s.Control, crew, t.Log) }},
	)
}

// control serves the control address until ctx ends. A request adds an agent.
func control(ctx context.Context, address string, c *agentServer, log *slog.Logger) error {
	if address == "" {
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /serve", func(w http.ResponseWriter, r *http.Request) {
		if err := c.serve(r.FormValue("agent")); err != nil {
			log.ErrorContext(r.Context(), "the agent cannot be served", "error", err)
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	listener, err := rpc.TCP().Listen(ctx, address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerLimit}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newAgentServer returns a registry without agents.
func newAgentServer(ledger string) (*agentServer, error) {
	parsed, err := scripted.Parse([]byte(script))
	if err != nil {
		return nil, err
	}
	r := executor.NewRegistry()
	if err := r.Model("scripted", scripted.New(parsed)); err != nil {
		return nil, err
	}
	return &agentServer{registry: r, ledger: ledger}, nil
}
