package registry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/builtin"
)

// stored makes the agents that tenants have stored, and keeps them by the hash of their definition. Equal definitions of two
// tenants are one agent: a definition has nothing of its tenant. Safe for concurrent use.
type stored struct {
	registry  *Registry
	config    AgentsConfig
	lookupEnv func(string) (string, bool)
	log       *slog.Logger

	mu      sync.Mutex
	kept    map[string]*keptAgent // by hash
	clock   uint64                // counts uses
	current int                   // counts changes of the files, whose providers the agents use
}

// keptAgent is an agent that is made or being made. The mu of stored guards it.
type keptAgent struct {
	ready chan struct{} // closed when it is made, or could not be
	set   *Agents       // nil until it is made
	used  uint64        // the clock at its last use
}

// ServeStored has executors with the registry serve agents that tenants have stored, if the configuration allows it. Call it
// before they run. Invalid (CONFIG_INVALID, HOSTS_INVALID).
func (r *Registry) ServeStored(c AgentsConfig, p Peers) error {
	if !c.StoredAgents {
		return nil
	}
	if c.StoredKept <= 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_STORED_KEPT must be above 0")
	}
	c.FileEnv = c.StoredEnv // what these agents may name is another list
	if err := c.check(); err != nil {
		return err
	}
	s := &stored{registry: r, config: c, lookupEnv: p.LookupEnv, log: cmp.Or(p.Log, slog.Default()), kept: map[string]*keptAgent{}}
	if s.lookupEnv == nil {
		s.lookupEnv = noVariables
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = s
	return nil
}

// ServesStored reports whether the registry serves stored agents.
func (r *Registry) ServesStored() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stored != nil
}

// parse makes the agent of a definition, in a set that the caller closes.
func (s *stored) parse(ctx context.Context, d agents.Definition) (set *Agents, definition []byte, err error) {
	s.registry.mu.Lock()
	models, pool := maps.Clone(s.registry.models), s.registry.servers
	var providers *agents.Set
	if s.registry.used != nil {
		providers = s.registry.used.read
	}
	s.registry.mu.Unlock()
	l := &loader{
		config: s.config, lookupEnv: s.lookupEnv, envVariable: "HOLDFAST_EXECUTOR_STORED_ENV", models: models, log: s.log, servers: pool,
	}
	set, err = l.load(func(known agents.Known) (*agents.Set, error) {
		known.Tools = builtin.Tools(builtin.Config{Now: time.Now}) // without a folder to write to
		known.Remote = l.openListedRemote
		a, text, err := agents.ParseStored(ctx, d, providers, known)
		if err != nil {
			return nil, err
		}
		definition = text
		return &agents.Set{Agents: []agents.Agent{a}}, nil
	})
	return set, definition, err
}

// check checks a definition, and returns it as data, with what is announced of its agent.
func (s *stored) check(ctx context.Context, d agents.Definition) ([]byte, catalog.Type, error) {
	set, definition, err := s.parse(ctx, d)
	if err != nil {
		return nil, catalog.Type{}, err
	}
	defer set.Close()
	return definition, catalog.TypeOf(set.list[0].Agent), nil
}

// take returns the entry of a definition, and has the run hold the entry's MCP servers. load returns the definition, and is
// called if it is not kept.
func (s *stored) take(ctx context.Context, name, hash string, load func(context.Context) ([]byte, error), run user) (entry, error) {
	for {
		s.mu.Lock()
		k, known := s.kept[hash]
		if !known {
			k = &keptAgent{ready: make(chan struct{})}
			s.kept[hash] = k
		}
		if k.set != nil {
			e := s.use(k, run)
			s.mu.Unlock()
			return e, nil
		}
		s.mu.Unlock()
		if !known {
			return s.make(ctx, k, name, hash, load, run)
		}
		select {
		case <-k.ready: // made, or to be tried again
		case <-ctx.Done():
			return entry{}, ctx.Err()
		}
	}
}

