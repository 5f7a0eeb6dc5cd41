package conversation

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// maxParents limits the sessions read for the sub-agents of one conversation.
const maxParents = 200

// Descendants returns the sub-agents below those of the calls, each after the one that has called
// it, and before them the interrupted ones of the calls. The steps of the session do not show them.
func (r *Reader) Descendants(ctx context.Context, s *statev1.GetSessionResponse, calls map[string]bool) ([]uistream.Descendant, error) {
	type parent struct{ root, session string } // root is the call of the session itself
	var parents []parent
	for _, sub := range s.GetSubSessions() {
		if calls[sub.GetParentToolCallId()] && sub.GetLocation() == statev1.SubSessionLocation_SUB_SESSION_LOCATION_LOCAL {
			parents = append(parents, parent{sub.GetParentToolCallId(), sub.GetSessionId()})
		}
	}
	found := interruptedSubAgents(s, calls)
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
				SessionID: sub.GetSessionId(), AgentType: sub.GetAgentType(), Status: subAgentStatus(got.GetSession(), sub),
			})
			parents = append(parents, parent{parents[n].root, sub.GetSessionId()})
		}
	}
	return found, nil
}

// interruptedSubAgents returns the interrupted sub-agents that open calls of the session wait for.
func interruptedSubAgents(s *statev1.GetSessionResponse, calls map[string]bool) (found []uistream.Descendant) {
	for _, c := range s.GetCalls() {
		if !isOfSubAgent(c) || c.GetAnswer() != nil || c.GetSessionId() != s.GetSession().GetSessionId() || !calls[c.GetToolCallId()] {
			continue
		}
		for _, sub := range s.GetSubSessions() {
			answers := sub.GetSessionId() == c.GetSubSessionId() || c.GetSubSessionId() == "" && sub.GetParentToolCallId() == c.GetToolCallId()
			if status := subAgentStatus(s.GetSession(), sub); answers && status == uistream.SubAgentInterrupted {
				found = append(found, uistream.Descendant{
					RootCallID: c.GetToolCallId(), CallID: c.GetToolCallId(), SessionID: sub.GetSessionId(),
					AgentType: sub.GetAgentType(), Status: status,
				})
			}
		}
	}
	return found
}

// subAgentStatus returns the status of a sub-agent. The interrupt of its parent is on the way to one at work.
func subAgentStatus(parent *statev1.Session, sub *statev1.SubSession) string {
	switch sub.GetStatus() { //nolint:exhaustive // the others are at work
	case statev1.SessionStatus_SESSION_STATUS_COMPLETED:
		return uistream.SubAgentCompleted
	case statev1.SessionStatus_SESSION_STATUS_FAILED:
		return uistream.SubAgentFailed
	case statev1.SessionStatus_SESSION_STATUS_INTERRUPTED, statev1.SessionStatus_SESSION_STATUS_PAUSED:
		return uistream.SubAgentInterrupted
	}
	if parent.GetStatus() == statev1.SessionStatus_SESSION_STATUS_INTERRUPTED {
		return uistream.SubAgentInterrupted
	}
	return uistream.SubAgentRunning
}

// AddDescendants adds the sub-agents of sub-agents to the messages, and marks the interrupted ones.
func (r *Reader) AddDescendants(ctx context.Context, s *statev1.GetSessionResponse, messages []uistream.UIMessage) error {
	calls := uistream.SubAgentCalls(messages)
	if len(calls) == 0 {
		return nil
	}
	found, err := r.Descendants(ctx, s, calls)
	uistream.ShowDescendants(messages, found)
	return err
}
