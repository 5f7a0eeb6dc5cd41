package gatewaytest

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// mostAnswers is how many answers one request may bring.
const mostAnswers = 1000

var bulkOutcomes = map[statev1.SubmitCallResponse_Outcome]statev1.SubmittedCall_Outcome{
	statev1.SubmitCallResponse_OUTCOME_ACCEPTED:                  statev1.SubmittedCall_OUTCOME_ACCEPTED,
	statev1.SubmitCallResponse_OUTCOME_ALREADY_COMPLETED:         statev1.SubmittedCall_OUTCOME_ALREADY_COMPLETED,
	statev1.SubmitCallResponse_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT: statev1.SubmittedCall_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT,
}

// SubmitCalls implements the service.
func (s *State) SubmitCalls(_ context.Context, r *statev1.SubmitCallsRequest) (*statev1.SubmitCallsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if fault.ReasonOf(err) == "SESSION_NOT_FOUND" && r.GetSeenRunId() != "" {
		err = stale(r.GetSessionId())
	}
	if err == nil {
		err = found.seen(r.GetSeenRunId())
	}
	if err != nil {
		return nil, err
	}
	s.submits = append(s.submits, r)
	if len(r.GetAnswers()) > mostAnswers {
		return nil, fault.New(fault.Invalid, "TOO_MANY_ANSWERS", "%d answers", len(r.GetAnswers()))
	}
	for _, a := range r.GetAnswers() {
		if err := checkAnswer(a.GetAnswer()); err != nil {
			return nil, err
		}
		if _, call := s.call(r.GetTenant(), r.GetSessionId(), a.GetToolCallId()); call != nil && call.GetAnswer() == nil {
			if err := fits(call, a.GetAnswer()); err != nil {
				return nil, err
			}
		}
	}
	out := &statev1.SubmitCallsResponse{}
	accepted := map[*session]bool{}
	for _, a := range r.GetAnswers() {
		told := &statev1.SubmittedCall{ToolCallId: a.GetToolCallId(), Outcome: statev1.SubmittedCall_OUTCOME_UNKNOWN_TOOL_CALL}
		out.Calls = append(out.Calls, told)
		owner, call := s.call(r.GetTenant(), r.GetSessionId(), a.GetToolCallId())
		if call == nil {
			continue
		}
		told.OwnerSessionId, told.RunId = owner.GetSessionId(), call.GetRunId()
		outcome, err := owner.take(call, a.GetAnswer())
		switch {
		case fault.ReasonOf(err) == "OWNER_NOT_CONTINUABLE":
			told.Outcome = statev1.SubmittedCall_OUTCOME_OWNER_NOT_CONTINUABLE
		case err != nil: // of the wrong kind, and answered
			told.Outcome = statev1.SubmittedCall_OUTCOME_ALREADY_COMPLETED
		default:
			told.Outcome = bulkOutcomes[outcome]
			accepted[owner] = accepted[owner] || told.GetOutcome() == statev1.SubmittedCall_OUTCOME_ACCEPTED
		}
	}
	for owner, any := range accepted {
		if any {
			s.goOn(owner, true)
		}
	}
	s.resume(found, r, out.GetCalls())
	out.Session, out.Run = proto.CloneOf(found.Session), proto.CloneOf(found.current())
	for _, c := range found.calls {
		if c.GetAnswer() == nil {
			out.OpenCalls++
		}
	}
	return out, nil
}

