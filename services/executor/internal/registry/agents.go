package registry

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/builtin"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// AgentsConfig names the YAML files of agents, and limits what agents in YAML may use. Files
// cannot raise these limits.
type AgentsConfig struct {
	AgentsFiles string        `env:"HOLDFAST_EXECUTOR_AGENTS" doc:"YAML files, folders and patterns of agents, separated by ;. Needed where no agent is registered in Go and no endpoint is named"`
	AgentsPoll  time.Duration `env:"HOLDFAST_EXECUTOR_AGENTS_POLL" envDefault:"2s" doc:"interval at which the files of agents are checked for changes; 0 never checks"`
	NotesDir    string        `env:"HOLDFAST_EXECUTOR_NOTES_DIR" doc:"folder where the tools note and note_once write; without it they do not exist"`

	Endpoints            string        `env:"HOLDFAST_EXECUTOR_ENDPOINTS" doc:"URLs of agent endpoints, separated by ;. See docs/endpoint.md"`
	EndpointSecrets      []string      `env:"HOLDFAST_EXECUTOR_ENDPOINT_SECRETS" secret:"true" doc:"secrets that sign the requests to these endpoints, separated by commas: whsec_ and base64. Only an endpoint on this machine needs none"`
	EndpointPoll         time.Duration `env:"HOLDFAST_EXECUTOR_ENDPOINT_POLL" envDefault:"30s" doc:"interval at which endpoints are asked whether their agents have changed"`
	EndpointCalls        int           `env:"HOLDFAST_EXECUTOR_ENDPOINT_CALLS" envDefault:"256" doc:"calls in progress at one endpoint; others wait"`
	EndpointHosts        []string      `env:"HOLDFAST_EXECUTOR_ENDPOINT_HOSTS" doc:"hosts that endpoints in YAML may be on, separated by commas: names, *.suffix or addresses, each with :port or for all ports; none when empty"`
	EndpointPrivateHosts []string      `env:"HOLDFAST_EXECUTOR_ENDPOINT_PRIVATE_HOSTS" doc:"hosts like those of HOLDFAST_EXECUTOR_ENDPOINT_HOSTS that may have private addresses"`

	StoredAgents bool     `env:"HOLDFAST_EXECUTOR_STORED_AGENTS" doc:"run agents that tenants have stored by API. See docs/agents-api.md"`
	StoredEnv    []string `env:"HOLDFAST_EXECUTOR_STORED_ENV" doc:"environment variables that stored agents may name, separated by commas: names, with * for any part; never those of Holdfast. None when empty"`
	StoredKept   int      `env:"HOLDFAST_EXECUTOR_STORED_KEPT" envDefault:"500" doc:"definitions of stored agents that are kept between runs, with the connections to their MCP servers"`

	FileEnv    []string `env:"HOLDFAST_EXECUTOR_FILE_ENV" envDefault:"*_KEY,*_TOKEN" doc:"environment variables that YAML may name, separated by commas: names, with * for any part; never those of Holdfast"`
	ModelHosts []string `env:"HOLDFAST_EXECUTOR_MODEL_HOSTS" doc:"hosts that a baseURL or the url of a remote agent in YAML may be on, separated by commas: names, *.suffix or addresses, each with :port or for all ports; when empty the provider's own and this machine"`

	MCPCommands      []string `env:"HOLDFAST_EXECUTOR_MCP_COMMANDS" doc:"programs that MCP servers in YAML may be, separated by commas: names that PATH leads to, as npx, and absolute paths; none when empty"`
	ToolHosts        []string `env:"HOLDFAST_EXECUTOR_TOOL_HOSTS" doc:"hosts that HTTP tools and MCP servers in YAML may be on, separated by commas: names, *.suffix or addresses, each with :port or for all ports; none when empty"`
	ToolPrivateHosts []string `env:"HOLDFAST_EXECUTOR_TOOL_PRIVATE_HOSTS" doc:"hosts like those of HOLDFAST_EXECUTOR_TOOL_HOSTS that may have private addresses"`
}

func (c AgentsConfig) toolHosts() outbound.Policy {
	return outbound.Policy{
		Hosts: c.ToolHosts, HostsVariable: "HOLDFAST_EXECUTOR_TOOL_HOSTS",
		Private: c.ToolPrivateHosts, PrivateVariable: "HOLDFAST_EXECUTOR_TOOL_PRIVATE_HOSTS",
	}
}

// separator separates the paths of AgentsConfig.AgentsFiles.
const separator = ";"

// Agents is a set of agents in YAML, with their open MCP servers.
type Agents struct {
	list      []agents.Agent // by name
	servers   []*lease
	endpoints []*followed
	read      *agents.Set // nil for a set that is none of files
	once      sync.Once

	operations []agents.Operation
	problems   []agents.Problem // in the files
	incomplete map[string]bool  // names of agents with a mistake
	unread     []string         // files and endpoints of which not all agents could be read
}

