package agents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// Known is what files may refer to and use.
type Known struct {
	// Tools are the built-in tools, by name.
	Tools map[string]agent.Tool
	// Providers are the kinds of model providers.
	Providers []string
	// Models need no declaration in a file. They are found by provider.
	Models map[string]model.Model
	// Open makes the model of a provider. Its errors are mistakes of the file.
	Open func(s Settings) (model.Model, error)
	// Remote checks the address of another Holdfast, and returns the API key of an environment variable.
	// Its errors are mistakes of the file. keyVariable may be empty.
	Remote func(address, keyVariable string) (key string, err error)
	// Describe returns the endpoint of a file with its description. It is called concurrently. An endpoint that cannot be
	// reached is none of its errors: the caller says so itself, and keeps asking.
	Describe func(ctx context.Context, e Endpoint) (Described, error)
	// HTTP restricts what HTTP tools may use.
	HTTP httptool.Peers
	// Fetch returns the OpenAPI document at a URL, at most limit bytes. It is called concurrently. Its errors are mistakes of
	// the file.
	Fetch func(ctx context.Context, url string, limit int) ([]byte, error)
	// MCP restricts what MCP servers may use.
	MCP mcptool.Allowed
	// Connect connects an allowed MCP server. It is called concurrently. A server that cannot be reached is none of
	// its errors: the server says so itself, and keeps trying.
	Connect func(ctx context.Context, c mcptool.Config) (Server, error)
}

// Agent is an agent with its models.
type Agent struct {
	agent.Agent
	// Models are the models of the agent and its fallbacks, by provider/name.
	Models map[string]model.Model
	// Governors has the governors of the models whose providers have limits in the files, by
	// provider/name.
	Governors map[string][]model.Governor

	// File is the file that declares the agent, or the endpoint that describes it.
	File string

	text    string       // of the declaration, as JSON
	own     []agent.Tool // without the tools of MCP servers
	without []string     // names of own tools with a mistake, which no MCP server replaces
	mounts  []*Mount
}

// Equals reports whether another declaration of the agent has the same text.
func (a Agent) Equals(other Agent) bool { return a.text == other.text }

// WaitsFor says which required MCP server or tool is not there yet; "" if the agent can be served.
func (a Agent) WaitsFor() string {
	for _, m := range a.mounts {
		if missing := m.missing(); m.required && missing != "" {
			return missing
		}
	}
	return ""
}

// Problems returns the missing parts of the agent: tools absent from its MCP servers.
func (a Agent) Problems() []Problem {
	var problems []Problem
	if missing := a.WaitsFor(); missing != "" {
		problems = append(problems, Problem{Part: Part{Kind: AgentPart, Name: a.Name}, Text: "it waits: " + missing})
	}
	for _, m := range a.mounts {
		for _, name := range m.absent() {
			part := Part{Kind: ToolPart, Name: name, Agent: a.Name}
			problems = append(problems, Problem{Part: part, Text: fmt.Sprintf("the MCP server %q has no such tool", m.name)})
		}
	}
	return problems
}

// UnusedOptions returns a text for each provider in ProviderOptions that no model of the agent has, sorted. The agent
// works without them.
func (a Agent) UnusedOptions() []string {
	used := map[string]bool{}
	for _, full := range append([]string{a.Model}, a.Fallbacks...) {
		provider, _, _ := strings.Cut(full, "/")
		used[provider] = true
	}
	var texts []string
	for _, provider := range slices.Sorted(maps.Keys(a.ProviderOptions)) {
		if !used[provider] {
			texts = append(texts, fmt.Sprintf("%s: agent %q: providerOptions.%s has no effect: the providers of its models are %s",
				a.File, a.Name, provider, strings.Join(slices.Sorted(maps.Keys(used)), ", ")))
		}
	}
	return texts
}

// WithCurrentTools returns the agent with the current tools of its MCP servers. If two tools have the same
// name, the first one counts; the agent's own tools come first.
func (a Agent) WithCurrentTools() agent.Agent {
	if len(a.mounts) == 0 {
		return a.Agent
	}
	now := a.Agent
	now.Tools = slices.Clone(a.own)
	for _, m := range a.mounts {
		for _, t := range m.tools() {
			taken := slices.ContainsFunc(now.Tools, func(other agent.Tool) bool { return other.Name == t.Name })
			if !taken && !slices.Contains(a.without, t.Name) {
				now.Tools = append(now.Tools, t)
			}
		}
	}
	return now
}

// Servers returns the MCP servers of the agent.
func (a Agent) Servers() []Server {
	var servers []Server
	for _, m := range a.mounts {
		if !slices.Contains(servers, m.Server) {
			servers = append(servers, m.Server)
		}
	}
	return servers
}

// Set is the agents of some files that can be served.
type Set struct {
	Agents   []Agent
	Versions *Versions
	// Problems are the parts with mistakes, and the parts depending on them.
	Problems []Problem
	// Incomplete has the names of agents with a mistake. Those among Agents lack tools or fallbacks.
	Incomplete map[string]bool
	// Operations are the tools of OpenAPI documents.
	Operations []Operation
	// Unread are the files with an agent that could not be read, and the endpoints whose description could not.
	Unread []string

	providers *providers // of the files, for ParseStored
}

// Load reads agents from files, and from the descriptions of endpoints that no file names. Each path is a file, a folder or
// a pattern. The versions are returned with every error too.
//
// Faults: NotFound (AGENTS_NOT_FOUND) if there is no file at all; Invalid (AGENTS_INVALID) with all mistakes of all
// files, one per line of the detail as file:line:column: text. With mistakes there is a set too: of everything that
// does not have them.
func Load(ctx context.Context, paths []string, described []Described, known Known) (*Set, *Versions, error) {
	r := newReader(known)
	if err := r.load(paths); err != nil {
		return nil, r.versions, err
	}
	r.awaits = len(described) > 0
	for _, d := range described {
		r.takeDescription(d)
	}
	set, err := r.set(ctx)
	return set, r.versions, err
}

// Parse is Load for one file in memory.
func Parse(ctx context.Context, s Source, known Known) (*Set, error) {
	r := newReader(known)
	r.take(s, "")
	return r.set(ctx)
}
