package server

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// maxRecordBytes bounds a step's record for readers.
const maxRecordBytes = 8 << 20

// checkCommit checks the request, but for the fields checked by their conversion.
func (l Limits) checkCommit(r *statev1.CommitStepRequest) error {
	if err := l.checkStepMessages(r.GetMessages()); err != nil {
		return err
	}
	if size := proto.Size(r.GetRecord()); size > maxRecordBytes {
		return invalid("RECORD_TOO_LARGE", "the record of the step has %d bytes; the limit is %d", size, maxRecordBytes)
	}
	if r.GetOutcome() != nil {
		if err := l.checkOutcome(r.GetOutcome(), true); err != nil {
			return err
		}
	}
	if err := cmp.Or(l.checkSuspension(r), l.checkCalls(r.GetCalls())); err != nil {
		return err
	}
	if n := len(r.GetSubSessions()); n > l.Calls {
		return invalid("SUB_SESSION_INVALID", "the step writes %d references to sub-sessions; the limit is %d", n, l.Calls)
	}
	for _, c := range r.GetSubSessions() {
		if err := l.checkSubSession(c); err != nil {
			return err
		}
	}
	if err := l.checkNewSubSessions(r); err != nil {
		return err
	}
	for _, c := range r.GetConsumedCalls() {
		if err := checkID("an id of consumed_calls", c.GetToolCallId()); err != nil {
			return err
		}
	}
	return checkIDs("an id of told_calls", r.GetToldCalls())
}

// checkNewSubSessions gives Invalid (SUB_SESSION_INVALID), and the faults of a start with these
// messages.
func (l Limits) checkNewSubSessions(r *statev1.CommitStepRequest) error {
	calls := map[string]bool{}
	for _, c := range r.GetCalls() {
		calls[c.GetToolCallId()] = c.GetKind() == statev1.CallKind_CALL_KIND_SUB_AGENT
	}
	for i, n := range r.GetNewSubSessions() {
		if err := cmp.Or(checkID("new_sub_sessions' session_id", n.GetSessionId()),
			checkID("new_sub_sessions' agent_type", n.GetAgentType()),
			checkOptionalID("new_sub_sessions' name", n.GetName()),
			checkMode(n.GetMode()),
			checkTimeout(n.GetTimeoutMs()),
			l.checkUserMessages(n.GetMessages(), false),
			l.checkProperties(nil, nil, n.GetCustomState())); err != nil {
			return err
		}
		if !calls[n.GetToolCallId()] {
			return invalid("SUB_SESSION_INVALID", "new_sub_sessions[%d] answers call %q, which is no call of a sub-agent in the same step, or the call of another one", i, n.GetToolCallId())
		}
		delete(calls, n.GetToolCallId())
	}
	return nil
}

// checkResult gives Invalid (ID_INVALID, RESULT_INVALID), TooLarge (RESULT_TOO_LARGE).
func (l Limits) checkResult(r *eventv1.ToolResultPart) error {
	if err := checkID("the call's id", r.GetToolCallId()); err != nil {
		return err
	}
	if size := len(r.GetResult()) + len(r.GetError()) + len(r.GetPublicError()); size > l.ResultBytes {
		return tooLarge("RESULT_TOO_LARGE", fmt.Sprintf("the result of call %q", r.GetToolCallId()), size, l.ResultBytes)
	}
	if !isJSONOrEmpty(r.GetResult()) {
		return invalid("RESULT_INVALID", "the result of call %q is not one JSON text", r.GetToolCallId())
	}
	return nil
}

func outcomeInvalid(format string, args ...any) error {
	return invalid("OUTCOME_INVALID", format, args...)
}

// checkOutcome gives Invalid (OUTCOME_INVALID).
func (l Limits) checkOutcome(o *statev1.Outcome, maySuspend bool) error {
	const maxFinishReason = 64
	status := runStatusIn[o.GetStatus()]
	suspended := session.Status(status).Suspended()
	switch {
	case suspended && !maySuspend:
		return outcomeInvalid("a suspended outcome comes with the commit of the step that leaves calls open")
	case status == session.RunFailed && o.GetFailure().GetError() == "":
		return outcomeInvalid("a failed run needs a failure with an error text")
	case !suspended && status != session.RunFailed && status != session.RunCompleted && status != session.RunInterrupted:
		return outcomeInvalid("a run cannot end as %s; valid outcomes are COMPLETED, FAILED and INTERRUPTED", o.GetStatus())
	case len(o.GetOutput()) > l.StepBytes:
		return outcomeInvalid("the output has %d bytes; the limit is %d", len(o.GetOutput()), l.StepBytes)
	case !isJSONOrEmpty(o.GetOutput()):
		return outcomeInvalid("the output is not one JSON text")
	case len(o.GetFinishReason()) > maxFinishReason:
		return outcomeInvalid("the finish_reason has %d bytes; the limit is %d: give a short reason, such as stop or length", len(o.GetFinishReason()), maxFinishReason)
	}
	for _, name := range [...]struct{ field, text string }{
		{"completion_reason", o.GetCompletionReason()}, {"failure.code", o.GetFailure().GetCode()}, {"finish_reason", o.GetFinishReason()},
	} {
		if name.text != "" && idProblem(name.text) != "" {
			return outcomeInvalid("%s %s", name.field, idProblem(name.text))
		}
	}
	return nil
}

