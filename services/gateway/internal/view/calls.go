package view

import (
	"cmp"
	"encoding/json"
	"strings"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
)

// calls are the calls of client tools and approvals, by id.
type calls struct {
	// Pending has the session's own calls, until a step takes their answers.
	Pending map[string]snapshotCall `json:"pendingClientToolCalls,omitempty"`
	// Owners has, for a root, the session of each call in its family.
	Owners map[string]string `json:"clientToolCallOwnership,omitempty"`
	// Completed has, for a root, the time at which a step took the answer, for the calls of its own
	// messages.
	Completed map[string]int64 `json:"completedClientToolCalls,omitempty"`
}

type snapshotCall struct {
	ToolCallID  string            `json:"toolCallId"`
	ToolName    string            `json:"toolName"`
	Kind        string            `json:"kind"` // client-tool, approval or callback
	ApprovalID  string            `json:"approvalId,omitempty"`
	Input       json.RawMessage   `json:"input,omitempty"`
	RunID       string            `json:"runId,omitempty"`
	StepID      string            `json:"stepId,omitempty"`
	CreatedAt   int64             `json:"createdAt"`
	DeadlineAt  int64             `json:"deadlineAt,omitempty"`
	Response    *snapshotResponse `json:"response,omitempty"`
	SubmittedAt int64             `json:"submittedAt,omitempty"`
	Approvers   string            `json:"approvers,omitempty"` // others: the one that started the run may not approve
	AnsweredBy  string            `json:"answeredBy,omitempty"`
}

// snapshotResponse is an answer to a call not yet taken by a step.
type snapshotResponse struct {
	Kind     string          `json:"kind"` // client-tool-result or approval-response
	Result   json.RawMessage `json:"result,omitempty"`
	Error    string          `json:"error,omitempty"`
	Approved *bool           `json:"approved,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Source   string          `json:"source,omitempty"` // client, timeout or abandoned
}

func callsOf(s *statev1.GetSessionResponse, completed map[string]int64) calls {
	out := calls{Pending: map[string]snapshotCall{}}
	own := s.GetSession().GetSessionId()
	for _, c := range conversation.ClientCalls(s.GetCalls()) {
		if c.GetSessionId() == own {
			out.Pending[c.GetToolCallId()] = pendingOf(c)
		}
	}
	if s.GetSession().GetRootSessionId() != own {
		return out
	}
	out.Completed, out.Owners = completed, map[string]string{}
	for _, c := range conversation.ClientCalls(s.GetCalls()) {
		out.Owners[c.GetToolCallId()] = c.GetSessionId()
	}
	return out
}

func pendingOf(c *statev1.Call) snapshotCall {
	p := snapshotCall{
		ToolCallID: c.GetToolCallId(), ToolName: c.GetToolName(), Kind: "client-tool", ApprovalID: c.GetApprovalId(),
		Input: jsonValue(c.GetInput()),
		RunID: c.GetRunId(), StepID: c.GetStepId(), CreatedAt: c.GetCreatedAt(), DeadlineAt: c.GetDeadlineAt(),
		SubmittedAt: c.GetAnsweredAt(), Approvers: conversation.ApproversOf(c), AnsweredBy: c.GetAnsweredBy(),
	}
	switch c.GetKind() {
	case statev1.CallKind_CALL_KIND_APPROVAL:
		p.Kind = "approval"
	case statev1.CallKind_CALL_KIND_CALLBACK:
		p.Kind, p.ApprovalID = "callback", ""
	}
	if c.GetAnswer() != nil {
		p.Response = responseOf(c.GetKind(), c.GetAnswer())
	}
	return p
}

func responseOf(kind statev1.CallKind, a *statev1.CallAnswer) *snapshotResponse {
	out := &snapshotResponse{Kind: "client-tool-result"}
	if kind == statev1.CallKind_CALL_KIND_APPROVAL {
		out.Kind = "approval-response"
	}
	switch answer := a.GetAnswer().(type) {
	case *statev1.CallAnswer_Result:
		out.Result = jsonValue(answer.Result)
	case *statev1.CallAnswer_Error:
		out.Error = cmp.Or(a.GetPublicError(), answer.Error)
	case *statev1.CallAnswer_Approval:
		approved := answer.Approval.GetApproved()
		out.Approved, out.Reason = &approved, answer.Approval.GetReason()
	}
	if a.GetSource() != statev1.AnswerSource_ANSWER_SOURCE_UNSPECIFIED {
		out.Source = strings.ToLower(strings.TrimPrefix(a.GetSource().String(), "ANSWER_SOURCE_"))
	}
	return out
}

// jsonValue converts a JSON text to a value; nil if it is not JSON.
func jsonValue(text string) json.RawMessage {
	if !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
}
