// Package registry holds the agents of an executor: those registered in Go, their
// factories, those declared in YAML files, and those that endpoints describe, with their models and MCP servers. It
// follows the files and the endpoints, and gives the worker the agent of each run.
package registry

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// For identifies the run for which a factory makes an agent.
type For = catalog.For

// Factory makes the agent of one run. It is called each time an executor claims the run, and
// may be called by many goroutines at once. Its error or panic fails the run.
type Factory func(ctx context.Context, f For) (agent.Agent, error)

// Registry holds the agents of an executor. They may change while it runs: a run uses
// the agent registered at its claim. Safe for concurrent use.
type Registry struct {
	loading sync.Mutex // held while files are read; before mu
	mu      sync.Mutex
	entries map[string]entry                // by agent type
	models  map[string]model.Model          // of the host, by provider
	limits  map[string]model.ProviderLimits // of the host, by provider
	changed chan struct{}                   // closed when the announced types change
	files   *files                          // of the latest Load; nil without one
	used    *Agents                         // the agents in YAML; nil for none
	servers *mcpServers                     // of files
	pools   map[*mcpServers]bool            // servers, and those of all used sets

	endpoints *endpoints // of files and of the configuration
	stored    *stored    // nil if stored agents are not served
	documents *documents // OpenAPI documents that files name by URL

	reported map[agents.Problem]bool // problems in the log
}

// entry is one agent type: an agent registered in Go, a factory, or an agent in YAML.
type entry struct {
	definition agent.Agent
	make       Factory       // nil for a definition
	yaml       *agents.Agent // nil unless it is in YAML
}

// New returns a registry without agents.
func New() *Registry {
	s := &mcpServers{}
	return &Registry{
		entries: map[string]entry{}, models: map[string]model.Model{}, limits: map[string]model.ProviderLimits{}, changed: make(chan struct{}),
		servers: s, pools: map[*mcpServers]bool{s: true}, endpoints: newEndpoints(), documents: newDocuments(),
	}
}

// Register adds an agent. Invalid (AGENT_INVALID): the detail has all mistakes. Conflict
// (AGENT_EXISTS): there is an agent of the name; Replace would replace it. TooLarge
// (TOO_MANY_AGENTS).
func (r *Registry) Register(a agent.Agent) error {
	if err := a.Check(); err != nil {
		return err
	}
	return r.add(a.Name, entry{definition: a})
}

// RegisterFactory adds an agent type whose agent is made for each run. Faults as of Register.
func (r *Registry) RegisterFactory(agentType, description string, f Factory) error {
	if f == nil {
		return fault.New(fault.Invalid, "AGENT_INVALID", "the factory of %q is nil", agentType)
	}
	if err := checkAnnounced(agentType, description); err != nil {
		return err
	}
	return r.add(agentType, entry{definition: agent.Agent{Name: agentType, Description: description}, make: f})
}

func (r *Registry) add(agentType string, e entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.entries[agentType]; ok {
		return fault.New(fault.Conflict, "AGENT_EXISTS", "there is an agent %q already; replace it, or choose another name", agentType)
	}
	if len(r.entries) >= maxAgents {
		return tooMany(len(r.entries) + 1)
	}
	r.change(func() { r.entries[agentType] = e })
	return nil
}

// maxAgents is the state service's limit for the agents of an executor.
const maxAgents = 1000

func tooMany(count int) error {
	return fault.New(fault.TooLarge, "TOO_MANY_AGENTS",
		"there are %d agents, and one executor serves at most %d; spread them over several executors", count, maxAgents)
}

// Replace adds an agent or replaces the one of its name, and reports whether there was one.
// Invalid (AGENT_INVALID); Conflict (AGENT_EXISTS): a factory or a YAML file has the name;
// TooLarge (TOO_MANY_AGENTS).
func (r *Registry) Replace(a agent.Agent) (replaced bool, err error) {
	if err := a.Check(); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	former, ok := r.entries[a.Name]
	if ok && (former.make != nil || former.yaml != nil) {
		return false, fault.New(fault.Conflict, "AGENT_EXISTS",
			"a factory or a YAML file has the name %q; unregister the factory or rename the agent", a.Name)
	}
	if !ok && len(r.entries) >= maxAgents {
		return false, tooMany(len(r.entries) + 1)
	}
	r.change(func() { r.entries[a.Name] = entry{definition: a} })
	return ok, nil
}

