package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// storedAgentService implements statev1.StoredAgentServiceServer.
type storedAgentService struct {
	statev1.UnimplementedStoredAgentServiceServer
	store  store.StoredAgents
	runner *runner
}

var storedOut = map[session.StoredOutcome]statev1.PutStoredAgentResponse_Outcome{
	session.StoredCreated:   statev1.PutStoredAgentResponse_OUTCOME_CREATED,
	session.StoredChanged:   statev1.PutStoredAgentResponse_OUTCOME_CHANGED,
	session.StoredUnchanged: statev1.PutStoredAgentResponse_OUTCOME_UNCHANGED,
}

// PutStoredAgent implements statev1.StoredAgentServiceServer.
func (s *storedAgentService) PutStoredAgent(
	ctx context.Context, r *statev1.PutStoredAgentRequest,
) (*statev1.PutStoredAgentResponse, error) {
	x := s.runner.read(r)
	x.id("tenant", r.GetTenant())
	a := session.StoredAgent{Agent: readAgent(x, "AGENT_INVALID", r.GetAgent()), By: x.by.Actor, At: x.now}
	x.atMost("DEFINITION_TOO_LARGE", "the definition", len(r.GetDefinition()), x.limits.DefinitionBytes)
	if x.err != nil {
		return nil, x.err
	}
	var err error
	if a.Text, a.Definition, err = session.CanonicalDefinition([]byte(r.GetDefinition())); err != nil {
		return nil, invalid("DEFINITION_INVALID", "the definition is no JSON object: %v", err)
	}
	former, err := s.store.StoreAgent(ctx, r.GetTenant(), a, r.ExpectedHash, x.limits.StoredAgents,
		storedEvent(x, session.ActionAgentStored, a.Type, map[string]any{"hash": a.Definition}))
	if err != nil {
		return nil, err
	}
	outcome := session.StoredChanged
	switch {
	case former == nil:
		outcome = session.StoredCreated
	case former.Definition == a.Definition:
		outcome, a = session.StoredUnchanged, *former
	}
	return &statev1.PutStoredAgentResponse{Outcome: storedOut[outcome], Stored: definitionOut(&a)}, nil
}

// storedEvent is the entry of the audit log about a stored agent.
func storedEvent(x *reader, action session.AuditAction, name string, detail map[string]any) session.AuditEvent {
	return session.AuditEvent{
		ID: newAuditID(), At: x.now, Actor: x.by.Actor, Action: action, TargetKind: "agent", TargetID: name,
		Outcome: session.OutcomeDone, Detail: session.AuditDetail(detail),
	}
}

