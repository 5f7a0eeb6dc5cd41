package conversation

import (
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// OpenCalls returns the session's own calls without an answer.
func OpenCalls(s *statev1.GetSessionResponse) []*statev1.Call {
	var open []*statev1.Call
	for _, c := range s.GetCalls() {
		if c.GetAnswer() == nil && c.GetRunId() != "" && c.GetSessionId() == s.GetSession().GetSessionId() {
			open = append(open, c)
		}
	}
	return open
}

// PendingCalls returns the session's own calls of client tools and approvals, with their answers,
// until a step takes the answer.
func PendingCalls(s *statev1.GetSessionResponse) []uistream.PendingCall {
	return PendingCallsOf(s.GetSession().GetSessionId(), s.GetCalls())
}

// PendingCallsOf is PendingCalls for the calls of GetSession.
func PendingCallsOf(session string, calls []*statev1.Call) []uistream.PendingCall {
	var pending []uistream.PendingCall
	for _, c := range calls {
		if c.GetSessionId() == session {
			pending = append(pending, pendingCall(c))
		}
	}
	return pending
}

func pendingCall(c *statev1.Call) uistream.PendingCall {
	a := uistream.PendingCall{CallID: c.GetToolCallId(), ToolName: c.GetToolName(), Input: c.GetInput(), Step: c.GetStep()}
	if c.GetKind() == statev1.CallKind_CALL_KIND_APPROVAL {
		a.ID = c.GetApprovalId()
	}
	switch answer := c.GetAnswer().GetAnswer().(type) {
	case *statev1.CallAnswer_Approval:
		approved := answer.Approval.GetApproved()
		a.Approved, a.Reason = &approved, answer.Approval.GetReason()
	case *statev1.CallAnswer_Result:
		a.Answer = &uistream.Answer{Result: answer.Result, Success: true}
	case *statev1.CallAnswer_Error:
		a.Answer = &uistream.Answer{Error: answer.Error}
	}
	return a
}

// Suspended reports whether the session waits for answers or children.
func Suspended(s *statev1.Session) bool {
	switch s.GetStatus() {
	case statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL,
		statev1.SessionStatus_SESSION_STATUS_SUSPENDED_AWAITING_CHILDREN,
		statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL:
		return true
	default:
		return false
	}
}

func isQuestion(m *eventv1.Message) bool {
	return m.GetRole() == eventv1.Role_ROLE_USER && !m.GetHidden()
}