// Get returns the current agent of a type. It reports false if there is none or if a factory
// makes it.
func (r *Registry) Get(agentType string) (a agent.Agent, ok bool) {
	r.mu.Lock()
	e, err := r.find(agentType)
	r.mu.Unlock()
	if err != nil || e.make != nil {
		return agent.Agent{}, false
	}
	return e.current(), true
}

// Resolve returns the agent for a run. NotFound (AGENT_NOT_FOUND); Invalid
// (AGENT_INVALID): a factory has made an invalid agent. A panic of the factory reaches the caller.
func (r *Registry) Resolve(ctx context.Context, f For) (agent.Agent, error) {
	r.mu.Lock()
	e, err := r.find(f.AgentType)
	r.mu.Unlock()
	switch {
	case err != nil:
		return agent.Agent{}, err
	case e.make != nil:
		return callFactory(ctx, e.make, f)
	}
	return e.current(), nil
}

// find returns the entry of a type. The caller holds mu.
func (r *Registry) find(agentType string) (entry, error) {
	e, ok := r.entries[agentType]
	if !ok {
		known := slices.Sorted(maps.Keys(r.entries))
		return entry{}, fault.New(fault.NotFound, "AGENT_NOT_FOUND", "there is no agent %q here; known: %s", agentType, strings.Join(known, ", "))
	}
	return e, nil
}

// current is the agent of an entry without a factory.
func (e entry) current() agent.Agent {
	if e.yaml != nil {
		return e.yaml.WithCurrentTools()
	}
	return e.definition
}

// Unregister removes an agent or a factory registered in Go, and reports whether there
// was one. Queued runs go to other executors with the agent.
func (r *Registry) Unregister(agentType string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[agentType]
	if !ok || e.yaml != nil {
		return false
	}
	r.change(func() { delete(r.entries, agentType) })
	return true
}

// Clear removes all agents, also those in YAML.
func (r *Registry) Clear() {
	r.mu.Lock()
	former := r.used
	r.used = nil
	r.change(func() { clear(r.entries) })
	r.mu.Unlock()
	if former != nil {
		former.Close()
	}
}

// Close ends the MCP servers of the agents in YAML, and the idle connections to endpoints. The executor that serves the registry calls
// it when it is closed. It may be called many times.
func (r *Registry) Close() error {
	for _, pool := range r.connected() {
		pool.closeAll()
	}
	r.endpoints.close()
	return nil
}

// connected returns the MCP servers of all sets in use.
func (r *Registry) connected() []*mcpServers {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.pools, func(pool *mcpServers, _ bool) bool { return pool != r.servers && pool.empty() })
	return slices.Collect(maps.Keys(r.pools))
}

// Use serves a set of agents in YAML and closes the former set. Live runs keep the
// agents of the former set. Conflict (AGENT_EXISTS): an agent registered in Go has one of the names;
// the former set stays. TooLarge (TOO_MANY_AGENTS). Invalid (AGENTS_MISSING) for nil.
func (r *Registry) Use(set *Agents) error {
	if set == nil {
		return fault.New(fault.Invalid, "AGENTS_MISSING", "the set of agents is nil; ParseAgents returns no set together with an error")
	}
	former, err := r.swap(set)
	if err == nil && former != nil && former != set {
		former.Close()
	}
	return err
}

// swap serves a set and returns the former one.
func (r *Registry) swap(set *Agents) (former *Agents, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range set.list {
		if e, ok := r.entries[a.Name]; ok && e.yaml == nil {
			return nil, fault.New(fault.Conflict, "AGENT_EXISTS", "the agent %q is registered in Go and declared in YAML; rename one", a.Name)
		}
	}
	return r.replace(set)
}

