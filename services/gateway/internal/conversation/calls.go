package conversation

import (
	"cmp"
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// ClientCalls returns the calls of client tools and approvals, and those for callbacks.
func ClientCalls(calls []*statev1.Call) []*statev1.Call {
	return slices.DeleteFunc(slices.Clone(calls), isOfSubAgent)
}

func isOfSubAgent(c *statev1.Call) bool { return c.GetKind() == statev1.CallKind_CALL_KIND_SUB_AGENT }

func isForCallback(c *statev1.Call) bool { return c.GetKind() == statev1.CallKind_CALL_KIND_CALLBACK }

// OpenCalls returns the calls of client tools and approvals, and those for callbacks, without an answer: the session's
// own, and for a root those of the sessions below it.
func OpenCalls(s *statev1.GetSessionResponse) []*statev1.Call {
	return slices.DeleteFunc(ClientCalls(s.GetCalls()), func(c *statev1.Call) bool { return c.GetAnswer() != nil || c.GetRunId() == "" })
}

// AwaitsSubAgents reports whether the root is suspended on sub-agents alone, and one of them is
// executing: not each sub-agent that is awaited awaits something itself. A companion that waits for
// a client is not awaited.
func AwaitsSubAgents(root *statev1.GetSessionResponse) bool {
	awaited, suspended, _ := awaits(root)
	return awaited > suspended
}

// AwaitsOthers reports whether the root is suspended, and goes on without a client: it awaits a sub-agent that is executing,
// or a callback, or a sub-agent that awaits one.
func AwaitsOthers(root *statev1.GetSessionResponse) bool {
	awaited, suspended, callbacks := awaits(root)
	return awaited+callbacks > suspended
}

// awaits counts what a root awaits that is suspended on no client: the sub-agents in its tree, those of them that are
// suspended themselves, and the callbacks.
func awaits(root *statev1.GetSessionResponse) (awaited, suspended, callbacks int) {
	if root.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_SUSPENDED_AWAITING_CHILDREN {
		return 0, 0, 0
	}
	own, waiting := root.GetSession().GetSessionId(), map[string]bool{}
	for _, c := range root.GetCalls() {
		if c.GetAnswer() != nil {
			continue
		}
		switch {
		case isOfSubAgent(c):
			awaited++
		case isForCallback(c):
			callbacks++
		}
		if c.GetSessionId() != own && (isOfSubAgent(c) || !isCompanion(root, c.GetSessionId())) {
			waiting[c.GetSessionId()] = true
		}
	}
	return awaited, len(waiting), callbacks
}

func isCompanion(parent *statev1.GetSessionResponse, sessionID string) bool {
	return slices.ContainsFunc(parent.GetSubSessions(), func(s *statev1.SubSession) bool {
		return s.GetSessionId() == sessionID && s.GetMode() == statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT
	})
}

// PendingCalls returns the calls of client tools and approvals, with their answers, until a step
// takes the answer: the session's own, and for a root those of the sessions below it. Of the calls for callbacks it
// returns the session's own: a client has nothing to do with the others.
func PendingCalls(s *statev1.GetSessionResponse) []uistream.PendingCall {
	var pending []uistream.PendingCall
	for _, c := range ClientCalls(s.GetCalls()) {
		p := pendingCall(c)
		if c.GetSessionId() != s.GetSession().GetSessionId() {
			if !Suspended(s.GetSession()) || isForCallback(c) { // it was stopped, or no client answers
				continue
			}
			p.Step, p.Message = 0, s.GetCurrentRun().GetMessageId()
		}
		pending = append(pending, p)
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
		a.Answer = &uistream.Answer{Error: cmp.Or(c.GetAnswer().GetPublicError(), answer.Error)}
	}
	return a
}

// ApproversOf returns "others" if the starter of the run may not approve the call; empty otherwise.
func ApproversOf(c *statev1.Call) string {
	if c.GetApprovers() == statev1.Approvers_APPROVERS_OTHERS {
		return "others"
	}
	return ""
}

func isQuestion(m *eventv1.Message) bool {
	return m.GetRole() == eventv1.Role_ROLE_USER && !m.GetHidden()
}
