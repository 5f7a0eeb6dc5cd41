package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

	mu      sync.Mutex
	engines map[string]model.Model // of built-in providers, opened on first use
}

var _ catalog.Catalog = (*Catalog)(nil)

// NewCatalog returns the catalog of a registry. The hooks are called after those of each agent.
// lookupEnv finds the API keys of providers for agents registered in Go.
//
// Invalid (MODEL_INVALID): the detail has one line for each unusable model.
func NewCatalog(r *Registry, hooks agent.Hooks, lookupEnv func(string) (string, bool)) (*Catalog, error) {
	c := &Catalog{registry: r, hooks: hooks, lookupEnv: lookupEnv, engines: map[string]model.Model{}}
	return c, c.check()
}

// releaseInterval is how long a removed MCP server may outlive its last run.
const releaseInterval = time.Second

// Run follows the files of the registry, and releases the MCP servers of ended runs,
// until ctx ends. live returns the held runs.
func (c *Catalog) Run(ctx context.Context, live func() []string, log *slog.Logger) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { c.registry.follow(ctx, log) })
	ticks := time.NewTicker(releaseInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			c.releaseEnded(live)
		}
	}
}

// releaseEnded releases the MCP servers of ended runs.
func (c *Catalog) releaseEnded(live func() []string) {
	for _, pool := range c.registry.connected() {
		pool.releaseEnded(c, live)
	}
}

// Types returns the types to announce.
func (c *Catalog) Types() []catalog.Type {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	return c.registry.types()
}

// Changed returns a channel. It is closed when Types changes after the call.
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
		if resolved.Models, err = c.models(resolved.Agent); err != nil {
			return catalog.Agent{}, err
		}
	}
	resolved.Governors = c.registry.governors(resolved.Models, e.yaml)
	if !reflect.ValueOf(c.hooks).IsZero() {
		resolved.Hooks = resolved.Hooks.Then(c.hooks)
	}
	return resolved, nil
}

// governors returns the governors of the models with limits: those of the agent's file, or else those
// of the host.
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

// models returns the models of an agent and its fallbacks, by provider/name. Invalid
// (MODEL_INVALID).
func (c *Catalog) models(a agent.Agent) (map[string]model.Model, error) {
	models := map[string]model.Model{}
	if a.Remote != nil {
		return models, nil
	}
	for _, full := range append([]string{a.Model}, a.Fallbacks...) {
		provider, name, ok := strings.Cut(full, "/")
		if !ok || provider == "" || name == "" {
			return nil, fault.New(fault.Invalid, "MODEL_INVALID", "agent %q: the model is %q, it must be provider/name, for example openai/gpt-5", a.Name, full)
		}
		engine, err := c.engine(provider)
		if err != nil {
			return nil, fault.New(fault.Invalid, "MODEL_INVALID", "agent %q: the provider %q: %v", a.Name, provider, err)
		}
		models[full] = engine
	}
	return models, nil
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

// check opens the models of all agents registered in Go: Invalid (MODEL_INVALID).
func (c *Catalog) check() error {
	c.registry.mu.Lock()
	var agents []agent.Agent
	for _, e := range c.registry.entries {
		if e.make == nil && e.yaml == nil {
			agents = append(agents, e.definition)
		}
	}
	c.registry.mu.Unlock()
	slices.SortFunc(agents, func(a, b agent.Agent) int { return strings.Compare(a.Name, b.Name) })
	var problems []string
	for _, a := range agents {
		if _, err := c.models(a); err != nil {
			problems = append(problems, detail(err))
		}
	}
	if len(problems) > 0 {
		return fault.New(fault.Invalid, "MODEL_INVALID", "%s", strings.Join(problems, "\n"))
	}
	return nil
}

// detail returns the detail of a fault, without kind and reason.
func detail(err error) string {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.Detail
	}
	return err.Error()
}

// Definitions returns the agents, by name. A factory is shown as an agent with its name and
// description.
func (c *Catalog) Definitions() []agent.Agent {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	var definitions []agent.Agent
	for _, t := range c.registry.types() {
		e := c.registry.entries[t.Name]
		if e.yaml != nil {
			e.definition = e.yaml.WithCurrentTools()
		}
		definitions = append(definitions, e.definition)
	}
	return definitions
}
