package api

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// WaitRun implements the service. It waits on the live stream, as any reader does, and reads the
// run again when the stream has ended.
func (s *Server) WaitRun(ctx context.Context, r *agentv1.WaitRunRequest) (*agentv1.WaitRunResponse, error) {
	seen, err := s.readRun(ctx, r.GetSessionId(), r.GetRunId())
	if err != nil || seen.done() || r.GetWaitMs() == 0 {
		return seen.response(), err
	}
	stream, release, err := s.Streams.Open(ctx, httpapi.ProtocolWait)
	if err != nil {
		return nil, err
	}
	defer release()
	waiting, cancel := context.WithTimeout(stream, time.Duration(r.GetWaitMs())*time.Millisecond)
	defer cancel()
	for waiting.Err() == nil && !seen.done() {
		request := follow.Request{
			Tenant:    tenantOf(ctx),
			SessionID: r.GetSessionId(),
			RunID:     seen.run.GetRunId(),
			After:     seen.session.GetSession().GetPosition(),
		}
		err := s.Follower.FollowRun(request, seen.session.GetSession(), seen.run).To(waiting, discard{})
		if err != nil && waiting.Err() == nil {
			return nil, err
		}
		if seen, err = s.readRun(ctx, r.GetSessionId(), seen.run.GetRunId()); err != nil {
			return nil, err
		}
	}
	if !seen.done() && stream.Err() != nil && ctx.Err() == nil {
		return nil, context.Cause(stream)
	}
	return seen.response(), nil
}

// seenRun is a run with its session, as read for WaitRun.
type seenRun struct {
	session *statev1.GetSessionResponse
	run     *statev1.Run // the requested one, or the newest one that continues it
}

// readRun returns the run, or the newest one that continues it. An empty id is the newest run.
// NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND).
func (s *Server) readRun(ctx context.Context, sessionID, runID string) (seenRun, error) {
	session, err := s.Sessions.SessionDetails(ctx, tenantOf(ctx), sessionID)
	if err != nil {
		return seenRun{}, err
	}
	newest := session.GetCurrentRun()
	switch {
	case runID == "" && newest == nil:
		return seenRun{}, fault.New(fault.NotFound, "RUN_NOT_FOUND", "the session has no run")
	case runID == "" || runID == newest.GetRunId():
		return seenRun{session, newest}, nil
	}
	run, err := s.run(ctx, sessionID, runID)
	if err != nil {
		return seenRun{}, err
	}
	if run.GetMessageId() == newest.GetMessageId() && run.GetTurn() < newest.GetTurn() {
		return seenRun{session, newest}, nil
	}
	run, err = s.continuation(ctx, run)
	return seenRun{session, run}, err
}

// maxContinuations limits the search for the run that continues another.
const maxContinuations = 200

// continuation returns the newest run of the run's message, which is not the message of the
// session's newest run.
func (s *Server) continuation(ctx context.Context, run *statev1.Run) (*statev1.Run, error) {
	if run.GetTurn() == 0 || conversation.Executing(run) {
		return run, nil
	}
	later, err := s.Sessions.ListRuns(
		ctx,
		&statev1.ListRunsRequest{Tenant: tenantOf(ctx), SessionId: run.GetSessionId(), Limit: maxContinuations},
	)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(later, func(other *statev1.Run) bool {
		return other.GetMessageId() == run.GetMessageId() && other.GetTurn() > run.GetTurn()
	})
	if i < 0 {
		return run, nil
	}
	return s.run(ctx, run.GetSessionId(), later[i].GetRunId()) // lists have no outputs
}

// done reports whether the run has ended or waits for a client.
func (r seenRun) done() bool {
	if conversation.Executing(r.run) || conversation.Waiting(r.run) {
		return false
	}
	return !r.isNewest() || !conversation.AwaitsSubAgents(r.session)
}

func (r seenRun) isNewest() bool {
	return r.run.GetRunId() == r.session.GetCurrentRun().GetRunId()
}

// response returns nil for the zero value.
func (r seenRun) response() *agentv1.WaitRunResponse {
	if r.run == nil {
		return nil
	}
	answer := &agentv1.WaitRunResponse{Run: runOf(r.run), Done: r.done()}
	if r.isNewest() {
		answer.PendingCalls = pendingCalls(r.session)
	}
	return answer
}

// discard is a sink for a reader waiting for the end alone.
type discard struct{}

func (discard) Frame(*frame.Frame) error { return nil }
func (discard) Flush() error             { return nil }
func (discard) Heartbeat() error         { return nil }
