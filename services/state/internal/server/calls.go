package server

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var submitOutcomes = map[session.SubmitStatus]statev1.SubmitCallResponse_Outcome{
	session.Accepted:         statev1.SubmitCallResponse_OUTCOME_ACCEPTED,
	session.AlreadyCompleted: statev1.SubmitCallResponse_OUTCOME_ALREADY_COMPLETED,
	session.LateAnswer:       statev1.SubmitCallResponse_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT,
}

var continuations = map[session.Continuation]statev1.SubmitCallResponse_Continuation{
	session.NoContinuation: statev1.SubmitCallResponse_CONTINUATION_NOTHING,
	session.NewRun:         statev1.SubmitCallResponse_CONTINUATION_NEW_RUN,
	session.LiveRun:        statev1.SubmitCallResponse_CONTINUATION_LIVE_RUN,
}

// SubmitCall implements statev1.CallServiceServer.
func (s *Server) SubmitCall(ctx context.Context, r *statev1.SubmitCallRequest) (*statev1.SubmitCallResponse, error) {
	command, err := s.submit(r)
	if err != nil {
		return nil, err
	}
	if command.Key, err = s.store.Owner(ctx, command.Key, command.CallID); err != nil {
		return nil, err
	}
	target := session.Target{Key: command.Key, Need: command.Need()}
	submitted, err := spread(ctx, s, target, proto.Size(r), command.Now, alone(s.bounded(command)))
	if fault.ReasonOf(err) == "SESSION_NOT_FOUND" {
		return nil, session.NoCall(command.CallID) // it went away with its session
	}
	if err != nil {
		return nil, err
	}
	return &statev1.SubmitCallResponse{
		Outcome: submitOutcomes[submitted.Status], Continuation: continuations[submitted.Continuation],
		RunId: submitted.RunID, OwnerSessionId: command.SessionID,
	}, nil
}

// submit checks the request and makes the command of it, for the session that
// the request names.
func (s *Server) submit(r *statev1.SubmitCallRequest) (session.Submit, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return session.Submit{}, err
	}
	if err := checkID("tool_call_id", r.GetToolCallId()); err != nil {
		return session.Submit{}, err
	}
	if err := s.config.Limits.checkAnswer(r.GetAnswer()); err != nil {
		return session.Submit{}, err
	}
	command := session.Submit{Key: key, CallID: r.GetToolCallId(), NewRunID: s.newRunID(), Now: s.millis()}
	switch answer := r.GetAnswer().GetAnswer().(type) {
	case *statev1.CallAnswer_Result:
		command.Kind = session.ClientTool
	case *statev1.CallAnswer_Approval:
		command.Kind, command.ApprovalID = session.Approval, answer.Approval.GetApprovalId()
	}
	command.Response, err = respond(r.GetAnswer(), statev1.AnswerSource_ANSWER_SOURCE_CLIENT)
	return command, err
}

// bounded is the command with a bound on the answers that wait together: whoever
// continues the session is handed all of them at once.
func (s *Server) bounded(command session.Submit) func(*session.View) (*session.Change, session.Submitted, error) {
	return func(v *session.View) (*session.Change, session.Submitted, error) {
		change, submitted, err := command.Decide(v)
		if err != nil || change == nil {
			return nil, submitted, err
		}
		size := len(command.Response)
		for _, call := range v.Calls {
			size += len(call.Response) + len(call.Late)
		}
		if most := s.config.Limits.StepBytes; size > most {
			return nil, submitted, fault.New(fault.TooLarge, "RESULT_TOO_LARGE",
				"the answers that session %q waits to read would have %d bytes together; the limit is %d", command.SessionID, size, most)
		}
		return change, submitted, nil
	}
}
