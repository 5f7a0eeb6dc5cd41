package server

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var submitOutcomes = map[session.SubmitStatus]statev1.SubmitCallResponse_Outcome{
	session.Accepted:         statev1.SubmitCallResponse_OUTCOME_ACCEPTED,
	session.AlreadyCompleted: statev1.SubmitCallResponse_OUTCOME_ALREADY_COMPLETED,
	session.LateAnswer:       statev1.SubmitCallResponse_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT,
}

var continuations = map[session.Continuation]statev1.SubmitCallResponse_Continuation{
	session.NoContinuation:  statev1.SubmitCallResponse_CONTINUATION_NOTHING,
	session.ContinueNewRun:  statev1.SubmitCallResponse_CONTINUATION_NEW_RUN,
	session.ContinueLiveRun: statev1.SubmitCallResponse_CONTINUATION_LIVE_RUN,
	session.CallerResumes:   statev1.SubmitCallResponse_CONTINUATION_CALLER_RESUMES,
}

// callService implements statev1.CallServiceServer.
type callService struct {
	statev1.UnimplementedCallServiceServer
	store  store.Reader
	lister store.Lister
	runner *runner
	limits Limits
	clock  clock
	ids    ids
}

// SubmitCall implements statev1.CallServiceServer.
func (s *callService) SubmitCall(ctx context.Context, r *statev1.SubmitCallRequest) (*statev1.SubmitCallResponse, error) {
	command, err := s.newSubmit(r)
	if err != nil {
		return nil, err
	}
	requested := command.Key
	owners, err := s.store.Owners(ctx, requested, []string{command.CallID})
	if err != nil {
		return nil, err
	}
	owner, known := owners[command.CallID]
	if !known {
		return nil, s.missingCall(ctx, r, requested, command.CallID)
	}
	command.SessionID = owner
	target := session.Target{Key: command.Key, Need: command.Need()} // the call decides about the caller
	submitted, err := spreadAndHandOver(ctx, s.runner.by(r.GetCaller()), target, proto.Size(r), command.Now, alone(limitUnread(s.limits, command.Decide)))
	switch fault.ReasonOf(err) {
	case "SESSION_NOT_FOUND", "UNKNOWN_TOOL_CALL": // deleted meanwhile, alone or with its session
		return nil, s.missingCall(ctx, r, requested, command.CallID)
	}
	if err != nil {
		return nil, err
	}
	return &statev1.SubmitCallResponse{
		Outcome: submitOutcomes[submitted.Status], Continuation: continuations[submitted.Continuation],
		RunId: submitted.RunID, OwnerSessionId: command.SessionID,
	}, nil
}

// missingCall returns the fault for a call unknown to the family of the session.
func (s *callService) missingCall(ctx context.Context, r *statev1.SubmitCallRequest, requested session.Key, callID string) error {
	command := session.ExplainMissingCall{Key: requested, CallID: callID}
	_, err := update(ctx, s.runner, targetOf(r, requested, command.Need()), 0, command.Decide)
	return err
}

// newSubmit checks the request and returns its command, for the session of the request.
func (s *callService) newSubmit(r *statev1.SubmitCallRequest) (session.Submit, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return session.Submit{}, err
	}
	if err := checkCaller(r.GetCaller()); err != nil {
		return session.Submit{}, err
	}
	a, err := s.limits.answerIn(r.GetToolCallId(), r.GetAnswer())
	return session.Submit{
		Key: key, By: callerIn(r.GetCaller()), CallID: a.CallID, Kind: a.Kind, ApprovalID: a.ApprovalID, Approves: a.Approves, Response: a.Response, NewRunID: s.ids.run(), Now: s.clock.millis(),
	}, err
}

// answerIn checks the answer to a call, and converts it. Invalid (ID_INVALID), and the faults
// of checkAnswer.
func (l Limits) answerIn(callID string, given *statev1.CallAnswer) (session.Answer, error) {
	if err := checkID("tool_call_id", callID); err != nil {
		return session.Answer{}, err
	}
	a := session.Answer{CallID: callID}
	switch answer := given.GetAnswer().(type) {
	case *statev1.CallAnswer_Result:
		a.Kind = session.ClientTool
	case *statev1.CallAnswer_Approval:
		a.Kind, a.ApprovalID, a.Approves = session.Approval, answer.Approval.GetApprovalId(), answer.Approval.GetApproved()
	}
	if err := l.checkAnswer(given); err != nil {
		return a, err
	}
	var err error
	a.Response, err = encodeAnswer(given, statev1.AnswerSource_ANSWER_SOURCE_CLIENT)
	return a, err
}

// limitUnread adapts a command with answers: it refuses them if the session's unread answers
// would be too large together, because one claim carries them all. TooLarge (RESULT_TOO_LARGE).
func limitUnread[A any](l Limits, decide func(*session.View) (*session.Change, A, error)) func(*session.View) (*session.Change, A, error) {
	return func(v *session.View) (*session.Change, A, error) {
		change, answer, err := decide(v)
		if err == nil {
			err = l.checkUnread(v, change)
		}
		if err != nil {
			change = nil
		}
		return change, answer, err
	}
}

// checkUnread gives TooLarge (RESULT_TOO_LARGE) for a change with answers if the session's
// unread ones would be too large together.
func (l Limits) checkUnread(v *session.View, change *session.Change) error {
	if change == nil || len(change.Calls) == 0 || v.Session == nil {
		return nil
	}
	if size := change.UnreadBytes(v); size > l.StepBytes {
		return fault.New(fault.TooLarge, "RESULT_TOO_LARGE",
			"the answers that session %q waits to read would have %d bytes together; the limit is %d: answer with an error, or with a reference to the result",
			v.Session.SessionID, size, l.StepBytes).WithSizes(int64(size), int64(l.StepBytes))
	}
	return nil
}
