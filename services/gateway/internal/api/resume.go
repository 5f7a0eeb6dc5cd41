package api

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
)

// modeFields are the fields of a Resume mode beside those of all modes.
type modeFields struct{ message, checkpoint, branch bool }

var modes = map[agentv1.ResumeMode]modeFields{
	agentv1.ResumeMode_RESUME_MODE_CONTINUE:        {},
	agentv1.ResumeMode_RESUME_MODE_WITH_MESSAGE:    {message: true},
	agentv1.ResumeMode_RESUME_MODE_RETRY:           {},
	agentv1.ResumeMode_RESUME_MODE_BRANCH:          {message: true, checkpoint: true, branch: true},
	agentv1.ResumeMode_RESUME_MODE_FROM_CHECKPOINT: {message: true, checkpoint: true},
}

// Resume implements the service.
func (s *Server) Resume(ctx context.Context, r *agentv1.ResumeRequest) (*agentv1.ResumeResponse, error) {
	mode := modeOf(r)
	if err := checkMode(mode, r); err != nil {
		return nil, err
	}
	start, err := s.resumeRequest(ctx, mode, r)
	if err != nil {
		return nil, err
	}
	started, err := ask(ctx, s, s.Runs.StartRun, start)
	if err != nil {
		return nil, err
	}
	run := started.GetRun()
	return &agentv1.ResumeResponse{
		SessionId: run.GetSessionId(), RunId: run.GetRunId(), StreamId: run.GetSessionId(),
		StartSequence: run.GetStartPosition(), Repeated: started.GetRepeated(),
	}, nil
}

func modeOf(r *agentv1.ResumeRequest) agentv1.ResumeMode {
	switch {
	case r.GetMode() != agentv1.ResumeMode_RESUME_MODE_UNSPECIFIED:
		return r.GetMode()
	case r.GetMessage() != "":
		return agentv1.ResumeMode_RESUME_MODE_WITH_MESSAGE
	default:
		return agentv1.ResumeMode_RESUME_MODE_CONTINUE
	}
}

// checkMode refuses fields of other modes, and missing fields of this mode. Invalid
// (RESUME_INVALID).
func checkMode(mode agentv1.ResumeMode, r *agentv1.ResumeRequest) error {
	has, known := modes[mode]
	name := strings.ToLower(strings.TrimPrefix(mode.String(), "RESUME_MODE_"))
	invalid := func(what string) error {
		return fault.New(fault.Invalid, "RESUME_INVALID", "the mode %s %s", name, what)
	}
	switch {
	case !known:
		return fault.New(fault.Invalid, "RESUME_INVALID", "there is no mode %d", mode)
	case r.GetMessage() != "" && !has.message:
		return invalid("has no message; use with_message, branch or from_checkpoint")
	case r.GetMessage() == "" && mode == agentv1.ResumeMode_RESUME_MODE_WITH_MESSAGE:
		return invalid("needs a message")
	case r.GetCheckpointId() != "" && !has.checkpoint:
		return invalid("has no checkpoint_id; use branch or from_checkpoint")
	case r.GetCheckpointId() == "" && has.checkpoint:
		return invalid("needs a checkpoint_id")
	case r.GetNewSessionId() != "" && !has.branch:
		return invalid("has no new_session_id; use branch")
	}
	return nil
}

