package gatewaytest

import (
	"context"
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// The bounds of answers, in bytes.
const (
	mostResult = 1_000_000
	mostError  = 8192
)

// SubmitCall implements the service.
func (s *State) SubmitCall(_ context.Context, r *statev1.SubmitCallRequest) (*statev1.SubmitCallResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(); err != nil {
		return nil, err
	}
	if err := checkAnswer(r.GetAnswer()); err != nil {
		return nil, err
	}
	owner, call := s.call(r.GetTenant(), r.GetSessionId(), r.GetToolCallId())
	if call == nil {
		return nil, s.missing(r)
	}
	outcome, err := owner.take(call, r.GetAnswer())
	if err != nil {
		return nil, err
	}
	out := &statev1.SubmitCallResponse{Outcome: outcome, OwnerSessionId: owner.GetSessionId()}
	out.Continuation, out.RunId = s.goOn(owner, outcome == statev1.SubmitCallResponse_OUTCOME_ACCEPTED)
	return out, nil
}

// call finds a call of the session's family. It is called with mu held.
func (s *State) call(tenant, session, id string) (*session, *statev1.Call) {
	asked := s.sessions[streamKey(tenant, session)]
	if asked == nil {
		return nil, nil
	}
	for _, owner := range s.sessions {
		if owner.GetTenant() != tenant || owner.GetRootSessionId() != asked.GetRootSessionId() {
			continue
		}
		for _, call := range slices.Concat(owner.calls, owner.answered) {
			if call.GetToolCallId() == id {
				return owner, call
			}
		}
	}
	return nil, nil
}

// take gives the call its answer, or says which one stands.
func (s *session) take(call *statev1.Call, a *statev1.CallAnswer) (statev1.SubmitCallResponse_Outcome, error) {
	approval, approves := a.GetAnswer().(*statev1.CallAnswer_Approval)
	_, result := a.GetAnswer().(*statev1.CallAnswer_Result)
	wants := call.GetKind() == statev1.CallKind_CALL_KIND_APPROVAL
	if approves && (!wants || approval.Approval.GetApprovalId() != call.GetApprovalId()) || result && wants {
		return 0, fault.New(fault.Invalid, "KIND_MISMATCH", "call %q waits for another kind of answer", call.GetToolCallId())
	}
	timedOut := call.GetAnswer().GetSource() == statev1.AnswerSource_ANSWER_SOURCE_TIMEOUT
	switch {
	case timedOut && call.GetConsumedAt() != 0:
		return statev1.SubmitCallResponse_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT, nil
	case call.GetAnswer() != nil && !timedOut:
		return statev1.SubmitCallResponse_OUTCOME_ALREADY_COMPLETED, nil
	case s.GetStatus() == statev1.SessionStatus_SESSION_STATUS_COMPLETED || s.GetStatus() == statev1.SessionStatus_SESSION_STATUS_FAILED:
		return 0, fault.New(fault.Conflict, "OWNER_NOT_CONTINUABLE", "session %q does not go on", s.GetSessionId())
	}
	call.Answer = proto.CloneOf(a)
	call.Answer.Source = statev1.AnswerSource_ANSWER_SOURCE_CLIENT
	return statev1.SubmitCallResponse_OUTCOME_ACCEPTED, nil
}

// goOn continues a session whose calls all have answers now. It is called with mu held.
func (s *State) goOn(owner *session, accepted bool) (statev1.SubmitCallResponse_Continuation, string) {
	open := slices.ContainsFunc(owner.calls, func(c *statev1.Call) bool { return c.GetAnswer() == nil })
	switch status := owner.GetStatus(); {
	case status == statev1.SessionStatus_SESSION_STATUS_ACTIVE:
		return statev1.SubmitCallResponse_CONTINUATION_LIVE_RUN, owner.GetCurrentRunId()
	case open || !accepted:
		return statev1.SubmitCallResponse_CONTINUATION_NOTHING, ""
	case status == statev1.SessionStatus_SESSION_STATUS_INTERRUPTED || status == statev1.SessionStatus_SESSION_STATUS_PAUSED:
		return statev1.SubmitCallResponse_CONTINUATION_CALLER_RESUMES, ""
	}
	run := s.makeRun(owner, &statev1.StartRunRequest{})
	run.Entry, run.MessageId = statev1.RunEntry_RUN_ENTRY_CONTINUATION, owner.current().GetMessageId()
	owner.answered, owner.calls = append(owner.answered, owner.calls...), nil
	owner.begin(run, &statev1.StartRunRequest{})
	return statev1.SubmitCallResponse_CONTINUATION_NEW_RUN, run.GetRunId()
}

func checkAnswer(a *statev1.CallAnswer) error {
	var size int
	most := mostError
	switch answer := a.GetAnswer().(type) {
	case *statev1.CallAnswer_Result:
		if size, most = len(answer.Result), mostResult; !json.Valid([]byte(answer.Result)) {
			return fault.New(fault.Invalid, "ANSWER_INVALID", "the result is not JSON")
		}
	case *statev1.CallAnswer_Error:
		if size = len(answer.Error); size == 0 {
			return fault.New(fault.Invalid, "ANSWER_INVALID", "the error has no text")
		}
	case *statev1.CallAnswer_Approval:
		size = len(answer.Approval.GetReason())
	default:
		return fault.New(fault.Invalid, "ANSWER_INVALID", "the answer is empty")
	}
	if size > most {
		return fault.New(fault.TooLarge, "RESULT_TOO_LARGE", "the answer has %d bytes; the limit is %d", size, most)
	}
	return nil
}

// Calls gives the calls of a session whose answers no step has taken.
func (s *State) Calls(tenant, session string) []*statev1.Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var calls []*statev1.Call
	for _, c := range s.sessions[streamKey(tenant, session)].calls {
		calls = append(calls, proto.CloneOf(c))
	}
	return calls
}
