package executor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// catalog is a registry as the worker needs it: agents with their models and with the
// hooks of the host.
type catalog struct {
	registry  *Registry
	hooks     agent.Hooks
	lookupEnv func(string) (string, bool)

	mu      sync.Mutex
	engines map[string]model.Model // of the providers that Holdfast has, made when an agent names them
}

var _ worker.Catalog = (*catalog)(nil)

// Types gives what is announced.
func (c *catalog) Types() []worker.Type {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	return c.registry.types()
}

// Changed is closed when Types give something else than before the call.
func (c *catalog) Changed() <-chan struct{} {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	return c.registry.changed
}

// Resolve gives the agent for a run. What the agent has open stays open until the run is
// not among those that the executor holds.
func (c *catalog) Resolve(ctx context.Context, f worker.For) (resolved worker.Agent, err error) {
	e, err := c.registry.take(f.AgentType, user{by: c, runID: f.RunID})
	if err != nil {
		return worker.Agent{}, err
	}
	switch {
	case e.make != nil:
		if resolved.Agent, err = made(ctx, e.make, f); err != nil {
			return worker.Agent{}, fmt.Errorf("the factory of the agent %q: %w", f.AgentType, err)
		}
	case e.yaml != nil:
		resolved.Agent, resolved.Models = e.now(), e.yaml.Models
	default:
		resolved.Agent = e.now()
	}
	if resolved.Models == nil {
		if resolved.Models, err = c.models(resolved.Agent); err != nil {
			return worker.Agent{}, err
		}
	}
	if !reflect.ValueOf(c.hooks).IsZero() {
		resolved.Hooks = resolved.Hooks.Then(c.hooks)
	}
	return resolved, nil
}

// take gives what is registered under a type, and lets the run hold what it has open.
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

// made calls a factory, whose panics and time are the worker's matter.
func made(ctx context.Context, factory Factory, f worker.For) (agent.Agent, error) {
	a, err := factory(ctx, f)
	if err != nil {
		return a, err
	}
	if a.Name == "" {
		a.Name = f.AgentType
	}
	if a.Name != f.AgentType {
		return a, fmt.Errorf("it made an agent with the name %q", a.Name)
	}
	return a, a.Check()
}

// models gives the models of an agent and its fallbacks, by provider/name. Invalid
// (MODEL_INVALID).
func (c *catalog) models(a agent.Agent) (map[string]model.Model, error) {
	models := map[string]model.Model{}
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

// engine gives the model of a provider, which all agents share.
func (c *catalog) engine(provider string) (model.Model, error) {
	c.registry.mu.Lock()
	own, ok := c.registry.models[provider]
	c.registry.mu.Unlock()
	if ok {
		return own, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if engine, ok := c.engines[provider]; ok {
		return engine, nil
	}
	engine, err := customModel(provider, c.lookupEnv)
	if err != nil {
		return nil, err
	}
	c.engines[provider] = engine
	return engine, nil
}

// check gives what keeps agents of Go from running: joined Invalid (MODEL_INVALID).
func (c *catalog) check() error {
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

// detail is the sentence of a fault, without its kind and reason.
func detail(err error) string {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.Detail
	}
	return err.Error()
}

// definitions gives the agents that can be told without a run, by name: of a factory its
// name and description.
func (c *catalog) definitions() []agent.Agent {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	var definitions []agent.Agent
	for _, t := range c.registry.types() {
		e := c.registry.entries[t.Name]
		if e.yaml != nil {
			e.definition = e.yaml.Now()
		}
		definitions = append(definitions, e.definition)
	}
	return definitions
}
