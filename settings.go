package holdfast

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

// The addresses of the services on the network within the process.
const (
	stateAddress    = "state"
	streamAddress   = "stream"
	executorAddress = "executor"
)

// joinedAddress is where an executor of another process serves the methods of its agents, unless
// HOLDFAST_EXECUTOR_LISTEN says otherwise there.
const joinedAddress = "127.0.0.1:7413"

// settings is the configuration of the four services in one process.
type settings struct {
	State     state.Config
	Stream    stream.Config
	Executor  executor.Config
	Agents    executor.AgentsConfig
	Gateway   gateway.Config
	Listen    string `env:"HOLDFAST_GATEWAY_LISTEN"`
	Expose    exposeConfig
	Telemetry telemetry.Config
	Grace     time.Duration `env:"HOLDFAST_SHUTDOWN_GRACE" envDefault:"10s" doc:"time for calls and steps to end at shutdown"`

	data string // the folder of Options.Data
}

// needsFolder reports whether the runtime stores something in the folder of Options.Data.
func (s settings) needsFolder() bool {
	return s.State.Store == "sqlite" || s.Stream.Bus == stream.BusEmbedded
}

// settings returns the configuration: the environment over the options. Invalid (OPTIONS_INVALID, CONFIG_INVALID).
func (o Options) settings() (settings, error) {
	if o.InMemory && (o.Data != "" || o.Postgres != "" || o.NATS != "") {
		return settings{}, fault.New(fault.Invalid, "OPTIONS_INVALID",
			"Options.InMemory stores nothing: leave out Data, Postgres and NATS, or InMemory")
	}
	// An empty variable counts as unset and must not hide an option.
	env := slices.DeleteFunc(slices.Clone(o.Env), func(line string) bool {
		return strings.HasSuffix(line, "=") && strings.Count(line, "=") == 1
	})
	data := cmp.Or(o.Data, DefaultData)
	defaults := []string{
		"HOLDFAST_STATE_STORE=sqlite",
		"HOLDFAST_STATE_SQLITE_PATH=" + filepath.Join(data, "state.db"),
		"HOLDFAST_STREAM_BUS=" + stream.BusEmbedded,
		"HOLDFAST_STREAM_DATA_DIR=" + filepath.Join(data, "stream"),
		"HOLDFAST_EXECUTOR_AGENTS=" + strings.Join(o.AgentFiles, ";"),
		"HOLDFAST_EXECUTOR_ENDPOINTS=" + strings.Join(o.Endpoints, ";"),
		"HOLDFAST_EXECUTOR_STATE_ADDRESS=" + stateAddress,
		"HOLDFAST_EXECUTOR_STREAM_ADDRESS=" + streamAddress,
		"HOLDFAST_GATEWAY_STATE_ADDRESS=" + stateAddress,
		"HOLDFAST_GATEWAY_STREAM_ADDRESS=" + streamAddress,
		"HOLDFAST_GATEWAY_LISTEN=" + cmp.Or(o.Listen, DefaultListen),
		"HOLDFAST_GATEWAY_API_KEYS=" + o.APIKeys,
		"HOLDFAST_GATEWAY_DEFAULT_AGENT=" + o.DefaultAgent,
		"HOLDFAST_LOG_LEVEL=warn",
	}
	if o.InMemory {
		defaults = append(defaults, "HOLDFAST_STATE_STORE=memory", "HOLDFAST_STREAM_BUS="+stream.BusMemory)
	}
	if o.Postgres != "" {
		defaults = append(defaults, "HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL="+o.Postgres)
	}
	if o.NATS != "" {
		defaults = append(defaults, "HOLDFAST_STREAM_BUS="+stream.BusNATS, "HOLDFAST_STREAM_NATS_URL="+o.NATS)
	}
	if !hasCredentials(o, config.Lookup(env)) {
		defaults = append(defaults, "HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true")
	}
	s := settings{data: data}
	if err := config.Load(&s, append(defaults, env...)); err != nil {
		return settings{}, err
	}
	if o.Expose && len(s.Gateway.Executors) == 0 {
		s.Gateway.Executors = []string{joinedAddress}
	}
	s.Gateway.Executors = append([]string{executorAddress}, s.Gateway.Executors...)
	s.Telemetry.ServiceName = cmp.Or(o.ServiceName, "holdfast")
	return s, nil
}

// hasCredentials reports whether callers of the gateway need a credential.
func hasCredentials(o Options, find func(string) (string, bool)) bool {
	keys, _ := find("HOLDFAST_GATEWAY_API_KEYS")
	issuer, _ := find("HOLDFAST_GATEWAY_JWT_ISSUER")
	return o.Authenticate != nil || o.APIKeys != "" || keys != "" || issuer != ""
}
