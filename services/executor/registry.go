package executor

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// For is the run that a factory makes an agent for.
type For = worker.For

// Factory makes the agent of one run. It is called each time that an executor takes
// the run up, and may be called from many goroutines at once. Its error or panic fails
// the run.
type Factory func(ctx context.Context, f For) (agent.Agent, error)

// Registry is the agents that an executor serves. They may change while it runs: runs
// that begin afterwards take the new ones, and those that are live keep what they have.
// Safe for concurrent use.
type Registry struct {
	loading sync.Mutex // held while files are read; before mu
	mu      sync.Mutex
	entries map[string]entry       // by agent type
	models  map[string]model.Model // of one's own, by provider
	changed chan struct{}          // closed when what types gives changes
	files   *files                 // where the agents in YAML come from; nil for nowhere
	used    *Agents                // the agents in YAML; nil for none
	servers *servers               // the MCP servers of files
	pools   map[*servers]bool      // those of files and of all sets that were used
}

// entry is one agent type: an agent of Go, the factory of one, or one of YAML.
type entry struct {
	definition agent.Agent
	make       Factory       // nil for a definition
	yaml       *agents.Agent // nil for one of Go
}

// NewRegistry gives a registry without agents.
func NewRegistry() *Registry {
	s := &servers{}
	return &Registry{
		entries: map[string]entry{}, models: map[string]model.Model{}, changed: make(chan struct{}),
		servers: s, pools: map[*servers]bool{s: true},
	}
}

// Register adds an agent. Invalid (AGENT_INVALID) with all that is wrong with it;
// Conflict (AGENT_EXISTS) when there is one of its name, which Replace would replace.
func (r *Registry) Register(a agent.Agent) error {
	if err := a.Check(); err != nil {
		return err
	}
	return r.add(a.Name, entry{definition: a})
}

// RegisterFactory adds an agent type whose agents are made run by run. Faults as of
// Register.
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

// maxAgents is how many agents an executor may announce to the state service.
const maxAgents = 1000

func tooMany(count int) error {
	return fault.New(fault.TooLarge, "TOO_MANY_AGENTS",
		"%d agents, and one executor serves %d at most; spread them over several executors", count, maxAgents)
}

// Replace puts an agent in the place of the one of its name, and reports whether there
// was one. Invalid (AGENT_INVALID); Conflict (AGENT_EXISTS) when a factory or a YAML file
// holds the name.
func (r *Registry) Replace(a agent.Agent) (replaced bool, err error) {
	if err := a.Check(); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	former, ok := r.entries[a.Name]
	if ok && (former.make != nil || former.yaml != nil) {
		return false, fault.New(fault.Conflict, "AGENT_EXISTS", "%q is held by a factory or a YAML file; unregister it first", a.Name)
	}
	if !ok && len(r.entries) >= maxAgents {
		return false, tooMany(len(r.entries) + 1)
	}
	r.change(func() { r.entries[a.Name] = entry{definition: a} })
	return ok, nil
}

// Get gives the agent of a type, as it is now. It reports false where there is none, and
// where a factory makes one for each run.
func (r *Registry) Get(agentType string) (a agent.Agent, ok bool) {
	r.mu.Lock()
	e, err := r.find(agentType)
	r.mu.Unlock()
	if err != nil || e.make != nil {
		return agent.Agent{}, false
	}
	return e.now(), true
}

// Resolve gives the agent that a run would have, which a factory may make. NotFound
// (AGENT_NOT_FOUND); Invalid (AGENT_INVALID) for one that was made and cannot be used. A
// factory is called as it is: its panic is the caller's.
func (r *Registry) Resolve(ctx context.Context, f For) (agent.Agent, error) {
	r.mu.Lock()
	e, err := r.find(f.AgentType)
	r.mu.Unlock()
	switch {
	case err != nil:
		return agent.Agent{}, err
	case e.make != nil:
		return made(ctx, e.make, f)
	}
	return e.now(), nil
}

// find gives what is registered under a type. The caller holds mu.
func (r *Registry) find(agentType string) (entry, error) {
	e, ok := r.entries[agentType]
	if !ok {
		known := slices.Sorted(maps.Keys(r.entries))
		return entry{}, fault.New(fault.NotFound, "AGENT_NOT_FOUND", "there is no agent %q here; known: %s", agentType, strings.Join(known, ", "))
	}
	return e, nil
}

