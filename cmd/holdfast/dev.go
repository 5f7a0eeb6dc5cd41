package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

// The addresses of the services on the in-memory network.
const (
	stateAddress    = "state"
	streamAddress   = "stream"
	executorAddress = "executor"
)

// joinedAddress is where an executor of another process serves the methods of its agents, unless
// HOLDFAST_EXECUTOR_LISTEN says otherwise there.
const joinedAddress = "127.0.0.1:7413"

// flushGrace bounds the export of the last spans.
const flushGrace = 5 * time.Second

// devOptions are the command line's options.
type devOptions struct {
	listen string
	data   string
	agents []string
	expose bool
}

// devConfig is the configuration of the four services in one process.
type devConfig struct {
	State     state.Config
	Stream    stream.Config
	Executor  executor.Config
	Agents    executor.AgentsConfig
	Gateway   gateway.Config
	Expose    exposeConfig
	Telemetry telemetry.Config
	Grace     time.Duration `env:"HOLDFAST_SHUTDOWN_GRACE" envDefault:"10s" doc:"time for calls and steps to end at shutdown"`
}

// newDev returns the command that runs the whole system.
func newDev(t *cli.Terminal) *cobra.Command {
	var o devOptions
	c := &cobra.Command{
		Use: "dev", Short: "Run all four services in this process, for development", Args: cli.NoArguments,
		Long: `Run all four services in this process, on SQLite and an embedded JetStream whose files survive restarts.
Files of agents that change are read again. Without files there are demo agents, which need no API key.`,
		RunE: func(c *cobra.Command, _ []string) error { return dev(c.Context(), o, t) },
	}
	c.Flags().StringVar(&o.listen, "listen", "127.0.0.1:8080", "the address of the gateway")
	c.Flags().StringVar(&o.data, "data", ".holdfast", "the folder that keeps everything")
	c.Flags().BoolVar(&o.expose, "expose", false,
		"let executors of other processes join, at HOLDFAST_STATE_LISTEN and HOLDFAST_STREAM_LISTEN")
	c.Flags().StringArrayVar(&o.agents, "agents", nil,
		"a YAML file of agents, a folder or a pattern; may be given several times; the demo agents without")
	return c
}

// dev runs the whole system until ctx ends.
func dev(ctx context.Context, o devOptions, t *cli.Terminal) error {
	c, err := o.configure(t.Environ)
	if err != nil {
		return err
	}
	unlock, err := lockFolder(o.data)
	if err != nil {
		return err
	}
	defer unlock()
	tel, err := telemetry.Setup(ctx, c.Telemetry, t.Err)
	if err != nil {
		return err
	}
	defer flush(context.WithoutCancel(ctx), tel)
	return runServices(ctx, o, c, t.Environ, tel.Log, t.Out)
}

// flush exports the last spans.
func flush(ctx context.Context, t *telemetry.Telemetry) {
	ctx, cancel := context.WithTimeout(ctx, flushGrace)
	defer cancel()
	if err := t.Shutdown(ctx); err != nil {
		t.Log.WarnContext(ctx, "spans were lost at shutdown", "error", err)
	}
}

// runServices opens the services and runs them until ctx ends.
func runServices(ctx context.Context, o devOptions, c devConfig, environ []string, log *slog.Logger, stdout io.Writer) (err error) {
	agents, err := loadAgents(ctx, c.Agents, environ, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.Close()) }()
	if c.Gateway.DefaultAgent == "" {
		names := agents.Types() // none if all agents wait for something
		switch {
		case slices.Contains(names, "demo"):
			c.Gateway.DefaultAgent = "demo"
		case len(names) > 0:
			c.Gateway.DefaultAgent = names[0]
		}
	}
	if err := gateway.CheckListen("--listen", o.listen, c.Gateway); err != nil {
		return err
	}
	var network net.ListenConfig
	listener, err := network.Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fault.New(fault.Unavailable, "LISTEN_FAILED", "%v; choose another address with --listen", err)
	}
	defer listener.Close()
	lines := &runLines{out: stdout}
	h, err := open(ctx, c, agents, rpc.NewProcess(), log, agent.Hooks{AfterRun: lines.print})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	var joining exposed
	if o.expose {
		if joining, err = c.Expose.listen(ctx, h); err != nil {
			return err
		}
		defer joining.close()
	}
	return h.run(ctx, c, listener, joining, func() error {
		lines.mu.Lock()
		defer lines.mu.Unlock()
		return welcome(stdout, listener.Addr().String(), o, agents, joining)
	})
}

