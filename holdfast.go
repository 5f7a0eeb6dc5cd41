// Package holdfast runs all of Holdfast in a Go program: agents, the database, the live log and the gateway.
//
//	err := holdfast.Run(ctx, holdfast.Options{
//		Agents: []agent.Agent{support},
//		Data:   "data",
//		Env:    os.Environ(), // for the keys of model providers
//	})
//
// The four services run in the caller's process and call each other directly, without ports between them. Sessions are in
// SQLite and the live log is in an embedded NATS JetStream, both below Options.Data, unless the options name servers. The
// zero Options serve demo agents, which need no API key, at 127.0.0.1:8080.
//
//	your program ── Start ──▶ Runtime ── Addr, Handler ──▶ browsers
//	                             │
//	                             └── state ◀── executor (your agents) ──▶ stream
//
// # Configuration
//
// The fields of Options are for what a program decides. Everything else has an environment variable, listed in
// docs/configuration.md. The package does not read the environment of the process: Options.Env has the variables. A
// variable wins over the field with the same meaning, so an operator can change what a program was built with.
//
// # Scaling out
//
// The same agents run in processes of their own, beside the stock services: executor.Main serves a registry as Options.Registry
// does. See docs/embedded.md.
//
// # Telemetry
//
// Spans and measurements go to the global providers of OpenTelemetry, which belong to the program. If Options.Env has
// OTEL_EXPORTER_OTLP_ENDPOINT or HOLDFAST_METRICS_LISTEN, Start replaces them by providers that export accordingly.
package holdfast

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/internal/demo"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
)

// The defaults of Options.
const (
	DefaultData   = ".holdfast"
	DefaultListen = "127.0.0.1:8080"
)

// NoListen as Options.Listen opens no port.
const NoListen = "none"

// Options configure a Runtime. The zero Options are valid.
type Options struct {
	// Agents are the agents in Go. Without any agent here, in Registry, in AgentFiles, at Endpoints and in Env, the runtime
	// serves the demo agents.
	Agents []agent.Agent
	// AgentFiles are agents in YAML: files, folders and patterns. Changes of the files apply to new runs.
	// Variable: HOLDFAST_EXECUTOR_AGENTS.
	AgentFiles []string
	// Endpoints are URLs of applications with agents of their own (docs/endpoint.md). Their secrets are in
	// HOLDFAST_EXECUTOR_ENDPOINT_SECRETS. Variable: HOLDFAST_EXECUTOR_ENDPOINTS.
	Endpoints []string
	// AgentsChanged is called after each change of the agents in files and at endpoints, one call at a time, for people who
	// watch. Nil is called for none.
	AgentsChanged func(executor.RegistryChange)
	// Models are models of the program, by provider: agents name them as provider/name.
	Models map[string]executor.Model
	// Registry has further agents, models and limits, and may change while the runtime runs. Start adds Agents, AgentFiles
	// and Models to it, and the end of the runtime closes it. Nil is an empty registry.
	Registry *executor.Registry
	// Hooks are called after those of each agent.
	Hooks agent.Hooks

	// Data is the folder for the database and the live log. One runtime at a time may use it. It is made if it is missing.
	// Empty is DefaultData.
	Data string
	// InMemory keeps everything in memory instead, for tests.
	InMemory bool
	// Postgres is the URL of a Postgres database, in place of SQLite. Variables: HOLDFAST_STATE_STORE,
	// HOLDFAST_STATE_POSTGRES_URL.
	Postgres string
	// NATS has the URLs of NATS servers with JetStream, with commas between them, in place of the embedded one. Variables:
	// HOLDFAST_STREAM_BUS, HOLDFAST_STREAM_NATS_URL. Runtimes that share a database must share the NATS servers.
	NATS string

	// Listen is the address of the gateway: host:port, or NoListen if the program serves Runtime.Handler itself. Port 0 is
	// any free port. Empty is DefaultListen. Variable: HOLDFAST_GATEWAY_LISTEN.
	Listen string
	// APIKeys is the file of the API keys, as `holdfast keys` writes it. Without keys and other credentials, the gateway
	// serves only this machine. Variable: HOLDFAST_GATEWAY_API_KEYS.
	APIKeys string
	// Authenticate names the caller of a request to the gateway, for a program with users of its own: by its cookie, for
	// example. A nil caller leaves the answer to the API keys and other credentials. An error refuses the request; a fault
	// keeps its kind, and any other error is INTERNAL. Requests that change something must then come from pages of the same
	// origin, or of HOLDFAST_GATEWAY_CORS_ORIGINS.
	Authenticate func(*http.Request) (*Caller, error)
	// BeforeEntry is asked about each request that starts, continues, answers, stops or rewinds a run, over any transport, after
	// the rights of its caller were checked and before anything of it is done. It may change the entry, or return a *Refusal. An
	// error of another type, a panic, and a return after HOLDFAST_GATEWAY_HOOK_TIMEOUT (10 s) fail the request: INTERNAL, and
	// nothing is started. A client that repeats a request asks again. Nil asks nobody.
	BeforeEntry func(context.Context, *Entry) error
	// AfterEntry is called when such a request was done. The answer to the client waits for it, at most
	// HOLDFAST_GATEWAY_HOOK_TIMEOUT. It is not called again after a crash. Nil is called for none.
	AfterEntry func(context.Context, Entered)
	// Routes are routes of the program on the port of the gateway, behind its authentication, by method and path: "GET
	// /tenants/{id}/report", with the wildcards of http.ServeMux.
	Routes map[string]Route
	// DefaultAgent is the agent of new sessions that name none. Empty is the demo agent or the first one by name. Variable:
	// HOLDFAST_GATEWAY_DEFAULT_AGENT.
	DefaultAgent string
	// Expose lets executors of other processes join, at HOLDFAST_STATE_LISTEN and HOLDFAST_STREAM_LISTEN.
	Expose bool

	// Env has environment variables as "NAME=value", usually os.Environ(): those of docs/configuration.md, and those that
	// agents name, such as ANTHROPIC_API_KEY. Nil has none.
	Env []string
	// Log gets what happens. Nil writes lines to LogOutput, from the level warn, or as HOLDFAST_LOG_LEVEL and
	// HOLDFAST_LOG_FORMAT say.
	Log *slog.Logger
	// LogOutput gets the lines of the log if Log is nil. Nil is standard error.
	LogOutput io.Writer
	// ServiceName names the process in exported spans and measurements. Empty is "holdfast".
	ServiceName string
	// Ready is called once, when the runtime serves all its agents. Its error ends the runtime. Start returns after it. It
	// must not call Wait or Close.
	Ready func(*Runtime) error
}

