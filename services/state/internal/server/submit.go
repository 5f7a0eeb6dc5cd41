package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
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
	store     store.Reader
	lister    store.Lister
	runner    *runner
	callbacks grant.CallbackKeys
	now       func() time.Time
}

// SubmitCall implements statev1.CallServiceServer.
func (s *callService) SubmitCall(ctx context.Context, r *statev1.SubmitCallRequest) (*statev1.SubmitCallResponse, error) {
	x := s.runner.read(r)
	requested := x.key(r)
	a := x.answer(r.GetToolCallId(), r.GetAnswer())
	var token grant.Callback
	if r.GetCallbackToken() != "" {
		var err error
		if token, err = s.verify(r); err != nil {
			return nil, err // before anything else is said about the request
		}
	}
	x.fail(a.Refusal)
	if x.err != nil {
		return nil, x.err
	}
	owners, err := s.store.Owners(ctx, requested, []string{a.CallID})
	if err != nil {
		return nil, err
	}
	// The call is unknown to the family of the session, or was deleted meanwhile, alone or with its session.
	missing := func() (*statev1.SubmitCallResponse, error) {
		_, err := run(ctx, s.runner, onSession(x, requested, session.ExplainMissingCall{
			Key: requested, CallID: a.CallID, OfRun: token.Run, IsLater: isLater,
		}))
		return nil, err
	}
	owner, known := owners[a.CallID]
	if !known {
		return missing()
	}
	submit := session.Submit{
		Key: session.Key{Tenant: requested.Tenant, SessionID: owner}, By: x.by, CallID: a.CallID, Kind: a.Kind, ApprovalID: a.ApprovalID,
		Approves: a.Approves, Callback: token.Run != "" || r.GetOperates(), OfRun: token.Run, Response: a.Response,
		NewRunID: x.ids.run(), MaxUnread: x.limits.StepBytes, Now: x.now,
	}
	command := onFamily(x, submit.Key, submit)
	command.HandsOver = true
	command.Targets[0].Owner = "" // the call decides about the caller
	submitted, err := run(ctx, s.runner, command)
	switch fault.ReasonOf(err) {
	case "SESSION_NOT_FOUND", "UNKNOWN_TOOL_CALL":
		return missing()
	}
	if err != nil {
		return nil, err
	}
	return &statev1.SubmitCallResponse{
		Outcome: submitOutcomes[submitted.Status], Continuation: continuations[submitted.Continuation],
		RunId: submitted.RunID, OwnerSessionId: owner, Repeated: submitted.Repeated,
	}, nil
}

// verify returns the content of the request's token. NotFound (CALLBACK_UNKNOWN): it is not of this service, or of another
// call. Conflict (CALLBACK_EXPIRED).
func (s *callService) verify(r *statev1.SubmitCallRequest) (grant.Callback, error) {
	token, err := s.callbacks.Verify(r.GetCallbackToken(), s.now())
	ofCall := token.Tenant == r.GetTenant() && token.Session == r.GetSessionId() && token.Call == r.GetToolCallId() && token.Run != ""
	if err == nil && !ofCall {
		return token, fault.New(fault.NotFound, "CALLBACK_UNKNOWN", "the token is of another call")
	}
	return token, err
}

// isLater reports whether a recorded result only says that the result comes by callback.
func isLater(body []byte) bool {
	part := &eventv1.ToolResultPart{}
	return proto.Unmarshal(body, part) == nil && part.GetLaterUntil() > 0
}