// ParseAgents reads agents in YAML (see docs/agents-yaml.md). Relative
// paths in the YAML are relative to dir. lookupEnv finds the environment variables of
// AgentsConfig, and those that the YAML names and may name; nil finds none. A registry or an
// executor that is given the set closes it.
//
// Invalid (AGENTS_INVALID): the detail has one line for each mistake, with the
// file's name, agents.yaml, and the line in it. Invalid (CONFIG_INVALID, HOSTS_INVALID).
func ParseAgents(data []byte, dir string, lookupEnv func(string) (string, bool)) (*Agents, error) {
	if lookupEnv == nil {
		lookupEnv = noVariables
	}
	var environ []string
	for _, v := range config.Variables(AgentsConfig{}) {
		if value, ok := lookupEnv(v.Name); ok {
			environ = append(environ, v.Name+"="+value)
		}
	}
	var c AgentsConfig
	if err := config.Load(&c, environ); err != nil {
		return nil, err
	}
	l := &loader{config: c, lookupEnv: lookupEnv, log: slog.Default(), servers: &mcpServers{}, documents: newDocuments()}
	set, err := l.load(func(known agents.Known) (*agents.Set, error) {
		return agents.Parse(context.Background(), agents.Source{Name: "agents.yaml", Dir: dir, Data: data}, known)
	})
	if err != nil {
		if set != nil {
			set.Close()
		}
		return nil, err
	}
	return set, nil
}

// With returns the agents of both sets. An agent of others replaces one of the same name. The
// new set takes over the MCP servers of both.
func (a *Agents) With(others *Agents) *Agents {
	list := slices.Clone(others.list)
	for _, own := range a.list {
		if !slices.ContainsFunc(others.list, func(o agents.Agent) bool { return o.Name == own.Name }) {
			list = append(list, own)
		}
	}
	sortByName(list)
	return &Agents{list: list, servers: slices.Concat(a.servers, others.servers), endpoints: slices.Concat(a.endpoints, others.endpoints)}
}

// Definitions returns the agents without their models, by name.
func (a *Agents) Definitions() []agent.Agent {
	definitions := make([]agent.Agent, len(a.list))
	for i, one := range a.list {
		definitions[i] = one.WithCurrentTools()
	}
	return definitions
}

// Close releases the MCP servers of the agents. A server ends after its last run.
func (a *Agents) Close() {
	a.once.Do(func() {
		for _, s := range a.servers {
			s.release()
		}
		for _, e := range a.endpoints {
			e.release()
		}
	})
}

// Discard closes an unused set, and waits for the end of its MCP servers.
func Discard(a *Agents) {
	a.Close()
	for _, s := range a.servers {
		s.all.closing.Wait()
	}
}

func sortByName(list []agents.Agent) {
	slices.SortFunc(list, func(a, b agents.Agent) int { return cmp.Compare(a.Name, b.Name) })
}

func splitPaths(paths string) []string {
	return slices.DeleteFunc(strings.Split(paths, separator), func(path string) bool { return path == "" })
}

func noVariables(string) (string, bool) { return "", false }

// loader makes one set of agents from YAML.
type loader struct {
	config    AgentsConfig
	lookupEnv func(string) (string, bool)
	// envVariable names the variable that lists what may be named; empty for HOLDFAST_EXECUTOR_FILE_ENV.
	envVariable string
	models      map[string]model.Model // the host's, by provider
	log         *slog.Logger
	servers     *mcpServers
	endpoints   *endpoints // nil if nobody follows them
	documents   *documents

	mu       sync.Mutex
	leases   []*lease    // of the new set
	followed []*followed // of the new set
}

// load makes a set of the agents from read. Beside AGENTS_INVALID there may be a set, of everything without a mistake;
// after any other failure nothing stays open.
func (l *loader) load(read func(agents.Known) (*agents.Set, error)) (*Agents, error) {
	if err := l.config.check(); err != nil {
		return nil, err
	}
	set, err := read(l.known())
	loaded := &Agents{servers: l.leases, endpoints: l.followed}
	if set == nil {
		loaded.Close()
		return nil, err
	}
	loaded.read = set
	loaded.list, loaded.problems = set.Agents, set.Problems
	loaded.operations = set.Operations
	loaded.incomplete, loaded.unread = set.Incomplete, set.Unread
	sortByName(loaded.list)
	return loaded, err
}

// known returns everything that files may refer to.
func (l *loader) known() agents.Known {
	allowed := mcptool.Allowed{Commands: l.config.MCPCommands, CommandsVariable: "HOLDFAST_EXECUTOR_MCP_COMMANDS", Hosts: l.config.toolHosts()}
	peers := mcptool.Peers{Allowed: allowed, Lookup: l.lookupNamed, Own: l.lookupEnv, Log: l.log, Now: time.Now}
	return agents.Known{
		Tools:     builtin.Tools(builtin.Config{Now: time.Now, NotesDir: l.config.NotesDir}),
		Providers: providers(),
		Models:    l.models,
		Open:      l.openModel,
		Remote:    l.openRemote,
		Describe:  l.describeNamed,
		HTTP:      httptool.Peers{Policy: l.config.toolHosts(), Lookup: l.lookupNamed},
		Fetch: func(ctx context.Context, url string, limit int) ([]byte, error) {
			return l.documents.fetch(ctx, l.config.toolHosts(), url, limit, l.log)
		},
		MCP: allowed,
		Connect: func(ctx context.Context, c mcptool.Config) (agents.Server, error) {
			s, err := l.servers.connect(ctx, c, peers)
			if err != nil {
				return nil, err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.leases = append(l.leases, s)
			return s, nil
		},
	}
}