// configure applies the environment over the defaults of a single process.
func (o devOptions) configure(environ []string) (devConfig, error) {
	defaults := []string{
		"HOLDFAST_STATE_STORE=sqlite",
		"HOLDFAST_STATE_SQLITE_PATH=" + filepath.Join(o.data, "state.db"),
		"HOLDFAST_STREAM_BUS=embedded",
		"HOLDFAST_STREAM_DATA_DIR=" + filepath.Join(o.data, "stream"),
		"HOLDFAST_EXECUTOR_STATE_ADDRESS=" + stateAddress,
		"HOLDFAST_EXECUTOR_STREAM_ADDRESS=" + streamAddress,
		"HOLDFAST_GATEWAY_STATE_ADDRESS=" + stateAddress,
		"HOLDFAST_GATEWAY_STREAM_ADDRESS=" + streamAddress,
		"HOLDFAST_LOG_LEVEL=warn",
	}
	if keys, _ := lookup(environ)("HOLDFAST_GATEWAY_API_KEYS"); keys == "" {
		defaults = append(defaults, "HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true")
	}
	var c devConfig
	// An empty variable counts as unset and must not hide a default.
	set := slices.DeleteFunc(slices.Clone(environ), func(line string) bool {
		return strings.HasSuffix(line, "=") && strings.Count(line, "=") == 1
	})
	if err := config.Load(&c, append(defaults, set...)); err != nil {
		return devConfig{}, err
	}
	if o.expose && len(c.Gateway.Executors) == 0 {
		c.Gateway.Executors = []string{joinedAddress}
	}
	c.Gateway.Executors = append([]string{executorAddress}, c.Gateway.Executors...)
	if len(o.agents) > 0 {
		c.Agents.AgentsFiles = strings.Join(o.agents, ";")
	}
	c.Telemetry.ServiceName = "holdfast-dev"
	return c, nil
}

// welcome prints the addresses and an example request. The lines of runs follow it.
func welcome(w io.Writer, address string, o devOptions, agents *executor.Registry, joining exposed) error {
	_, err := fmt.Fprintf(w, `Holdfast is up.

  open    http://%[1]s  (a chat), http://%[1]s/console/  (everything inside)
  or      curl -N http://%[1]s/chat -d '{"id":"hello-1","messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"What is 6 * 7?"}]}]}'

  agents  %[2]v  (choose one with "agentType" in the body)
  data    %[3]s  (stop with Ctrl-C, start again: everything is there)
%[4]s
`, address, agents.Types(), o.data, joining.invitation())
	for _, p := range agents.Problems() {
		if err == nil {
			_, err = fmt.Fprintf(w, "  out of service: %s %q: %s\n", p.Kind, p.Name, cli.OneLine(p.Text))
		}
	}
	return err
}

// lockFolder creates the data folder and locks it against other processes.
func lockFolder(name string) (unlock func(), err error) {
	if err := os.MkdirAll(name, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(name, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data folder: %w", err)
	}
	if err := tryLock(lock); err != nil {
		_ = lock.Close()
		return nil, fault.New(fault.Conflict, "DATA_IN_USE", "another process uses %s: stop it, or choose another folder with --data", name)
	}
	return func() { _ = lock.Close() }, nil
}
