package gatewaytest

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
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
	out.Session, out.Run = proto.CloneOf(found.Session), proto.CloneOf(found.current())
	for _, c := range found.calls {
		if c.GetAnswer() == nil {
			out.OpenCalls++
		}
	}
	return out, nil
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

// goBack takes the session back to a message, gives the open calls the answers of the
// request, and abandons the others. Everything is checked before anything changes.
func (s *session) goBack(r *statev1.StartRunRequest) (abandoned []string, err error) {
	back := r.GetTakeBack()
	if back != nil {
		at := s.question(back.GetMessageId())
		if at < 0 {
			return nil, fault.New(fault.NotFound, "MESSAGE_NOT_FOUND", "there is no message %q", back.GetMessageId())
		}
		if back.GetKeep() {
			at++
		}
		s.messages, s.calls, s.answered = s.messages[:at:at], nil, nil
		s.checkpoints = slices.DeleteFunc(s.checkpoints, func(c *statev1.Checkpoint) bool { return c.GetMessageCount() > int64(at) })
		stays := int32(0)
		if len(s.checkpoints) > 0 {
			stays = s.checkpoints[len(s.checkpoints)-1].GetStep()
		}
		s.takeBack(stays)
		return nil, nil
	}
	if !r.GetAbandonCalls() {
		return nil, nil
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
	return abandoned, nil
}

// question finds a message of a user, -1 for none.
func (s *session) question(id string) int {
	return slices.IndexFunc(s.messages, func(m *eventv1.Message) bool {
		return m.GetId() == id && m.GetRole() == eventv1.Role_ROLE_USER && !m.GetHidden()
	})
}

// left gives the messages that a request leaves before its own.
func (s *session) left(r *statev1.StartRunRequest) []*eventv1.Message {
	at := -1
	if back := r.GetTakeBack(); back != nil {
		if at = s.question(back.GetMessageId()); at >= 0 && back.GetKeep() {
			at++
		}
	}
	if at < 0 {
		return s.messages
	}
	return s.messages[:at]
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
