package view

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// attempts is how often a session is read while it keeps changing.
const attempts = 3

// snapshot is a session as a page shows it. Messages has the newest part of the conversation;
// /messages has the part before Offset.
type snapshot struct {
	SessionID      string               `json:"sessionId"`
	RunID          *string              `json:"runId"`
	Messages       []uistream.UIMessage `json:"messages"`
	Offset         int64                `json:"offset" doc:"how many stored messages are before the first one"`
	Total          int64                `json:"total" doc:"the stored messages of the session; several may form one UI message"`
	HasMore        bool                 `json:"hasMore"`
	State          json.RawMessage      `json:"state"`
	StreamSequence int64                `json:"streamSequence"`
	Status         string               `json:"status"`
	Timestamp      int64                `json:"timestamp"`

	AgentType    string        `json:"agentType,omitempty"`
	Version      int64         `json:"version,omitempty"`
	CheckpointID string        `json:"checkpointId,omitempty"`
	Error        string        `json:"error,omitempty"`
	Interruption *interruption `json:"interruptContext,omitempty"`
	calls
	WaitingRuns     []string `json:"waitingRuns,omitempty"` // in the order of their start
	RootSessionID   string   `json:"rootSessionId,omitempty"`
	ParentSessionID string   `json:"parentSessionId,omitempty"`
}

type interruption struct {
	RunID         string `json:"runId,omitempty"`
	Reason        string `json:"reason,omitempty"`
	InterruptedAt int64  `json:"interruptedAt,omitempty"`
}

// Snapshot is GET /snapshot?sessionId=…. Unavailable (SESSION_CHANGING), Exhausted
// (TOO_MANY_SNAPSHOTS), NotFound (SESSION_NOT_FOUND).
func (h *Handlers) Snapshot(w http.ResponseWriter, r *http.Request, tenant string) error {
	id, err := sessionParameter.String(r)
	if err != nil {
		return err
	}
	if !h.Snapshots.Take(tenant, 1) {
		return fault.New(fault.Exhausted, "TOO_MANY_SNAPSHOTS",
			"this gateway is already making too many snapshots; send it again in a moment, or raise HOLDFAST_GATEWAY_MAX_SNAPSHOTS")
	}
	defer h.Snapshots.Give(tenant, 1)
	for range attempts {
		s, err := h.Sessions.SessionDetails(r.Context(), tenant, id)
		if err != nil {
			return err
		}
		v, offset, same, err := h.read(r.Context(), s)
		if err != nil {
			return err
		}
		if same {
			if err := h.Sessions.AddDescendants(r.Context(), s, v.messages); err != nil {
				return err
			}
			shot := h.snapshotOf(s, v, offset)
			files.Show(h.Files.Base(r), shot.Messages)
			httpapi.WriteJSON(w, http.StatusOK, shot)
			return nil
		}
	}
	return fault.New(fault.Unavailable, "SESSION_CHANGING", "the conversation changed during %d reads in a row; retry", attempts)
}

// read reads the conversation, then the step in flight. same is false if messages were removed
// meanwhile, possible only while no run is executing.
func (h *Handlers) read(ctx context.Context, s *statev1.GetSessionResponse) (v contents, offset int64, same bool, err error) {
	stored, err := h.Sessions.ReadNewest(ctx, s.GetSession())
	if err != nil || stored.Changed {
		return contents{}, 0, false, err
	}
	v = h.addLive(ctx, s, stored)
	if conversation.Executing(s.GetCurrentRun()) {
		return v, stored.Offset, true, nil
	}
	now, _, err := h.Sessions.Session(ctx, s.GetSession().GetTenant(), s.GetSession().GetSessionId())
	return v, stored.Offset, now.GetVersion() == s.GetSession().GetVersion(), err
}

func (h *Handlers) snapshotOf(s *statev1.GetSessionResponse, v contents, offset int64) *snapshot {
	session := s.GetSession()
	out := &snapshot{
		SessionID: session.GetSessionId(), Messages: v.messages, Offset: offset, Total: session.GetMessageCount(), HasMore: offset > 0,
		StreamSequence: v.sequence, Status: status(s), Timestamp: h.Now().UnixMilli(),
		AgentType: session.GetAgentType(), Version: session.GetVersion(), CheckpointID: session.GetCheckpointId(),
		Error: session.GetFailure().GetError(), calls: callsOf(s, v.completed), ParentSessionID: session.GetParentSessionId(),
	}
	if run := session.GetCurrentRunId(); run != "" {
		out.RunID = &run
	}
	if out.Messages == nil {
		out.Messages = []uistream.UIMessage{}
	}
	uistream.ShowPending(out.Messages, conversation.PendingCalls(s))
	if !conversation.Executing(s.GetCurrentRun()) { // a live run may still end the calls
		out.Messages = conversation.DropEmptyAnswer(out.Messages, s.GetCurrentRun())
		uistream.EndUnanswered(out.Messages, conversation.UnansweredReasons(s, out.Messages))
	}
	if state := session.GetCustomState(); json.Valid([]byte(state)) {
		out.State = json.RawMessage(state)
	}
	if i := session.GetInterruption(); i != nil {
		out.Interruption = &interruption{i.GetRunId(), i.GetReason(), i.GetInterruptedAt()}
	}
	for _, run := range s.GetWaiting() {
		out.WaitingRuns = append(out.WaitingRuns, run.GetRunId())
	}
	if root := session.GetRootSessionId(); root != session.GetSessionId() {
		out.RootSessionID = root
	}
	return out
}

func status(s *statev1.GetSessionResponse) string {
	if conversation.Executing(s.GetCurrentRun()) || conversation.AwaitsSubAgents(s) {
		return "active"
	}
	switch s.GetSession().GetStatus() {
	case statev1.SessionStatus_SESSION_STATUS_FAILED:
		return "failed"
	case statev1.SessionStatus_SESSION_STATUS_COMPLETED, statev1.SessionStatus_SESSION_STATUS_INTERRUPTED:
		return "ended"
	case statev1.SessionStatus_SESSION_STATUS_ACTIVE:
		return "active"
	default:
		return "paused"
	}
}