// now is the agent of an entry that has no factory.
func (e entry) now() agent.Agent {
	if e.yaml != nil {
		return e.yaml.Now()
	}
	return e.definition
}

// Unregister takes an agent or factory of Go away and reports whether there was one.
// Runs that wait for it go to other executors that have it.
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

// Clear takes all agents away, those of YAML too.
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

// Close gives up the agents in YAML and ends their MCP servers. The executor that serves
// the registry does it when it is closed. It may be called many times.
func (r *Registry) Close() error {
	for _, pool := range r.connected() {
		pool.closeAll()
	}
	return nil
}

// sweep notes which runs of an executor have ended.
func (r *Registry) sweep(by *catalog, live func() []string) {
	for _, pool := range r.connected() {
		pool.sweep(by, live)
	}
}

// connected gives the MCP servers of all sets that are used, or that runs have.
func (r *Registry) connected() []*servers {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.pools, func(pool *servers, _ bool) bool { return pool != r.servers && pool.empty() })
	return slices.Collect(maps.Keys(r.pools))
}

// Use serves a set of agents in YAML in place of the former set, which it closes: runs that
// are live keep what they have of it. Conflict (AGENT_EXISTS): Go holds one of the names,
// and the former set stays. Invalid (AGENTS_MISSING) for nil.
func (r *Registry) Use(set *Agents) error {
	if set == nil {
		return fault.New(fault.Invalid, "AGENTS_MISSING", "the set of agents is nil; ParseAgents gives one, and no set together with its error")
	}
	former, err := r.swap(set)
	if err == nil && former != nil && former != set {
		former.Close()
	}
	return err
}

// swap serves a set and gives the former one.
func (r *Registry) swap(set *Agents) (former *Agents, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range set.list {
		if e, ok := r.entries[a.Name]; ok && e.yaml == nil {
			return nil, fault.New(fault.Conflict, "AGENT_EXISTS", "the agent %q is registered in Go and declared in YAML; rename one", a.Name)
		}
	}
	own := 0
	for _, e := range r.entries {
		if e.yaml == nil {
			own++
		}
	}
	if count := own + len(set.list); count > maxAgents {
		return nil, tooMany(count)
	}
	r.change(func() {
		maps.DeleteFunc(r.entries, func(_ string, e entry) bool { return e.yaml != nil })
		for _, a := range set.list {
			r.entries[a.Name] = entry{definition: a.Agent, yaml: &a}
		}
	})
	former, r.used = r.used, set
	for _, l := range set.used {
		r.pools[l.all] = true
	}
	return former, nil
}

// Model serves a provider by a model of one's own: agents name it as provider/name, and
// the model is asked for that name. It goes before the provider that Holdfast has of
// that name. Invalid (MODEL_INVALID).
func (r *Registry) Model(provider string, m Model) error {
	if provider == "" || strings.Contains(provider, "/") || m == nil {
		return fault.New(fault.Invalid, "MODEL_INVALID", "a provider has a name without a slash, and a model: %q does not", provider)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.models[provider] = m
	return nil
}

// Types gives the agent types, sorted.
func (r *Registry) Types() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.entries))
}

// Has reports whether there is an agent of the type.
func (r *Registry) Has(agentType string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.entries[agentType]
	return ok
}

// checkAnnounced gives Invalid (AGENT_INVALID) for a name or description that cannot be
// announced.
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

// change changes entries, and tells who waits when that changes what is announced. The
// caller holds mu.
func (r *Registry) change(do func()) {
	before := r.types()
	do()
	if !slices.Equal(before, r.types()) {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// types is what is announced, by name. The caller holds mu.
func (r *Registry) types() []worker.Type {
	types := make([]worker.Type, 0, len(r.entries))
	for name, e := range r.entries {
		types = append(types, worker.Type{Name: name, Description: e.definition.Description, OnBusy: e.definition.OnBusy})
	}
	slices.SortFunc(types, func(a, b worker.Type) int { return strings.Compare(a.Name, b.Name) })
	return types
}
