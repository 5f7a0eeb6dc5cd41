package server

import (
	"context"

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
}

// SubmitCall implements statev1.CallServiceServer.
func (s *callService) SubmitCall(ctx context.Context, r *statev1.SubmitCallRequest) (*statev1.SubmitCallResponse, error) {
	x := s.runner.read(r)
	requested := x.key(r)
	a := x.answer(r.GetToolCallId(), r.GetAnswer())
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
		_, err := run(ctx, s.runner, onSession(x, requested, session.ExplainMissingCall{Key: requested, CallID: a.CallID}))
		return nil, err
	}
	owner, known := owners[a.CallID]
	if !known {
		return missing()
	}
	submit := session.Submit{
		Key: session.Key{Tenant: requested.Tenant, SessionID: owner}, By: x.by, CallID: a.CallID, Kind: a.Kind, ApprovalID: a.ApprovalID,
		Approves: a.Approves, Response: a.Response, NewRunID: x.ids.run(), MaxUnread: x.limits.StepBytes, Now: x.now,
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
		RunId: submitted.RunID, OwnerSessionId: owner,
	}, nil
}