// resume begins the run that goes on behind one that was stopped, where the answers to the
// calls let it. It is called with mu held.
func (s *State) resume(found *session, r *statev1.SubmitCallsRequest, calls []*statev1.SubmittedCall) {
	status, newest := found.GetStatus(), found.current()
	if status != statev1.SessionStatus_SESSION_STATUS_INTERRUPTED && status != statev1.SessionStatus_SESSION_STATUS_PAUSED {
		return
	}
	open := slices.ContainsFunc(found.calls, func(c *statev1.Call) bool { return c.GetAnswer() == nil })
	asked := slices.ContainsFunc(calls, func(c *statev1.SubmittedCall) bool {
		return c.GetOwnerSessionId() == found.GetSessionId() && c.GetRunId() == newest.GetRunId()
	})
	answered := slices.ContainsFunc(found.calls, func(c *statev1.Call) bool { return c.GetConsumedAt() == 0 && found.wrote(c.GetRunId()) })
	if !open && (asked && r.GetGoOn() != statev1.GoOn_GO_ON_UNSPECIFIED || answered && r.GetGoOn() == statev1.GoOn_GO_ON_ANSWERED) {
		s.newRun(found, &statev1.StartRunRequest{
			Traceparent: r.GetTraceparent(), Intent: &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{}},
		})
	}
}

func fits(call *statev1.Call, a *statev1.CallAnswer) error {
	approval, approves := a.GetAnswer().(*statev1.CallAnswer_Approval)
	_, result := a.GetAnswer().(*statev1.CallAnswer_Result)
	wants := call.GetKind() == statev1.CallKind_CALL_KIND_APPROVAL
	if approves && (!wants || approval.Approval.GetApprovalId() != call.GetApprovalId()) || result && wants {
		return fault.New(fault.Invalid, "KIND_MISMATCH", "call %q waits for another kind of answer", call.GetToolCallId())
	}
	return nil
}

// Submits gives the SubmitCalls requests so far.
func (s *State) Submits() []*statev1.SubmitCallsRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.submits)
}

// goBack leaves the first messages, where keep is not below 0. Otherwise it goes back to the
// checkpoint of a request to resume, gives the open calls the answers of the request, and
// abandons the others.
func (s *session) goBack(r *statev1.StartRunRequest, keep int) (abandoned []string) {
	s.rewind(r.GetResume().GetCheckpointId())
	if keep >= 0 {
		s.messages, s.calls, s.answered = s.messages[:keep:keep], nil, nil
		s.checkpoints = slices.DeleteFunc(s.checkpoints, func(c *statev1.Checkpoint) bool { return c.GetMessageCount() > int64(keep) })
		stays := int32(0)
		if len(s.checkpoints) > 0 {
			stays = s.checkpoints[len(s.checkpoints)-1].GetStep()
		}
		s.takeBack(stays)
		return nil
	}
	if !r.GetAbandonCalls() {
		return nil
	}
	given := map[string]*statev1.CallAnswer{}
	for _, a := range r.GetAnswers() {
		if given[a.GetToolCallId()] == nil {
			given[a.GetToolCallId()] = a.GetAnswer()
		}
	}
	for _, c := range s.calls {
		switch a := given[c.GetToolCallId()]; {
		case c.GetAnswer() != nil:
		case a != nil && fits(c, a) == nil && checkAnswer(a) == nil:
			c.Answer = proto.CloneOf(a)
			c.Answer.Source = statev1.AnswerSource_ANSWER_SOURCE_CLIENT
		default:
			c.Answer = &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "client_tool_abandoned"}, Source: statev1.AnswerSource_ANSWER_SOURCE_ABANDONED}
			abandoned = append(abandoned, c.GetToolCallId())
		}
	}
	s.answered, s.calls = append(s.answered, s.calls...), nil
	return abandoned
}

// Timeout gives the open calls of a session the answer that their time is over.
func (r *Run) Timeout() *Run {
	r.world.State.change(r.tenant, r.Run, func(s *session, _ *statev1.Run) {
		for _, c := range s.calls {
			if c.GetAnswer() == nil {
				c.Answer = &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "client_tool_timeout"}, Source: statev1.AnswerSource_ANSWER_SOURCE_TIMEOUT}
				c.ConsumedAt = 1
			}
		}
		s.answered = append(s.answered, s.calls...)
	})
	return r.Continue()
}
