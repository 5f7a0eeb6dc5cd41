package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Catalog is the agents that an executor serves. They may change while it runs. Safe
// for concurrent use.
type Catalog interface {
	// Types gives what is announced to the state service, by name.
	Types() []Type
	// Resolve gives the agent for a run, which it keeps until its claim ends. NotFound
	// (AGENT_NOT_FOUND) for a type that there is not (any more); other errors are those of
	// a factory, and fail the run.
	Resolve(ctx context.Context, f For) (Agent, error)
	// Changed is closed when Types give something else than before the call.
	Changed() <-chan struct{}
}

// Type is what is known of an agent without a run.
type Type struct {
	Name        string
	Description string
	OnBusy      agent.BusyPolicy
}

// For is the run that an agent is for.
type For struct{ AgentType, Tenant, SessionID, RunID, UserID string }

// Agent is an agent with its models.
type Agent struct {
	agent.Agent
	// Models are those of the agent and its fallbacks, by provider/name.
	Models map[string]model.Model
}

// Static is a catalog that never changes.
type Static []Agent

// Types gives what is announced.
func (s Static) Types() []Type {
	types := make([]Type, 0, len(s))
	for _, a := range s {
		types = append(types, Type{Name: a.Name, Description: a.Description, OnBusy: a.OnBusy})
	}
	slices.SortFunc(types, func(a, b Type) int { return strings.Compare(a.Name, b.Name) })
	return types
}

// Resolve gives the agent of the type.
func (s Static) Resolve(_ context.Context, f For) (Agent, error) {
	for _, a := range s {
		if a.Name == f.AgentType {
			return a, nil
		}
	}
	return Agent{}, fault.New(fault.NotFound, "AGENT_NOT_FOUND", "there is no agent %q here", f.AgentType)
}

// Changed never is.
func (s Static) Changed() <-chan struct{} { return nil }

// engine gives the model of a call.
func (a Agent) engine(name string) (model.Model, error) {
	m, ok := a.Models[name]
	if !ok {
		return nil, fmt.Errorf("the agent %q has no model %q", a.Name, name)
	}
	return m, nil
}