// make makes the agent of a new element of kept, and uses it.
func (s *stored) make(
	ctx context.Context, k *keptAgent, name, hash string, load func(context.Context) ([]byte, error), run user,
) (e entry, err error) {
	s.mu.Lock()
	began := s.current
	s.mu.Unlock()
	var set *Agents
	text, err := load(ctx)
	if err == nil {
		set, _, err = s.parse(ctx, agents.Definition{Agent: name, File: name, Text: text})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(k.ready)
	if err != nil {
		delete(s.kept, hash)
		return entry{}, err
	}
	k.set = set
	e = s.use(k, run)
	switch {
	case began != s.current: // the providers may have changed meanwhile
		delete(s.kept, hash)
		set.Close()
	case len(s.kept) > s.config.StoredKept:
		s.drop()
	}
	return e, nil
}

// use returns the entry of a made agent, and has the run hold its MCP servers. The caller holds mu.
func (s *stored) use(k *keptAgent, run user) entry {
	s.clock++
	k.used = s.clock
	a := &k.set.list[0]
	for _, server := range a.Servers() {
		if l, ok := server.(*lease); ok {
			l.hold(run)
		}
	}
	return entry{definition: a.Agent, yaml: a}
}

// drop forgets the agent that was not used for the longest time. Runs in progress keep it. The caller holds mu.
func (s *stored) drop() {
	oldest := ""
	for hash, k := range s.kept {
		if k.set != nil && (oldest == "" || k.used < s.kept[oldest].used) {
			oldest = hash
		}
	}
	if k := s.kept[oldest]; k != nil {
		delete(s.kept, oldest)
		k.set.Close()
	}
}

// renew forgets all agents, because the providers of the files have changed. It accepts nil.
func (s *stored) renew() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current++
	for hash, k := range s.kept {
		if k.set != nil {
			delete(s.kept, hash)
			k.set.Close()
		}
	}
}

// ServesStored reports whether stored agents are served.
func (c *Catalog) ServesStored() bool { return c.registry.ServesStored() }

// CheckStored checks the definition of a stored agent: see catalog.Catalog.
func (c *Catalog) CheckStored(ctx context.Context, name, file string, text []byte) ([]byte, catalog.Type, error) {
	s, err := c.registry.storedAgents()
	if err != nil {
		return nil, catalog.Type{}, err
	}
	return s.check(ctx, agents.Definition{Agent: name, File: cmp.Or(file, name), Text: text})
}

// ResolveStored returns the agent of a run by the hash of its definition: see catalog.Catalog.
func (c *Catalog) ResolveStored(
	ctx context.Context, f catalog.For, hash string, load func(context.Context) ([]byte, error),
) (catalog.Agent, error) {
	s, err := c.registry.storedAgents()
	if err != nil {
		return catalog.Agent{}, err
	}
	e, err := s.take(ctx, f.AgentType, hash, load, user{catalog: c, runID: f.RunID})
	if err != nil {
		return catalog.Agent{}, err
	}
	if missing := e.yaml.WaitsFor(); missing != "" {
		return catalog.Agent{}, fault.New(fault.NotFound, "AGENT_NOT_FOUND", "the stored agent %q waits: %s", f.AgentType, missing)
	}
	return c.equip(catalog.Agent{Agent: e.current(), Models: e.yaml.Models}, e), nil
}

// storedAgents gives Conflict (STORED_AGENTS_DISABLED) if the registry serves none.
func (r *Registry) storedAgents() (*stored, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stored == nil {
		return nil, fault.New(fault.Conflict, "STORED_AGENTS_DISABLED",
			"this executor does not serve stored agents; set HOLDFAST_EXECUTOR_STORED_AGENTS=true to allow them")
	}
	return r.stored, nil
}

// openListedRemote checks the address of another Holdfast in a stored agent, and returns its API key. Unlike a file, it may
// name only hosts of HOLDFAST_EXECUTOR_MODEL_HOSTS, and not this machine.
func (l *loader) openListedRemote(address, keyVariable string) (key string, err error) {
	if keyVariable != "" {
		if key, err = l.lookupNamed(keyVariable); err != nil {
			return "", fmt.Errorf("apiKeyEnv: the environment variable %s %w", keyVariable, err)
		}
	}
	return key, l.config.checkListed("url", address)
}
