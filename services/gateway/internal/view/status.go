package view

import (
	"encoding/json"
	"net/http"

	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

type sessionStatus struct {
	SessionID   string          `json:"sessionId"`
	AgentType   string          `json:"agentType"`
	Status      string          `json:"status"`
	StepCount   int32           `json:"stepCount"`
	Output      json.RawMessage `json:"output,omitempty"`
	Error       string          `json:"error,omitempty"`
	RunID       string          `json:"runId,omitempty"`
	Checkpoint  string          `json:"checkpointId,omitempty"`
	IsExecuting bool            `json:"isExecuting"`
	Queued      *whyQueued      `json:"queuedReason,omitempty" doc:"why no executor executes the run, once it has waited for a second"`
}

type whyQueued struct {
	Reason string `json:"reason" enum:"no_executor,no_free_slot,tenant_in_flight,user_in_flight,delayed"`
	Detail string `json:"detail" doc:"for people"`
	Since  int64  `json:"since" doc:"since when the run waits"`
}

// Status is GET /status?sessionId=….
func (h *Handlers) Status(w http.ResponseWriter, r *http.Request, tenant string) error {
	id, err := sessionParameter.String(r)
	if err != nil {
		return err
	}
	session, run, err := h.Sessions.Session(r.Context(), tenant, id)
	if err != nil {
		return err
	}
	out := sessionStatus{
		SessionID: session.GetSessionId(), AgentType: session.GetAgentType(), Status: conversation.SessionStatus(session.GetStatus()),
		StepCount: session.GetStepCount(), Error: session.GetFailure().GetError(), RunID: run.GetRunId(),
		Checkpoint: session.GetCheckpointId(), IsExecuting: conversation.Executing(run),
	}
	if q := run.GetQueuedReason(); q != nil {
		out.Queued = &whyQueued{Reason: conversation.QueuedReason(q), Detail: q.GetDetail(), Since: q.GetSince()}
	}
	if output := session.GetOutput(); json.Valid([]byte(output)) {
		out.Output = json.RawMessage(output)
	}
	httpapi.WriteJSON(w, http.StatusOK, out)
	return nil
}

type agentList struct {
	Agents  []agent `json:"agents"`
	Default string  `json:"default" doc:"the agent of sessions that name none; empty if there is none"`
	// Problems are what is out of service at the executors.
	Problems []problem `json:"problems,omitempty" doc:"what is out of service at the executors, which serve everything else"`
}

type problem struct {
	Kind      string `json:"kind" doc:"file, endpoint, provider, mcpServer, tool or agent"`
	Name      string `json:"name"`
	AgentType string `json:"agentType,omitempty" doc:"the agent that has the tool or the fallback"`
	Text      string `json:"text,omitempty" doc:"the reason; only for the scope operate"`
	Executors int64  `json:"executors" doc:"the connected executors that have the problem"`
}

type agent struct {
	AgentType       string `json:"agentType"`
	Description     string `json:"description"`
	Executors       int64  `json:"executors" doc:"the connected executors that serve the agent"`
	LastAnnouncedAt int64  `json:"lastAnnouncedAt" doc:"when an executor last announced the agent, if none serves it; otherwise 0"`
	QueuedRuns      int64  `json:"queuedRuns" doc:"the queued runs of the tenant; of all agents together, at most 10,000 are counted"`
	OldestQueuedAt  int64  `json:"oldestQueuedAt" doc:"since when the oldest of them is queued; 0 without any"`
	Source          string `json:"source" doc:"executor, or stored for an agent of the tenant, whose executors are those that serve stored agents"`
	Hash            string `json:"hash,omitempty" doc:"of the definition of a stored agent"`
	StoredBy        string `json:"storedBy,omitempty" doc:"who has stored it, as in the audit log"`
	StoredAt        int64  `json:"storedAt,omitempty" doc:"when"`
}

// Agents is GET /agents: the announced agents, and the default agent type, empty if there is none.
func (h *Handlers) Agents(w http.ResponseWriter, r *http.Request, tenant string) error {
	announced, err := h.Sessions.Announced(r.Context(), tenant)
	if err != nil {
		return err
	}
	known := announced.GetAgents()
	var problems []problem
	for _, p := range conversation.VisibleProblems(r.Context(), announced.GetProblems()) {
		problems = append(problems, problem{p.GetKind(), p.GetName(), p.GetAgentType(), p.GetText(), p.GetExecutors()})
	}
	agents := make([]agent, len(known))
	for i, a := range known {
		agents[i] = agent{
			a.GetAgentType(),
			a.GetDescription(),
			a.GetExecutors(),
			a.GetLastAnnouncedAt(),
			a.GetQueuedRuns(),
			a.GetOldestQueuedAt(),
			conversation.SourceOf(a),
			a.GetStored().GetHash(),
			a.GetStored().GetStoredBy(),
			a.GetStored().GetStoredAt(),
		}
	}
	chosen := h.Sessions.DefaultAgent
	if chosen == "" && len(known) == 1 {
		chosen = known[0].GetAgentType()
	}
	httpapi.WriteJSON(w, http.StatusOK, agentList{Agents: agents, Default: chosen, Problems: problems})
	return nil
}