// GetStoredAgent implements statev1.StoredAgentServiceServer.
func (s *storedAgentService) GetStoredAgent(
	ctx context.Context, r *statev1.GetStoredAgentRequest,
) (*statev1.GetStoredAgentResponse, error) {
	x := s.runner.read(r)
	tenant, name := x.id("tenant", r.GetTenant()), x.id("agent_type", r.GetAgentType())
	if x.err != nil {
		return nil, x.err
	}
	found, err := s.store.StoredAgent(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	return &statev1.GetStoredAgentResponse{Agent: storedAgentOut(found), Definition: found.Text}, nil
}

// DeleteStoredAgent implements statev1.StoredAgentServiceServer.
func (s *storedAgentService) DeleteStoredAgent(
	ctx context.Context, r *statev1.DeleteStoredAgentRequest,
) (*statev1.DeleteStoredAgentResponse, error) {
	x := s.runner.read(r)
	tenant, name := x.id("tenant", r.GetTenant()), x.id("agent_type", r.GetAgentType())
	if x.err != nil {
		return nil, x.err
	}
	if err := s.store.DeleteAgent(ctx, tenant, name, r.ExpectedHash, storedEvent(x, session.ActionAgentDeleted, name, nil)); err != nil {
		return nil, err
	}
	return &statev1.DeleteStoredAgentResponse{}, nil
}

// GetDefinition implements statev1.WorkServiceServer.
func (s *workService) GetDefinition(ctx context.Context, r *statev1.GetDefinitionRequest) (*statev1.GetDefinitionResponse, error) {
	x := s.runner.read(r)
	ref, hash := x.claim(s.grants, r.GetRun()), x.id("hash", r.GetHash())
	if x.err != nil {
		return nil, x.err
	}
	text, err := s.stored.Definition(ctx, ref.Tenant, hash)
	if err != nil {
		return nil, err
	}
	return &statev1.GetDefinitionResponse{Definition: text}, nil
}

// readAgent reads what clients learn of an agent. Invalid with the reason.
func readAgent(x *reader, reason string, a *statev1.Agent) session.Agent {
	const maxDescription = 4096
	if p := idProblem(a.GetAgentType()); p != "" {
		x.refuse(reason, "agent_type %q %s", a.GetAgentType(), p)
	}
	if len(a.GetDescription()) > maxDescription || strings.ContainsRune(a.GetDescription(), 0) {
		x.refuse(reason, "the description of agent %q is longer than %d bytes or has a zero character", a.GetAgentType(), maxDescription)
	}
	onBusy, known := busyIn[a.GetOnBusy()]
	if !known && a.GetOnBusy() != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED {
		x.refuse(reason, "on_busy of agent %q is %s, which is not a policy", a.GetAgentType(), a.GetOnBusy())
	}
	if x.err == nil {
		if err := checkStateSchema(a.GetStateSchema()); err != nil {
			x.refuse(reason, "state_schema of agent %q: %v", a.GetAgentType(), err)
		}
	}
	return session.Agent{
		Type: a.GetAgentType(), Description: a.GetDescription(), OnBusy: onBusy, StateSchema: a.GetStateSchema(), Remote: a.GetRemote(),
		Rules: x.agentRules(reason, a.GetAgentType(), a.GetRules()),
	}
}

func agentOut(a *session.Agent) *statev1.Agent {
	return &statev1.Agent{
		AgentType: a.Type, Description: a.Description, OnBusy: busyOut[a.OnBusy], StateSchema: a.StateSchema, Remote: a.Remote,
		Rules: agentRulesOut(a.Rules),
	}
}

func storedAgentOut(a *session.StoredAgent) *statev1.Agent {
	out := agentOut(&a.Agent)
	out.Stored = definitionOut(a)
	return out
}

func definitionOut(a *session.StoredAgent) *statev1.StoredDefinition {
	return &statev1.StoredDefinition{Hash: a.Definition, StoredBy: a.By, StoredAt: int64(a.At)}
}

// addStored adds the stored agents of a tenant to the announced ones. executors are the numbers of executors by agent. A
// stored agent that an executor announces as well is not added: a problem says that it is not used.
func (s *sessionService) addStored(ctx context.Context, tenant string, executors map[string]int64, to *statev1.ListAgentsResponse) error {
	stored, err := s.stored.StoredAgentsOf(ctx, tenant)
	if err != nil {
		return err
	}
	for i := range stored {
		a := &stored[i]
		if n := executors[a.Type]; n > 0 {
			to.Problems = append(to.Problems, &statev1.Problem{Kind: "agent", Name: a.Type, Executors: n, Text: fmt.Sprintf(
				"an executor announces an agent %q, so the stored one is not used: delete it, or rename the executor's", a.Type)})
			continue
		}
		out := storedAgentOut(a)
		at := slices.IndexFunc(to.GetAgents(), func(known *statev1.Agent) bool { return known.GetAgentType() == a.Type })
		if at >= 0 { // no executor announces it any more
			to.Agents[at] = out
			to.UnservedAgentTypes = slices.DeleteFunc(to.UnservedAgentTypes, func(name string) bool { return name == a.Type })
		} else {
			to.Agents = append(to.Agents, out)
		}
	}
	slices.SortFunc(to.Agents, func(a, b *statev1.Agent) int { return strings.Compare(a.GetAgentType(), b.GetAgentType()) })
	return nil
}

// eraseAgents deletes the stored agents of the tenant.
func (e *erasure) eraseAgents(ctx context.Context) error {
	erased, err := e.store.EraseAgents(ctx, e.tenant)
	e.removed["agents"] += erased
	return err
}
