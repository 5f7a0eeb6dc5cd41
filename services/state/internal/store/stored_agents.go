package store

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// StoredAgents stores the agents of tenants, by name, and their definitions, by hash. A definition stays while a name
// points to it, or a running run has noted it. Tenants share none.
type StoredAgents interface {
	// StoreAgent stores an agent of the tenant, with the event if that changes something and has an actor, and returns the agent that it has
	// replaced; nil for none. An equal definition of the name changes nothing.
	//
	// Conflict (AGENT_ANNOUNCED): a registered executor announces the name. Stale (AGENT_CHANGED): the name has another
	// definition than the expected hash; "" expects none, nil expects nothing. TooLarge (TOO_MANY_AGENTS): the tenant has
	// as many agents as most already.
	StoreAgent(
		ctx context.Context, tenant string, a session.StoredAgent, expected *string, most int, event session.AuditEvent,
	) (former *session.StoredAgent, err error)

	// StoredAgent returns an agent with its definition. NotFound (AGENT_NOT_FOUND).
	StoredAgent(ctx context.Context, tenant, name string) (*session.StoredAgent, error)

	// StoredAgentsOf returns the agents of a tenant by name, without the texts of their definitions.
	StoredAgentsOf(ctx context.Context, tenant string) ([]session.StoredAgent, error)

	// DeleteAgent deletes an agent of the tenant, with the event. NotFound (AGENT_NOT_FOUND), Stale (AGENT_CHANGED) as for
	// StoreAgent.
	DeleteAgent(ctx context.Context, tenant, name string, expected *string, event session.AuditEvent) error

	// Definition returns a definition of the tenant. NotFound (DEFINITION_NOT_FOUND).
	Definition(ctx context.Context, tenant, hash string) (string, error)

	// EraseAgents deletes all agents of a tenant with all definitions, and returns the number of the agents.
	EraseAgents(ctx context.Context, tenant string) (int64, error)
}

// CheckStoring gives the faults of StoreAgent for an agent of the name that is stored already; nil for none. stored is how
// many agents the tenant has.
func CheckStoring(name string, former *session.StoredAgent, announced bool, expected *string, stored, most int) error {
	switch {
	case announced:
		return fault.New(fault.Conflict, "AGENT_ANNOUNCED",
			"an executor serves an agent %q of its own; choose another name, or remove the agent from the executor", name)
	case former == nil && stored >= most:
		return fault.New(fault.TooLarge, "TOO_MANY_AGENTS",
			"the tenant has %d stored agents, which is the limit; delete some, or raise HOLDFAST_STATE_MAX_STORED_AGENTS", stored)
	}
	return CheckExpected(name, former, expected)
}

// CheckExpected gives Stale (AGENT_CHANGED) unless the stored agent has the expected hash.
func CheckExpected(name string, stored *session.StoredAgent, expected *string) error {
	has := ""
	if stored != nil {
		has = stored.Definition
	}
	if expected != nil && *expected != has {
		return fault.New(fault.Stale, "AGENT_CHANGED",
			"the stored agent %q has another definition than the request expects; read it, and decide anew", name).With("hash", has)
	}
	return nil
}

// AgentNotStored is the fault of an unknown agent: NotFound (AGENT_NOT_FOUND).
func AgentNotStored(name string) error {
	return fault.New(fault.NotFound, "AGENT_NOT_FOUND", "there is no stored agent %q", name)
}

// DefinitionNotFound is the fault of an unknown definition: NotFound (DEFINITION_NOT_FOUND).
func DefinitionNotFound(hash string) error {
	return fault.New(fault.NotFound, "DEFINITION_NOT_FOUND", "there is no definition %q; its agent was changed or deleted", hash)
}