// replace replaces the agents in YAML. TooLarge (TOO_MANY_AGENTS). The caller holds mu.
func (r *Registry) replace(set *Agents) (former *Agents, err error) {
	if count := r.countInGo() + len(set.list); count > maxAgents {
		return nil, tooMany(count)
	}
	r.change(func() {
		maps.DeleteFunc(r.entries, func(_ string, e entry) bool { return e.yaml != nil })
		for _, a := range set.list {
			r.entries[a.Name] = entry{definition: a.Agent, yaml: &a}
		}
	})
	former, r.used = r.used, set
	r.stored.renew()
	for _, l := range set.servers {
		r.pools[l.all] = true
	}
	return former, nil
}

// countInGo returns the number of agents registered in Go. The caller holds mu.
func (r *Registry) countInGo() (count int) {
	for _, e := range r.entries {
		if e.yaml == nil {
			count++
		}
	}
	return count
}

// Model registers the model of a provider. Agents name it as provider/name, and the model
// receives the name. It goes before a built-in provider of the same name. Invalid
// (MODEL_INVALID).
func (r *Registry) Model(provider string, m model.Model) error {
	if provider == "" || strings.Contains(provider, "/") || m == nil {
		return fault.New(fault.Invalid, "MODEL_INVALID", "a provider needs a model and a name without a slash, not %q", provider)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.models[provider] = m
	return nil
}

// Limit bounds the calls of a provider, over all executors: the limits are shared by the name of the
// provider. Limits in a YAML file go before them. Call it before the executor runs; zero limits remove
// former ones. Invalid (LIMITS_INVALID).
func (r *Registry) Limit(provider string, l model.ProviderLimits) error {
	if provider == "" || strings.Contains(provider, "/") || !model.CanBeLimited(provider, "") {
		return fault.New(fault.Invalid, "LIMITS_INVALID",
			"limits need the name of a provider, at most 255 bytes without slashes and control characters, not %.300q", provider)
	}
	for name := range l.Models {
		if name == "" || !model.CanBeLimited(provider, name) {
			return fault.New(fault.Invalid, "LIMITS_INVALID",
				"provider/name has at most 256 bytes without control characters, not %.300q", provider+"/"+name)
		}
	}
	for _, limits := range append(slices.Collect(maps.Values(l.Models)), l.Limits) {
		least := min(limits.RequestsPerMinute, limits.TokensPerMinute, limits.Concurrency)
		greatest := max(limits.RequestsPerMinute, limits.TokensPerMinute, limits.Concurrency)
		if least < 0 || greatest > model.MaxLimit {
			return fault.New(fault.Invalid, "LIMITS_INVALID", "the limits of the provider %q must be from 0 to %d", provider, model.MaxLimit)
		}
	}
	l.Models = maps.Clone(l.Models)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limits[provider] = l
	return nil
}

// Types returns the types of the servable agents, sorted.
func (r *Registry) Types() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, t := range r.types() {
		names = append(names, t.Name)
	}
	return names
}

// Has reports whether there is an agent of the type.
func (r *Registry) Has(agentType string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.entries[agentType]
	return ok
}

// checkAnnounced returns Invalid (AGENT_INVALID) for a name or description refused by the state
// service.
func checkAnnounced(agentType, description string) error {
	var lines []string
	for _, p := range (agent.Agent{Name: agentType, Description: description}).Problems() {
		if p.Field == "name" || p.Field == "description" {
			lines = append(lines, p.Field+": "+p.Text)
		}
	}
	if len(lines) > 0 {
		return fault.New(fault.Invalid, "AGENT_INVALID", "the factory of %.80q: %s", agentType, strings.Join(lines, "; "))
	}
	return nil
}

// change changes entries, and closes changed if that changes the announced types. The caller
// holds mu.
func (r *Registry) change(edit func()) {
	before := r.types()
	edit()
	if !slices.EqualFunc(before, r.types(), catalog.Type.Equal) {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// types returns the types to announce, by name. The caller holds mu.
func (r *Registry) types() []catalog.Type {
	types := make([]catalog.Type, 0, len(r.entries))
	for _, e := range r.entries {
		if e.yaml == nil || e.yaml.WaitsFor() == "" {
			types = append(types, catalog.TypeOf(e.definition))
		}
	}
	slices.SortFunc(types, func(a, b catalog.Type) int { return strings.Compare(a.Name, b.Name) })
	return types
}
