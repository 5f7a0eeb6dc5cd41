package conversation

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// maxParents limits the sessions that are read for the sub-agents of one conversation.
const maxParents = 200

// Descendants returns the sub-agents below those of the calls, each after the one that has called
// it. The steps of the session do not show them.
func (r *Reader) Descendants(ctx context.Context, s *statev1.GetSessionResponse, calls map[string]bool) ([]uistream.Descendant, error) {
	type parent struct{ root, session string } // root is the call of the session itself
	var parents []parent
	for _, sub := range s.GetSubSessions() {
		if calls[sub.GetParentToolCallId()] && sub.GetLocation() == statev1.SubSessionLocation_SUB_SESSION_LOCATION_LOCAL {
			parents = append(parents, parent{sub.GetParentToolCallId(), sub.GetSessionId()})
		}
	}
	var found []uistream.Descendant
	for n := 0; n < min(len(parents), maxParents); n++ {
		got, err := r.SessionDetails(ctx, s.GetSession().GetTenant(), parents[n].session)
		switch {
		case errors.Is(err, fault.NotFound): // it was deleted meanwhile
			continue
		case err != nil:
			return nil, err
		}
		for _, sub := range got.GetSubSessions() {
			found = append(found, uistream.Descendant{
				RootCallID: parents[n].root, ParentSessionID: parents[n].session, CallID: sub.GetParentToolCallId(),
				SessionID: sub.GetSessionId(), AgentType: sub.GetAgentType(), Status: subAgentStatus(sub.GetStatus()),
			})
			parents = append(parents, parent{parents[n].root, sub.GetSessionId()})
		}
	}
	return found, nil
}

func subAgentStatus(s statev1.SessionStatus) string {
	switch s {
	case statev1.SessionStatus_SESSION_STATUS_COMPLETED:
		return uistream.SubAgentCompleted
	case statev1.SessionStatus_SESSION_STATUS_FAILED:
		return uistream.SubAgentFailed
	default:
		return uistream.SubAgentRunning
	}
}

// AddDescendants adds the sub-agents of sub-agents to the messages.
func (r *Reader) AddDescendants(ctx context.Context, s *statev1.GetSessionResponse, messages []uistream.UIMessage) error {
	calls := uistream.SubAgentCalls(messages)
	if len(calls) == 0 {
		return nil
	}
	found, err := r.Descendants(ctx, s, calls)
	uistream.ShowDescendants(messages, found)
	return err
}
