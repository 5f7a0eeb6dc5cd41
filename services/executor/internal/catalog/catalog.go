// Package catalog defines the agents of an executor as its worker sees them.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// ErrUnreachable means that a function of an agent was not called, because the application that has it cannot be reached. The
// function is called again as long as the run lives.
var ErrUnreachable = errors.New("the application with the function cannot be reached")

// Catalog finds the agents of an executor. They may change while it runs. Safe
// for concurrent use.
type Catalog interface {
	// Types returns the types to announce to the state service, by name.
	Types() []Type
	// Resolve returns the agent of a run until the end of its claim. NotFound
	// (AGENT_NOT_FOUND): there is no such type, or no longer. Other errors come from a factory and
	// fail the run.
	Resolve(ctx context.Context, f For) (Agent, error)
	// ChildHooks returns the hooks of agents for the runs of their sub-agents, by the agent: those with Hooks.Children, without
	// agents of factories. It is empty if there are none.
	ChildHooks() map[string]agent.Hooks
	// ServesStored reports whether agents that tenants have stored are served.
	ServesStored() bool
	// ResolveStored is Resolve for a run of a stored agent. hash is that of its definition, and load returns the definition
	// if it is not kept. NotFound (AGENT_NOT_FOUND): the agent waits for something; Invalid (AGENTS_INVALID): the definition
	// does not pass the checks of this executor. The errors of load are returned as they are.
	ResolveStored(ctx context.Context, f For, hash string, load func(context.Context) ([]byte, error)) (Agent, error)
	// CheckStored checks the definition of a stored agent, and returns it as data, with what is announced of the agent. file
	// is the name of the text in mistakes; empty for the agent's. Invalid (AGENTS_INVALID), Conflict (STORED_AGENTS_DISABLED).
	CheckStored(ctx context.Context, name, file string, text []byte) ([]byte, Type, error)
	// Problems returns what is out of service, to announce too.
	Problems() []Problem
	// Changed returns a channel. It is closed when Types or Problems change after the call; nil for never.
	Changed() <-chan struct{}
}

// Problem is a part out of service or incomplete.
type Problem struct {
	Kind string // file, endpoint, provider, mcpServer, tool or agent
	// Name is the path of a file, the URL of an endpoint, and the name of anything else.
	Name string
	// Agent is the agent with the tool or the fallback; empty for a part of its own.
	Agent string
	// Text is the reason. It may name files and addresses.
	Text string
}

// Type describes an agent without its run.
type Type struct {
	Name        string
	Description string
	OnBusy      agent.BusyPolicy
	StateSchema string // empty for none, and for the agents of a factory
	Remote      bool
	// What the agent permits to callers. Factories permit nothing.
	CallerTools        *agent.CallerTools
	CallerInstructions bool
	ToolNames          []string // of the agent, if callers may bring others
}

// Equal reports whether both are announced alike.
func (t Type) Equal(other Type) bool { return reflect.DeepEqual(t, other) }

// TypeOf describes a definition.
func TypeOf(a agent.Agent) Type {
	t := Type{
		Name: a.Name, Description: a.Description, OnBusy: a.OnBusy, StateSchema: string(a.StateSchema), Remote: a.Remote != nil,
		CallerTools: a.CallerTools, CallerInstructions: a.CallerInstructions,
	}
	if a.CallerTools != nil {
		for _, tool := range a.Tools {
			t.ToolNames = append(t.ToolNames, tool.Name)
		}
	}
	return t
}

// policies maps the policy of an agent for messages during a live run. An agent without a policy announces none.
var policies = map[agent.BusyPolicy]statev1.BusyPolicy{
	agent.BusyReject:    statev1.BusyPolicy_BUSY_POLICY_REJECT,
	agent.BusyEnqueue:   statev1.BusyPolicy_BUSY_POLICY_ENQUEUE,
	agent.BusyInterrupt: statev1.BusyPolicy_BUSY_POLICY_INTERRUPT,
	agent.BusyRollback:  statev1.BusyPolicy_BUSY_POLICY_ROLLBACK,
}

// Announced returns what the state service learns of a type.
func Announced(t Type) *statev1.Agent {
	return &statev1.Agent{
		AgentType: t.Name, Description: t.Description, OnBusy: policies[t.OnBusy], StateSchema: t.StateSchema, Remote: t.Remote,
		Rules: rulesOf(t),
	}
}

// rulesOf returns what an agent permits to callers. It returns nil for nothing.
func rulesOf(t Type) *statev1.AgentRules {
	if t.CallerTools == nil && !t.CallerInstructions {
		return nil
	}
	rules := &statev1.AgentRules{CallerInstructions: t.CallerInstructions}
	if tools := t.CallerTools; tools != nil {
		rules.CallerTools = &statev1.CallerTools{
			Allow: tools.Allow, Max: int32(cmp.Or(tools.Max, agent.DefaultMaxCallerTools)), Taken: t.ToolNames,
		}
	}
	return rules
}

// For identifies the run of an agent.
type For struct{ AgentType, Tenant, SessionID, RunID, UserID string }

// Agent is an agent with its models.
type Agent struct {
	agent.Agent
	// Models has the models of the agent and its fallbacks, by provider/name.
	Models map[string]model.Model
	// Governors has the governors of the models with limits, by provider/name.
	Governors map[string][]model.Governor
}

// FindModel returns a model by provider/name.
func (a Agent) FindModel(name string) (model.Model, error) {
	m, ok := a.Models[name]
	if !ok {
		return nil, fmt.Errorf("the agent %q has no model %q", a.Name, name)
	}
	return m, nil
}

// Static is a constant catalog.
type Static []Agent

// Types returns the types to announce.
func (s Static) Types() []Type {
	types := make([]Type, 0, len(s))
	for _, a := range s {
		types = append(types, TypeOf(a.Agent))
	}
	slices.SortFunc(types, func(a, b Type) int { return strings.Compare(a.Name, b.Name) })
	return types
}

// Resolve returns the agent of the type.
func (s Static) Resolve(_ context.Context, f For) (Agent, error) {
	for _, a := range s {
		if a.Name == f.AgentType {
			return a, nil
		}
	}
	return Agent{}, fault.New(fault.NotFound, "AGENT_NOT_FOUND", "there is no agent %q here", f.AgentType)
}

// ServesStored returns false.
func (s Static) ServesStored() bool { return false }

// ResolveStored gives AGENT_NOT_FOUND.
func (s Static) ResolveStored(_ context.Context, f For, _ string, _ func(context.Context) ([]byte, error)) (Agent, error) {
	return Agent{}, fault.New(fault.NotFound, "AGENT_NOT_FOUND", "stored agents are not served here, also not %q", f.AgentType)
}

// CheckStored gives Conflict (STORED_AGENTS_DISABLED).
func (s Static) CheckStored(context.Context, string, string, []byte) ([]byte, Type, error) {
	return nil, Type{}, fault.New(fault.Conflict, "STORED_AGENTS_DISABLED", "stored agents are not served here")
}

// Problems returns nil.
func (s Static) Problems() []Problem { return nil }

// ChildHooks implements Catalog.
func (s Static) ChildHooks() map[string]agent.Hooks {
	given := map[string]agent.Hooks{}
	for _, a := range s {
		if a.Hooks.Children {
			given[a.Name] = a.Hooks
		}
	}
	return given
}

// Changed returns nil.
func (s Static) Changed() <-chan struct{} { return nil }
