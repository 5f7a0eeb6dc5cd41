package server

import (
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// checkResult gives TooLarge (RESULT_TOO_LARGE), Invalid (RESULT_INVALID).
func (l Limits) checkResult(r *eventv1.ToolResultPart) error {
	if err := checkID("the call's id", r.GetToolCallId()); err != nil {
		return err
	}
	if size := len(r.GetResult()) + len(r.GetError()); size > l.ResultBytes {
		return fault.New(fault.TooLarge, "RESULT_TOO_LARGE", "the result of call %q has %d bytes; the limit is %d", r.GetToolCallId(), size, l.ResultBytes)
	}
	if r.GetResult() != "" && !json.Valid([]byte(r.GetResult())) {
		return fault.New(fault.Invalid, "RESULT_INVALID", "the result of call %q is not one JSON text", r.GetToolCallId())
	}
	return nil
}

func outcomeInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "OUTCOME_INVALID", format, args...)
}

// mostFinishReason is how many bytes name why a model stopped.
const mostFinishReason = 64

// checkOutcome gives Invalid (OUTCOME_INVALID).
func (l Limits) checkOutcome(o *statev1.Outcome, maySuspend bool) error {
	bad := outcomeInvalid
	status := runStatusIn[o.GetStatus()]
	switch {
	case status == session.RunCompleted, status == session.RunInterrupted, maySuspend && session.Status(status).Suspended():
	case status == session.RunFailed:
		if o.GetFailure().GetError() == "" {
			return bad("a failed run needs a failure with an error text")
		}
	case session.Status(status).Suspended():
		return bad("a run is suspended by the step that leaves its calls open; commit that step with the outcome")
	default:
		return bad("a run cannot end as %s; COMPLETED, FAILED and INTERRUPTED are outcomes", o.GetStatus())
	}
	if len(o.GetOutput()) > l.StepBytes {
		return bad("the output has %d bytes; the limit is %d", len(o.GetOutput()), l.StepBytes)
	}
	if o.GetOutput() != "" && !json.Valid([]byte(o.GetOutput())) {
		return bad("the output is not one JSON text")
	}
	if size := len(o.GetFinishReason()); size > mostFinishReason {
		return bad("the finish_reason has %d bytes; the limit is %d: name why the model stopped, as stop or length", size, mostFinishReason)
	}
	for field, text := range map[string]string{
		"completion_reason": o.GetCompletionReason(), "failure.code": o.GetFailure().GetCode(), "finish_reason": o.GetFinishReason(),
	} {
		if text != "" && problem(text) != "" {
			return bad("%s %s", field, problem(text))
		}
	}
	return nil
}

// checkSuspension gives Invalid (OUTCOME_INVALID, ID_INVALID, STATUS_INVALID).
func (l Limits) checkSuspension(r *statev1.CommitStepRequest) error {
	s := r.GetSuspension()
	if s == nil {
		return nil
	}
	if !session.Status(runStatusIn[r.GetOutcome().GetStatus()]).Suspended() {
		return outcomeInvalid("a suspension comes with an outcome that suspends")
	}
	if len(s.GetAwaitingChildren()) > l.Calls {
		return outcomeInvalid("the session waits for %d sub-sessions; the limit is %d", len(s.GetAwaitingChildren()), l.Calls)
	}
	for id, wait := range s.GetAwaitingChildren() {
		if err := checkID("an awaited sub-session's id", id); err != nil {
			return err
		}
		if err := checkOptionalID("an awaited sub-session's call", wait.GetToolCallId()); err != nil {
			return err
		}
	}
	return checkOptionalIDs(map[string]string{
		"suspension.step_id": s.GetStepId(), "suspension.trace_id": s.GetTraceId(), "suspension.root_span_id": s.GetRootSpanId(),
	})
}

func callInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "CALL_INVALID", format, args...)
}

// checkCalls gives Invalid (CALL_INVALID, ID_INVALID) and TooLarge
// (MESSAGE_TOO_LARGE).
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
		return fault.New(fault.TooLarge, "MESSAGE_TOO_LARGE", "the open calls of the step have %d bytes together; the limit is %d", size, l.StepBytes)
	}
	return nil
}

func (l Limits) checkCall(i int, c *statev1.Call) error {
	if err := checkID("a call's id", c.GetToolCallId()); err != nil {
		return err
	}
	if err := checkOptionalIDs(map[string]string{"a call's step_id": c.GetStepId(), "a call's approval_id": c.GetApprovalId()}); err != nil {
		return err
	}
	kind, known := callKindIn[c.GetKind()]
	switch {
	case problem(c.GetToolName()) != "":
		return callInvalid("the tool_name of calls[%d] %s", i, problem(c.GetToolName()))
	case !known:
		return callInvalid("calls[%d] is neither a client tool's nor an approval", i)
	case (kind == session.Approval) != (c.GetApprovalId() != ""):
		return callInvalid("calls[%d]: an approval has an approval_id, a client tool's call has none", i)
	case c.GetDeadlineAt() < 0:
		return callInvalid("calls[%d] has the deadline %d; give a time, or 0 for none", i, c.GetDeadlineAt())
	case len(c.GetInput()) > l.MessageBytes:
		return fault.New(fault.TooLarge, "MESSAGE_TOO_LARGE", "the input of call %q has %d bytes; the limit is %d", c.GetToolCallId(), len(c.GetInput()), l.MessageBytes)
	case c.GetInput() != "" && !json.Valid([]byte(c.GetInput())):
		return callInvalid("the input of calls[%d] is not one JSON text", i)
	case c.GetEntryInput() != nil:
		return l.checkMessage(c.GetEntryInput(), l.StepBytes)
	}
	return nil
}

// checkOps gives TooLarge (STATE_SIZE_EXCEEDED) for writes that are too large to
// be kept until their step commits.
func (l Limits) checkOps(ops []session.StateOp) error {
	if size := opBytes(ops); size > l.StagedBytes {
		return session.StateTooLarge(size, l.StagedBytes, ops)
	}
	return nil
}

// checkAnswer gives Invalid (ANSWER_INVALID), TooLarge (RESULT_TOO_LARGE).
func (l Limits) checkAnswer(a *statev1.CallAnswer) error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "ANSWER_INVALID", format, args...)
	}
	large := func(size, limit int) error {
		return fault.New(fault.TooLarge, "RESULT_TOO_LARGE", "the answer has %d bytes; the limit is %d", size, limit)
	}
	switch answer := a.GetAnswer().(type) {
	case *statev1.CallAnswer_Result:
		if len(answer.Result) > l.ResultBytes {
			return large(len(answer.Result), l.ResultBytes)
		}
		if !json.Valid([]byte(answer.Result)) {
			return bad("the result is not one JSON text")
		}
	case *statev1.CallAnswer_Error:
		if len(answer.Error) > l.ErrorBytes {
			return large(len(answer.Error), l.ErrorBytes)
		}
		if answer.Error == "" {
			return bad("the error has no text; say what went wrong")
		}
	case *statev1.CallAnswer_Approval:
		if p := problem(answer.Approval.GetApprovalId()); p != "" {
			return bad("approval_id %s; name the approval that is answered", p)
		}
		if size := len(answer.Approval.GetReason()); size > l.ErrorBytes {
			return large(size, l.ErrorBytes)
		}
	default:
		return bad("the answer is empty; give a result, an error or an approval")
	}
	return nil
}
