package executor

import (
	"github.com/holdfast-run/holdfast/services/executor/internal/registry"
)

type (
	// Registry holds the agents that an executor serves: Register, RegisterFactory, Load, Use and
	// Model add to it. It may change while the executor runs.
	Registry = registry.Registry
	// RegistryPeers is what Registry.Load works with.
	RegistryPeers = registry.Peers
	// Factory makes the agent of one run. It is called each time an executor claims the run, and
	// may be called by many goroutines at once. Its error or panic fails the run.
	Factory = registry.Factory
	// For identifies the run for which a factory makes an agent.
	For = registry.For
	// Agents is a set of agents in YAML.
	Agents = registry.Agents
	// AgentsConfig names the YAML files of agents, and limits what agents in YAML may use.
	AgentsConfig = registry.AgentsConfig
)

// NewRegistry returns a registry without agents.
func NewRegistry() *Registry { return registry.New() }

// ParseAgents reads agents in YAML (see package internal/agents for their form). Relative
// paths in the YAML are relative to dir. lookupEnv finds the environment variables of
// AgentsConfig, and those that the YAML names and may name; nil finds none. A registry or an
// executor that is given the set closes it.
//
// Invalid (AGENTS_INVALID): the detail has one line for each mistake, with the
// file's name, agents.yaml, and the line in it. Invalid (CONFIG_INVALID, HOSTS_INVALID).
func ParseAgents(data []byte, dir string, lookupEnv func(string) (string, bool)) (*Agents, error) {
	return registry.ParseAgents(data, dir, lookupEnv)
}
