package submit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// The kinds of answers in a body.
const (
	kindResult   = "client-tool-result"
	kindApproval = "approval-response"
)

// submission is the body of a request. A null key counts as missing, except for result: null is a
// result.
type submission struct {
	SessionID  string          `json:"sessionId" doc:"the session, if the path does not name it"`
	ToolCallID string          `json:"toolCallId" required:"true" doc:"the call"`
	Kind       string          `json:"kind" enum:"client-tool-result,approval-response" doc:"client-tool-result if missing"`
	Result     json.RawMessage `json:"result" doc:"of a client tool: any JSON value"`
	Error      *string         `json:"error" doc:"why there is no result"`
	ApprovalID *string         `json:"approvalId"`
	Approved   *bool           `json:"approved"`
	Reason     *string         `json:"reason"`
}

// submitted is the answer to a request.
type submitted struct {
	Status       string `json:"status" enum:"accepted,already_completed,late_answer_after_timeout"`
	Continuation string `json:"continuation" enum:"none,new_run,live_run,caller_resumes" doc:"what the session does with the answer"`
	RunID        string `json:"runId,omitempty"`
}

var statuses = map[statev1.SubmitCallResponse_Outcome]string{
	statev1.SubmitCallResponse_OUTCOME_ACCEPTED:                  "accepted",
	statev1.SubmitCallResponse_OUTCOME_ALREADY_COMPLETED:         "already_completed",
	statev1.SubmitCallResponse_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT: "late_answer_after_timeout",
}

var continuations = map[statev1.SubmitCallResponse_Continuation]string{
	statev1.SubmitCallResponse_CONTINUATION_UNSPECIFIED:    "none",
	statev1.SubmitCallResponse_CONTINUATION_NOTHING:        "none",
	statev1.SubmitCallResponse_CONTINUATION_NEW_RUN:        "new_run",
	statev1.SubmitCallResponse_CONTINUATION_LIVE_RUN:       "live_run",
	statev1.SubmitCallResponse_CONTINUATION_CALLER_RESUMES: "caller_resumes",
}

// Serve is POST /chat/{id}/submit-tool-result, and POST /submit-tool-result with the session in the
// body.
func (a *Answers) Serve(w http.ResponseWriter, r *http.Request, tenant string) error {
	var body submission
	if err := httpapi.ReadJSON(w, r, a.Limits, &body); err != nil {
		return err
	}
	session, err := body.session(r)
	if err != nil {
		return err
	}
	answer, err := body.answer()
	if err != nil {
		return err
	}
	taken, err := a.Submit(r.Context(), &statev1.SubmitCallRequest{
		Tenant: tenant, SessionId: session, ToolCallId: body.ToolCallID, Answer: answer,
	})
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusOK, submitted{
		Status: statuses[taken.GetOutcome()], Continuation: continuations[taken.GetContinuation()], RunID: taken.GetRunId(),
	})
	return nil
}

// session returns the session ID of the path, or else the one in the body.
func (s *submission) session(r *http.Request) (string, error) {
	id := r.PathValue("id")
	switch {
	case id == "":
		return s.SessionID, nil
	case s.SessionID != "" && s.SessionID != id:
		return "", fault.New(fault.Invalid, "BODY_INVALID", "the path and sessionId name different sessions; leave sessionId out")
	default:
		return id, nil
	}
}

// answer returns the answer of the kind, and refuses keys of another kind.
func (s *submission) answer() (*statev1.CallAnswer, error) {
	switch s.Kind {
	case "", kindResult:
		return s.outcome()
	case kindApproval:
		return s.approval()
	default:
		return nil, invalid("kind is %.50q: it must be %s or %s", s.Kind, kindResult, kindApproval)
	}
}

func (s *submission) outcome() (*statev1.CallAnswer, error) {
	switch {
	case s.ApprovalID != nil || s.Approved != nil || s.Reason != nil:
		return nil, invalid("approvalId, approved and reason belong to an answer of kind %s", kindApproval)
	case s.Result != nil && s.Error != nil:
		return nil, invalid("the answer has a result and an error; send only one of the two")
	case s.Error != nil:
		return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: *s.Error}}, nil
	case s.Result == nil:
		return nil, invalid("the answer has neither a result nor an error; a tool without a result has the result null")
	}
	if !utf8.Valid(s.Result) {
		return nil, invalid("the result is not UTF-8")
	}
	var result bytes.Buffer
	if err := json.Compact(&result, s.Result); err != nil { // the decoder has validated it
		return nil, invalid("the result is not JSON")
	}
	return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: result.String()}}, nil
}

func (s *submission) approval() (*statev1.CallAnswer, error) {
	switch {
	case s.Result != nil || s.Error != nil:
		return nil, invalid("an answer of kind %s has no result and no error", kindApproval)
	case s.ApprovalID == nil || s.Approved == nil:
		return nil, invalid("an answer of kind %s needs approvalId and approved", kindApproval)
	}
	if err := httpapi.CheckID("approvalId", *s.ApprovalID); err != nil {
		return nil, err
	}
	approval := &statev1.ApprovalAnswer{ApprovalId: *s.ApprovalID, Approved: *s.Approved}
	if s.Reason != nil {
		approval.Reason = *s.Reason
	}
	return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: approval}}, nil
}

const answerInvalid = "ANSWER_INVALID"

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, answerInvalid, format, args...)
}
