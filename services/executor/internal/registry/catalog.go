package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Catalog gives a worker the agents of a registry, with their models and the hooks of the host.
type Catalog struct {
	registry  *Registry
	hooks     agent.Hooks
	lookupEnv func(string) (string, bool)

	mu        sync.Mutex
	engines   map[string]model.Model // of built-in providers, opened on first use
	announced *announcement          // what was read last; nil before
}

// announcement is what an executor announces.
type announcement struct {
	types    []catalog.Type
	problems []catalog.Problem
}

var _ catalog.Catalog = (*Catalog)(nil)

// NewCatalog returns the catalog of a registry. The hooks are called after those of each agent.
// lookupEnv finds the API keys of providers for agents registered in Go.
//
// An agent whose model cannot be used is not announced, and is one of the Problems. Invalid (MODEL_INVALID) if there is no
// other agent: the detail has one line for each unusable model.
func NewCatalog(r *Registry, hooks agent.Hooks, lookupEnv func(string) (string, bool)) (*Catalog, error) {
	c := &Catalog{registry: r, hooks: hooks, lookupEnv: lookupEnv, engines: map[string]model.Model{}}
	return c, c.check()
}

// releaseInterval is how long a removed MCP server may outlive its last run.
const releaseInterval = time.Second

// Run follows the files of the registry, and releases the MCP servers of ended runs,
// until ctx ends. live returns the held runs.
func (c *Catalog) Run(ctx context.Context, live func() []string, log *slog.Logger) {
	for _, p := range c.unusable() {
		log.WarnContext(ctx, "a part of the agents is out of service", "kind", p.Kind, "name", p.Name, "agent", p.Agent, "error", p.Text)
	}
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { c.registry.follow(ctx, log) })
	following.Go(func() { c.registry.endpoints.run(ctx, log) })
	ticks := time.NewTicker(releaseInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			c.releaseEnded(live)
			c.refresh(ctx, log)
		}
	}
}

// refresh has the agents announced again if they can be served no longer, or again, or if their problems have changed.
// It notices what no call changes: an MCP server that comes back, or another list of its tools.
func (c *Catalog) refresh(ctx context.Context, log *slog.Logger) {
	c.registry.report(ctx, log)
	c.mu.Lock()
	announced := c.announced
	c.mu.Unlock()
	if announced == nil {
		return
	}
	now := c.current()
	if !slices.EqualFunc(now.types, announced.types, catalog.Type.Equal) || !slices.Equal(now.problems, announced.problems) {
		c.registry.mu.Lock()
		close(c.registry.changed)
		c.registry.changed = make(chan struct{})
		c.registry.mu.Unlock()
	}
}

// current returns what can be announced now.
func (c *Catalog) current() announcement {
	unusable := c.unusable()
	c.registry.mu.Lock()
	types := c.registry.types()
	c.registry.mu.Unlock()
	types = slices.DeleteFunc(types, func(t catalog.Type) bool {
		return slices.ContainsFunc(unusable, func(p Problem) bool { return p.Kind == agents.AgentPart && p.Name == t.Name })
	})
	return announcement{types, append(c.registry.Problems(), unusable...)}
}

// Problems returns what is out of service.
func (c *Catalog) Problems() []catalog.Problem {
	now := c.current()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.announced == nil {
		c.announced = &announcement{types: now.types}
	}
	c.announced.problems = now.problems
	return now.problems
}

// releaseEnded releases the MCP servers of ended runs.
func (c *Catalog) releaseEnded(live func() []string) {
	for _, pool := range c.registry.connected() {
		pool.releaseEnded(c, live)
	}
}

// Types returns the types to announce.
func (c *Catalog) Types() []catalog.Type {
	now := c.current()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.announced == nil {
		c.announced = &announcement{problems: now.problems}
	}
	c.announced.types = now.types
	return now.types
}

// Changed returns a channel. It is closed when Types or Problems change after the call.
func (c *Catalog) Changed() <-chan struct{} {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	return c.registry.changed
}

// Resolve returns the agent of a run. The MCP servers of the agent stay open until the executor
// no longer holds the run.
func (c *Catalog) Resolve(ctx context.Context, f catalog.For) (resolved catalog.Agent, err error) {
	e, err := c.registry.take(f.AgentType, user{catalog: c, runID: f.RunID})
	if err != nil {
		return catalog.Agent{}, err
	}
	switch {
	case e.make != nil:
		if resolved.Agent, err = callFactory(ctx, e.make, f); err != nil {
			return catalog.Agent{}, fmt.Errorf("the factory of the agent %q: %w", f.AgentType, err)
		}
	case e.yaml != nil:
		resolved.Agent, resolved.Models = e.current(), e.yaml.Models
	default:
		resolved.Agent = e.current()
	}
	if resolved.Models == nil {
		var broken map[string]error
		if resolved.Models, broken, err = c.models(resolved.Agent); err != nil {
			return catalog.Agent{}, err
		}
		resolved.Fallbacks = slices.DeleteFunc(slices.Clone(resolved.Fallbacks), func(full string) bool { return broken[full] != nil })
	}
	return c.equip(resolved, e), nil
}

// equip adds the governors of the models, and the hooks of the host.
func (c *Catalog) equip(resolved catalog.Agent, e entry) catalog.Agent {
	resolved.Governors = c.registry.governors(resolved.Models, e.yaml)
	if !reflect.ValueOf(c.hooks).IsZero() {
		resolved.Hooks = resolved.Hooks.Then(c.hooks)
	}
	return resolved
}