// checkSuspension gives Invalid (OUTCOME_INVALID, ID_INVALID).
func (l Limits) checkSuspension(r *statev1.CommitStepRequest) error {
	s := r.GetSuspension()
	if s == nil {
		return nil
	}
	if !session.Status(runStatusIn[r.GetOutcome().GetStatus()]).Suspended() {
		return outcomeInvalid("a suspension needs an outcome that suspends")
	}
	return cmp.Or(checkOptionalID("suspension.step_id", s.GetStepId()),
		checkOptionalID("suspension.trace_id", s.GetTraceId()),
		checkOptionalID("suspension.root_span_id", s.GetRootSpanId()))
}

func callInvalid(format string, args ...any) error {
	return invalid("CALL_INVALID", format, args...)
}

// checkCalls gives Invalid (CALL_INVALID, ID_INVALID), TooLarge (MESSAGE_TOO_LARGE).
func (l Limits) checkCalls(calls []*statev1.Call) error {
	if len(calls) > l.Calls {
		return callInvalid("the step leaves %d calls open; the limit is %d", len(calls), l.Calls)
	}
	size := 0
	for i, c := range calls {
		if err := l.checkCall(i, c); err != nil {
			return err
		}
		size += proto.Size(c)
	}
	if size > l.StepBytes {
		return tooLarge("MESSAGE_TOO_LARGE", "the list of the step's open calls", size, l.StepBytes)
	}
	return nil
}

func (l Limits) checkCall(i int, c *statev1.Call) error {
	if err := cmp.Or(checkID("a call's id", c.GetToolCallId()),
		checkOptionalID("a call's step_id", c.GetStepId()),
		checkOptionalID("a call's approval_id", c.GetApprovalId())); err != nil {
		return err
	}
	kind, known := callKindIn[c.GetKind()]
	approvers, ruled := approversIn[c.GetApprovers()]
	switch {
	case idProblem(c.GetToolName()) != "":
		return callInvalid("the tool_name of calls[%d] %s", i, idProblem(c.GetToolName()))
	case !known:
		return callInvalid("calls[%d] is no call of a client tool, approval or sub-agent", i)
	case (kind == session.Approval) != (c.GetApprovalId() != ""):
		return callInvalid("calls[%d]: an approval has an approval_id, any other call has none", i)
	case !ruled || approvers != session.ApproversAny && kind != session.Approval:
		return callInvalid("calls[%d] has the approvers %s; give a known rule, to an approval only", i, c.GetApprovers())
	case c.GetDeadlineAt() < 0:
		return callInvalid("calls[%d] has the deadline %d; give a time, or 0 for none", i, c.GetDeadlineAt())
	case len(c.GetInput()) > l.MessageBytes:
		return tooLarge("MESSAGE_TOO_LARGE", fmt.Sprintf("the input of call %q", c.GetToolCallId()), len(c.GetInput()), l.MessageBytes)
	case !isJSONOrEmpty(c.GetInput()):
		return callInvalid("the input of calls[%d] is not one JSON text", i)
	case c.GetEntryInput() != nil:
		return l.checkMessage(c.GetEntryInput(), l.StepBytes)
	}
	return nil
}

// checkAnswer gives Invalid (ANSWER_INVALID), TooLarge (RESULT_TOO_LARGE).
func (l Limits) checkAnswer(a *statev1.CallAnswer) error {
	const reason, what = "RESULT_TOO_LARGE", "the answer"
	switch answer := a.GetAnswer().(type) {
	case *statev1.CallAnswer_Result:
		if size := len(answer.Result); size > l.ResultBytes {
			return tooLarge(reason, what, size, l.ResultBytes)
		}
		if !isJSON(answer.Result) {
			return invalid("ANSWER_INVALID", "the result is not one JSON text")
		}
	case *statev1.CallAnswer_Error:
		if size := len(answer.Error); size > l.ErrorBytes {
			return tooLarge(reason, what, size, l.ErrorBytes)
		}
		if answer.Error == "" {
			return invalid("ANSWER_INVALID", "the error has no text; say what went wrong")
		}
	case *statev1.CallAnswer_Approval:
		if p := idProblem(answer.Approval.GetApprovalId()); p != "" {
			return invalid("ANSWER_INVALID", "approval_id %s; name the approval that is answered", p)
		}
		if size := len(answer.Approval.GetReason()); size > l.ErrorBytes {
			return tooLarge(reason, what, size, l.ErrorBytes)
		}
	default:
		return invalid("ANSWER_INVALID", "the answer is empty; give a result, an error or an approval")
	}
	return nil
}

// maxLostEpoch leaves room for the claims to come.
const maxLostEpoch = 1 << 62

// lostWorkIn gives Invalid (LOST_WORK_INVALID) for what no session reaches, and after which it could not go on.
func lostWorkIn(lost *statev1.LostWork) (session.LostWork, error) {
	const reason = "LOST_WORK_INVALID"
	if err := checkRange(reason, "seen.epoch", lost.GetEpoch(), maxLostEpoch, "give an epoch that a claim has had"); err != nil {
		return session.LostWork{}, err
	}
	err := checkRange(reason, "seen.step", lost.GetStep(), position.MaxStep-1, "give a step of the session")
	return session.LostWork{Epoch: lost.GetEpoch(), Step: lost.GetStep()}, err
}