// resumeRequest makes the request for a run. It has a request key, so it is safe to repeat. Invalid
// (STATE_INVALID).
func (s *Server) resumeRequest(ctx context.Context, mode agentv1.ResumeMode, r *agentv1.ResumeRequest) (*statev1.StartRunRequest, error) {
	start := &statev1.StartRunRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), RequestKey: r.GetRequestKey(), TimeoutMs: r.GetTimeoutMs(),
	}
	if start.RequestKey == "" {
		start.RequestKey = s.NewID()
	}
	start.Messages = userMessage(r.GetMessage())
	start.Traceparent, start.Tracestate = telemetry.Traceparent(ctx)
	ops, err := stateOps(r.GetModifyState())
	if err != nil {
		return nil, err
	}
	messages, err := inputMessages(ctx, s.Files, r.GetAppendMessages())
	if err != nil {
		return nil, err
	}
	rows, err := contextMessages(r.GetContext())
	if err != nil {
		return nil, err
	}
	messages = append(messages, rows...)
	switch mode {
	case agentv1.ResumeMode_RESUME_MODE_RETRY:
		start.Intent = &statev1.StartRunRequest_Retry{Retry: &statev1.Retry{AppendMessages: messages, StateOps: ops}}
	case agentv1.ResumeMode_RESUME_MODE_BRANCH:
		start.SessionId = r.GetNewSessionId()
		start.Intent = &statev1.StartRunRequest_Branch{Branch: &statev1.Branch{
			FromSessionId: r.GetSessionId(), CheckpointId: r.GetCheckpointId(), AppendMessages: messages, StateOps: ops,
		}}
	default: // of these, only from_checkpoint has a checkpoint
		start.Intent = &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{
			CheckpointId: r.GetCheckpointId(), AppendMessages: messages, StateOps: ops,
		}}
	}
	return start, nil
}

// stateOps returns a write for each member of a JSON object, in order; null deletes a key. Invalid
// (STATE_INVALID).
func stateOps(text string) ([]*statev1.StateOp, error) {
	if text == "" {
		return nil, nil
	}
	if !json.Valid([]byte(text)) || strings.TrimLeft(text, " \t\r\n")[0] != '{' {
		return nil, fault.New(fault.Invalid, "STATE_INVALID", "modify_state must be a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	_, err := d.Token()
	var ops []*statev1.StateOp
	for err == nil && d.More() {
		var key json.Token
		var value json.RawMessage
		if key, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		name, _ := key.(string)
		ops = append(ops, stateOp(name, string(value)))
	}
	return ops, err
}

func stateOp(key, value string) *statev1.StateOp {
	if value == "null" {
		return &statev1.StateOp{Key: key, Op: &statev1.StateOp_Delete{Delete: true}}
	}
	return &statev1.StateOp{Key: key, Op: &statev1.StateOp_Replace{Replace: value}}
}

// CanResume implements the service.
func (s *Server) CanResume(ctx context.Context, r *agentv1.CanResumeRequest) (*agentv1.CanResumeResponse, error) {
	got, err := s.Sessions.SessionDetails(ctx, tenantOf(ctx), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	reason := unresumable(got)
	return &agentv1.CanResumeResponse{
		CanResume: reason == "", Reason: reason, Status: conversation.SessionStatus(got.GetSession().GetStatus()),
	}, nil
}

// codeCancelled is the failure code of an aborted run.
const codeCancelled = "framework_cancelled"

// aborted reports whether a client has aborted the session. A session that ended with its parent
// was not aborted.
func aborted(f *statev1.Failure) bool {
	return f.GetCode() == codeCancelled && f.GetFailureReason() == ""
}

// unresumable returns the reason why a session cannot be resumed; "" if it can.
func unresumable(got *statev1.GetSessionResponse) string {
	switch got.GetSession().GetStatus() {
	case statev1.SessionStatus_SESSION_STATUS_ACTIVE:
		return "active"
	case statev1.SessionStatus_SESSION_STATUS_COMPLETED:
		return "completed"
	case statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL,
		statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL,
		statev1.SessionStatus_SESSION_STATUS_SUSPENDED_AWAITING_CHILDREN:
		return awaitedReason(got)
	case statev1.SessionStatus_SESSION_STATUS_FAILED:
		if aborted(got.GetSession().GetFailure()) {
			return "aborted"
		}
		return ""
	default:
		return ""
	}
}

// awaitedReason returns the reason for the wait of a suspended session: its own open calls, then
// its children.
func awaitedReason(got *statev1.GetSessionResponse) string {
	reason := ""
	for _, call := range got.GetCalls() {
		switch {
		case call.GetSessionId() != got.GetSession().GetSessionId() || call.GetRunId() == "" || call.GetAnswer() != nil:
		case call.GetKind() == statev1.CallKind_CALL_KIND_SUB_AGENT:
			reason = "awaiting_children"
		default:
			return "awaiting_answers"
		}
	}
	return reason
}