// ChildHooks implements catalog.Catalog.
func (c *Catalog) ChildHooks() map[string]agent.Hooks {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	given := map[string]agent.Hooks{}
	for name, e := range c.registry.entries {
		if e.yaml == nil && e.definition.Hooks.Children {
			given[name] = e.definition.Hooks
		}
	}
	return given
}

// governors returns the governors of the models with limits, from the agent's file or else from the host.
func (r *Registry) governors(models map[string]model.Model, file *agents.Agent) map[string][]model.Governor {
	r.mu.Lock()
	defer r.mu.Unlock()
	governors := map[string][]model.Governor{}
	for full := range models {
		if file != nil && file.Governors[full] != nil {
			governors[full] = file.Governors[full]
			continue
		}
		provider, name, _ := strings.Cut(full, "/")
		if of := r.limits[provider].Governors(provider, name); of != nil {
			governors[full] = of
		}
	}
	return governors
}

// take returns the entry of a type, and has the run hold the entry's MCP servers.
func (r *Registry) take(agentType string, run user) (entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.find(agentType)
	if err != nil || e.yaml == nil {
		return e, err
	}
	for _, s := range e.yaml.Servers() {
		if s, ok := s.(*lease); ok {
			s.hold(run)
		}
	}
	return e, nil
}

// callFactory makes the agent of a run. The worker handles panics and bounds the time.
func callFactory(ctx context.Context, factory Factory, f catalog.For) (agent.Agent, error) {
	a, err := factory(ctx, f)
	if err != nil {
		return a, err
	}
	if a.Name == "" {
		a.Name = f.AgentType
	}
	if a.Name != f.AgentType {
		return a, fmt.Errorf("it has made an agent with the name %q", a.Name)
	}
	return a, a.Check()
}

// models returns the models of an agent and its fallbacks, by provider/name, and what is wrong with its other fallbacks.
// Invalid (MODEL_INVALID): its model cannot be used.
func (c *Catalog) models(a agent.Agent) (models map[string]model.Model, broken map[string]error, err error) {
	models, broken = map[string]model.Model{}, map[string]error{}
	if a.Remote != nil {
		return models, broken, nil
	}
	if models[a.Model], err = c.model(a, a.Model); err != nil {
		return nil, nil, err
	}
	for _, full := range a.Fallbacks {
		m, err := c.model(a, full)
		if err != nil {
			broken[full] = err
			continue
		}
		models[full] = m
	}
	return models, broken, nil
}

// model returns a model of an agent. Invalid (MODEL_INVALID).
func (c *Catalog) model(a agent.Agent, full string) (model.Model, error) {
	provider, name, ok := strings.Cut(full, "/")
	if !ok || provider == "" || name == "" {
		return nil, fault.New(fault.Invalid, "MODEL_INVALID",
			"agent %q: the model is %q; it must be provider/name, for example openai/gpt-5", a.Name, full)
	}
	engine, err := c.engine(provider)
	if err != nil {
		return nil, fault.New(fault.Invalid, "MODEL_INVALID", "agent %q: the provider %q: %v", a.Name, provider, err)
	}
	return engine, nil
}

// engine returns the model of a provider. All agents share it.
func (c *Catalog) engine(provider string) (model.Model, error) {
	c.registry.mu.Lock()
	registered, ok := c.registry.models[provider]
	c.registry.mu.Unlock()
	if ok {
		return registered, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if engine, ok := c.engines[provider]; ok {
		return engine, nil
	}
	engine, err := openRemote(provider, c.lookupEnv)
	if err != nil {
		return nil, err
	}
	c.engines[provider] = engine
	return engine, nil
}

// unusable returns what is wrong with the models of agents registered in Go, by agent.
func (c *Catalog) unusable() []Problem {
	c.registry.mu.Lock()
	var definitions []agent.Agent
	for _, e := range c.registry.entries {
		if e.make == nil && e.yaml == nil {
			definitions = append(definitions, e.definition)
		}
	}
	c.registry.mu.Unlock()
	slices.SortFunc(definitions, func(a, b agent.Agent) int { return strings.Compare(a.Name, b.Name) })
	var problems []Problem
	for _, a := range definitions {
		_, broken, err := c.models(a)
		if err != nil {
			problems = append(problems, Problem{Kind: agents.AgentPart, Name: a.Name, Text: detail(err)})
		}
		for _, full := range slices.Sorted(maps.Keys(broken)) {
			provider, _, _ := strings.Cut(full, "/")
			problems = append(problems, Problem{Kind: agents.ProviderPart, Name: provider, Agent: a.Name, Text: detail(broken[full])})
		}
	}
	return problems
}

// check returns Invalid (MODEL_INVALID) if there are agents, and none has a model that can be used.
func (c *Catalog) check() error {
	var texts []string
	without := 0 // agents without a model
	for _, p := range c.unusable() {
		texts = append(texts, p.Text)
		if p.Kind == agents.AgentPart {
			without++
		}
	}
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	if without < len(c.registry.entries) || without == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "MODEL_INVALID", "%s", strings.Join(texts, "\n"))
}

// detail returns the detail of a fault, without kind and reason.
func detail(err error) string {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.Detail
	}
	return err.Error()
}