// Caller is a user of a tenant, or a program: see Options.Authenticate and Runtime.Client.
type Caller = gateway.Caller

// The types of Options.BeforeEntry, Options.AfterEntry and Options.Routes.
type (
	// Entry is a request that is about to be done.
	Entry = gateway.Entry
	// Entered is a request that was done.
	Entered = gateway.Entered
	// Refusal is the error with which a program refuses a request.
	Refusal = gateway.Refusal
	// Route is a route of the program.
	Route = gateway.Route
	// RouteCaller is who calls a Route.
	RouteCaller = gateway.RouteCaller
)

// Run is Start and Wait: it runs the services until ctx ends or one fails.
func Run(ctx context.Context, o Options) error {
	r, err := Start(ctx, o)
	if err != nil {
		return err
	}
	return r.Wait()
}

// Start starts the services. It returns when the gateway accepts requests and the executor serves all agents. The runtime
// ends when ctx ends, with Close, or when a service fails.
//
// Invalid (OPTIONS_INVALID, CONFIG_INVALID, AGENT_INVALID, AGENTS_INVALID, MODEL_INVALID, API_KEYS_INVALID,
// INSECURE_LISTEN, HOOKS_INVALID, ROUTE_INVALID), Conflict (DATA_IN_USE, AGENT_EXISTS), NotFound (AGENTS_NOT_FOUND),
// Unavailable (LISTEN_FAILED, STORE_UNAVAILABLE, LOG_UNAVAILABLE). If it fails, nothing of it runs or stays open.
func Start(ctx context.Context, o Options) (_ *Runtime, err error) {
	c, err := o.settings()
	if err != nil {
		return nil, err
	}
	r := &Runtime{options: o, settings: c, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.release())
		}
	}()
	if c.needsFolder() {
		unlock, err := lockFolder(c.data)
		if err != nil {
			return nil, err
		}
		r.onRelease(unlock)
	}
	if r.log, err = r.observe(ctx); err != nil {
		return nil, err
	}
	if err := r.loadAgents(ctx); err != nil {
		return nil, err
	}
	if err := r.listen(ctx); err != nil {
		return nil, err
	}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	r.stop = stop
	ready := make(chan struct{})
	go func() {
		defer close(r.ended)
		err := r.run(running, func() error {
			if o.Ready != nil {
				if err := o.Ready(r); err != nil {
					return err
				}
			}
			close(ready)
			return nil
		})
		stop()
		r.err = errors.Join(err, r.release())
	}()
	select {
	case <-ready:
		return r, nil
	case <-r.ended:
		if r.err == nil { // ctx has ended
			return nil, context.Cause(running)
		}
		return nil, r.err
	}
}

// Runtime is a running Holdfast. Its methods may be called at once by many goroutines.
type Runtime struct {
	options  Options
	settings settings
	log      *slog.Logger
	agents   *executor.Registry
	listener net.Listener // nil with NoListen
	exposed  exposed
	services

	stop  context.CancelFunc
	ended chan struct{} // closed after the end of everything
	err   error         // set before ended is closed

	releases []func() error
	released sync.Once
}

// onRelease adds a function that release calls.
func (r *Runtime) onRelease(f func() error) { r.releases = append(r.releases, f) }

// release gives up what the runtime holds, the latest first. It may be called again.
func (r *Runtime) release() (err error) {
	r.released.Do(func() {
		for _, f := range slices.Backward(r.releases) {
			err = errors.Join(err, f())
		}
	})
	return err
}

