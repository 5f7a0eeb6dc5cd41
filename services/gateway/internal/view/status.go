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
	if output := session.GetOutput(); json.Valid([]byte(output)) {
		out.Output = json.RawMessage(output)
	}
	httpapi.WriteJSON(w, http.StatusOK, out)
	return nil
}

type agentList struct {
	Agents  []agent `json:"agents"`
	Default string  `json:"default" doc:"the agent of sessions that name none; empty if there is none"`
}

type agent struct {
	AgentType   string `json:"agentType"`
	Description string `json:"description"`
}

// Agents is GET /agents: the announced agents, and the default agent type, empty if there is none.
func (h *Handlers) Agents(w http.ResponseWriter, r *http.Request, _ string) error {
	known, err := h.Sessions.Agents(r.Context())
	if err != nil {
		return err
	}
	agents := make([]agent, len(known))
	for i, a := range known {
		agents[i] = agent{a.GetAgentType(), a.GetDescription()}
	}
	chosen := h.Sessions.DefaultAgent
	if chosen == "" && len(known) == 1 {
		chosen = known[0].GetAgentType()
	}
	httpapi.WriteJSON(w, http.StatusOK, agentList{Agents: agents, Default: chosen})
	return nil
}