// Wait waits for the end of the runtime. It returns nil after the end of the context of Start and after Close, and
// otherwise the reason of the end.
func (r *Runtime) Wait() error {
	<-r.ended
	return r.err
}

// Close ends the runtime and waits for its end, as Wait does. Calls and steps in progress have HOLDFAST_SHUTDOWN_GRACE to
// end. A run that is cut off continues at the next start.
func (r *Runtime) Close() error {
	r.stop()
	return r.Wait()
}

// Addr returns the address of the gateway; nil with NoListen.
func (r *Runtime) Addr() net.Addr {
	if r.listener == nil {
		return nil
	}
	return r.listener.Addr()
}

// URL returns the URL of the gateway, such as http://127.0.0.1:8080; empty with NoListen.
func (r *Runtime) URL() string {
	if r.listener == nil {
		return ""
	}
	return "http://" + r.listener.Addr().String()
}

// Handler returns the handler of the gateway, for a server of the program. To serve it below a path, use http.StripPrefix.
// Without API keys, other credentials and Options.Authenticate it answers only requests of this machine.
func (r *Runtime) Handler() http.Handler { return r.gateway.Handler() }

// Client returns a client whose calls reach the gateway within the process, without a network and a credential, on behalf of
// the caller. It fails after the end of the runtime. Invalid (TENANT_INVALID, USER_INVALID, SCOPE_UNKNOWN).
func (r *Runtime) Client(c Caller) (*client.Client, error) {
	transport, err := r.gateway.Transport(c)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: "http://127.0.0.1", HTTP: &http.Client{Transport: transport}}), nil
}

// Agents returns the agents of the runtime. They may change while it runs.
func (r *Runtime) Agents() *executor.Registry { return r.agents }

// StateAddr and StreamAddr return where executors of other processes reach the state and the stream service; nil without
// Options.Expose.
func (r *Runtime) StateAddr() net.Addr { return addressOf(r.exposed.state) }

// StreamAddr is described at StateAddr.
func (r *Runtime) StreamAddr() net.Addr { return addressOf(r.exposed.stream) }

func addressOf(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// observe returns the log. It sets up telemetry if the environment asks for it.
func (r *Runtime) observe(ctx context.Context) (*slog.Logger, error) {
	c, log, output := r.settings.Telemetry, r.options.Log, r.options.LogOutput
	if output == nil {
		output = os.Stderr
	}
	if c.Endpoint == "" && c.Listen == "" {
		if log != nil {
			return log, nil
		}
		return telemetry.NewLogger(output, c.LogLevel, c.LogFormat)
	}
	t, err := telemetry.Setup(ctx, c, output)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = t.Log
	}
	r.onRelease(func() error {
		if err := t.Shutdown(ctx); err != nil {
			log.WarnContext(ctx, "spans were lost at shutdown", "error", err)
		}
		return nil
	})
	return log, nil
}

// loadAgents adds the agents of the options to the registry.
func (r *Runtime) loadAgents(ctx context.Context) error {
	r.agents = r.options.Registry
	if r.agents == nil {
		r.agents = executor.NewRegistry()
	}
	r.onRelease(r.agents.Close)
	for provider, model := range r.options.Models {
		if err := r.agents.Model(provider, model); err != nil {
			return err
		}
	}
	for _, a := range r.options.Agents {
		if err := r.agents.Register(a); err != nil {
			return err
		}
	}
	find := config.Lookup(r.options.Env)
	if err := r.agents.ServeStored(r.settings.Agents, executor.RegistryPeers{LookupEnv: find, Log: r.log}); err != nil {
		return err
	}
	if r.settings.Agents.AgentsFiles != "" || r.settings.Agents.Endpoints != "" {
		peers := executor.RegistryPeers{LookupEnv: find, Log: r.log, Changed: r.options.AgentsChanged}
		if err := r.agents.Load(ctx, r.settings.Agents, peers); err != nil {
			return err
		}
	} else if len(r.agents.Types()) == 0 {
		if err := demo.Register(r.agents, find); err != nil { //nolint:contextcheck // the demo agents connect to nothing
			return err
		}
	}
	if names := r.agents.Types(); r.settings.Gateway.DefaultAgent == "" && len(names) > 0 { // none if all wait for something
		r.settings.Gateway.DefaultAgent = names[0]
		if slices.Contains(names, "demo") {
			r.settings.Gateway.DefaultAgent = "demo"
		}
	}
	return nil
}

// listen opens the listeners of the runtime.
func (r *Runtime) listen(ctx context.Context) error {
	address := r.settings.Listen
	if address != NoListen {
		if r.options.Authenticate == nil {
			if err := gateway.CheckListen("Options.Listen", address, r.settings.Gateway); err != nil {
				return err
			}
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return fault.New(fault.Unavailable, "LISTEN_FAILED", "%v; choose another address with Options.Listen", err)
		}
		r.listener = listener
		r.closeAtRelease(listener)
	}
	if r.options.Expose {
		return r.expose(ctx)
	}
	return nil
}
