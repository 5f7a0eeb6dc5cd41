package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// keyedRuns is how many of the newest runs a repetition of a retry is looked for among.
const keyedRuns = 50

// Codes of failures by which it matters how a run may go on.
const (
	codeCancelled = "framework_cancelled" // it was aborted
	codeMaxSteps  = "framework_max_steps"
)

// aborted reports whether somebody has ended for good what failed so. What ended with its
// parent was not.
func aborted(f *statev1.Failure) bool {
	return f.GetCode() == codeCancelled && f.GetFailureReason() == ""
}

// retry begins again behind the last good step of a run that has failed. A run without
// one is begun again where it stands, since the checkpoints before it do not have the
// messages that it is about. So is one whose last step stays, see stays. One that was
// aborted is over: Conflict (RUN_CANCELLED).
//
// What a repetition finds is not what the first request found, so the run that the key
// began is looked for first.
func (s *Server) retry(ctx context.Context, start *statev1.StartRunRequest, key string) (*agentv1.ResumeResponse, error) {
	session, failed, err := s.Sessions.Session(ctx, start.GetTenant(), start.GetSessionId())
	if err != nil {
		return nil, err
	}
	var since []*statev1.Run
	if key != "" {
		if since, failed, err = s.keyed(ctx, start, key, failed); err != nil {
			return nil, err
		}
	}
	if aborted(failed.GetFailure()) {
		return nil, fault.New(fault.Conflict, "RUN_CANCELLED",
			"run %q was aborted, and is not tried again; start a run with a message", failed.GetRunId())
	}
	start.Expect = &statev1.Expectation{
		Statuses: []statev1.SessionStatus{statev1.SessionStatus_SESSION_STATUS_FAILED}, CurrentRunId: &session.CurrentRunId,
	}
	if start.RewindTo, err = s.lastGood(ctx, start, failed, since); err != nil {
		return nil, err
	}
	return s.resume(ctx, start)
}

// keyed looks for the run that the key has begun. When there is one, it gives the run and
// those behind it, and the run that had failed before it, so that the same request is made
// again, and the state service says whether it is a repetition. Otherwise it gives failed.
func (s *Server) keyed(ctx context.Context, start *statev1.StartRunRequest, key string, failed *statev1.Run) ([]*statev1.Run, *statev1.Run, error) {
	list := &statev1.ListRunsRequest{Tenant: start.GetTenant(), SessionId: start.GetSessionId(), Limit: keyedRuns}
	runs, err := s.Sessions.ListRuns(ctx, list)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(runs, func(run *statev1.Run) bool { return run.GetRequestKey() == key })
	if i < 0 {
		return nil, failed, nil
	}
	list.BeforeTurn = runs[i].GetTurn()
	older, err := s.Sessions.ListRuns(ctx, list)
	if err != nil {
		return nil, nil, err
	}
	for _, run := range older {
		if run.GetStatus() == statev1.RunStatus_RUN_STATUS_FAILED {
			return runs[:i+1], run, nil
		}
	}
	return runs[:i+1], nil, nil
}

// checkpointPage is how many checkpoints are asked for at once.
const checkpointPage = 100

// lastGood gives the newest checkpoint of the run that is not that of its failure, ""
// when it has none, or when its last step stays. Only the last step of a run can have
// failed. The checkpoints of the runs since then are passed over.
func (s *Server) lastGood(ctx context.Context, start *statev1.StartRunRequest, failed *statev1.Run, since []*statev1.Run) (string, error) {
	if failed.GetFailure().GetCode() == codeMaxSteps {
		return "", nil // the step is good: it was the last that was allowed
	}
	run, end := failed.GetRunId(), int64(0) // of the messages of the failed step
	list := &statev1.ListCheckpointsRequest{Tenant: start.GetTenant(), SessionId: start.GetSessionId(), Limit: 2}
	if len(since) > 0 {
		list.Limit = checkpointPage
	}
	for {
		var got *statev1.ListCheckpointsResponse
		err := retry.Do(ctx, s.Policy, func() (err error) {
			got, err = s.Checkpoints.ListCheckpoints(ctx, list)
			return err
		})
		if err != nil {
			return "", err
		}
		for _, c := range got.GetCheckpoints() {
			switch {
			case c.GetRunId() == run && c.GetStatus() == statev1.SessionStatus_SESSION_STATUS_FAILED:
				end = c.GetMessageCount()
			case c.GetRunId() == run:
				if stays, err := s.stays(ctx, start, c.GetMessageCount(), end); stays || err != nil {
					return "", err
				}
				return c.GetCheckpointId(), nil
			case c.GetRunId() != run && !slices.ContainsFunc(since, func(r *statev1.Run) bool { return r.GetRunId() == c.GetRunId() }):
				return "", nil // behind it there are older runs only
			}
			list.BeforeStep = c.GetStep()
		}
		if len(since) == 0 || len(got.GetCheckpoints()) < checkpointPage {
			return "", nil
		}
	}
}

// messagePage is how many messages are asked for at once.
const messagePage = 100

// finishTool is the call by which a model hands its output in. Nothing runs for it.
const finishTool = "__finish__"

// stays reports whether the messages have the end of a call of a tool. Such a step is not
// taken back, though its run has failed: what its tools have done, or may have done, would
// be done once more. It is whole, since every call has its result, and so the run goes on
// behind it. A step of texts, or of an output that was refused, is made anew.
func (s *Server) stays(ctx context.Context, start *statev1.StartRunRequest, from, end int64) (bool, error) {
	list := &statev1.ListMessagesRequest{Tenant: start.GetTenant(), SessionId: start.GetSessionId(), Offset: from}
	for list.Offset < end {
		list.Limit = int32(min(end-list.Offset, messagePage))
		var page *statev1.ListMessagesResponse
		err := retry.Do(ctx, s.Policy, func() (err error) {
			page, err = s.Sessions.Sessions.ListMessages(ctx, list)
			return err
		})
		if err != nil || len(page.GetMessages()) == 0 {
			return false, err
		}
		for _, m := range page.GetMessages() {
			if m.GetMessage().GetMetadata()[agent.MetadataFailed] != "" {
				return false, nil // the reply failed before any of its calls ran
			}
			if slices.ContainsFunc(m.GetMessage().GetParts(), ran) {
				return true, nil
			}
		}
		list.Offset += int64(len(page.GetMessages()))
	}
	return false, nil
}

// ran reports whether the part ends a call of a tool.
func ran(p *eventv1.Part) bool {
	result := p.GetToolResult()
	return result != nil && result.GetToolName() != finishTool
}

// branch makes a session at a checkpoint and begins a run in it. These are two writes:
// a repetition with the same key finds the session that the first request has made,
// and goes on from there.
func (s *Server) branch(ctx context.Context, start *statev1.StartRunRequest, r *agentv1.ResumeRequest) (*agentv1.ResumeResponse, error) {
	start.SessionId = s.branchID(start.GetTenant(), r)
	attempts := 0
	err := retry.Do(ctx, s.Policy, func() error {
		attempts++
		_, err := s.Checkpoints.Branch(ctx, &statev1.BranchRequest{
			Tenant: start.GetTenant(), SessionId: r.GetSessionId(), CheckpointId: r.GetCheckpointId(), NewSessionId: start.GetSessionId(),
		})
		return err
	})
	if err == nil {
		answer, err := s.resume(ctx, start)
		if err != nil {
			s.takeBack(ctx, start, err)
		}
		return answer, err
	}
	if fault.ReasonOf(err) != sessionExists || r.GetRequestKey() == "" && attempts == 1 {
		return nil, err
	}
	return s.branchAgain(ctx, start, r, err)
}

// refused are the kinds of an answer that says that no run was begun.
var refused = []fault.Kind{fault.Invalid, fault.TooLarge, fault.Conflict}

// takeBack deletes the branch that the request has made when its run is refused, since
// nobody knows of it. A branch with a run is somebody's.
func (s *Server) takeBack(ctx context.Context, start *statev1.StartRunRequest, why error) {
	if !slices.Contains(refused, fault.KindOf(why)) {
		return
	}
	_, run, err := s.Sessions.Session(ctx, start.GetTenant(), start.GetSessionId())
	if err == nil && run == nil {
		_, err = s.Sessions.Sessions.DeleteSession(ctx, &statev1.DeleteSessionRequest{Tenant: start.GetTenant(), SessionId: start.GetSessionId()})
	}
	if err != nil {
		s.Log.WarnContext(ctx, "a branch whose run was refused stays", "session", start.GetSessionId(), "error", err)
	}
}

const sessionExists = "SESSION_EXISTS"

// branchAgain begins the run in a branch that is there, provided that the request, or
// an earlier attempt at it, has made it: it stands where the checkpoint does, and has
// no run but the one that the key names. exists is the fault to answer with otherwise.
func (s *Server) branchAgain(ctx context.Context, start *statev1.StartRunRequest, r *agentv1.ResumeRequest, exists error) (*agentv1.ResumeResponse, error) {
	session, run, err := s.Sessions.Session(ctx, start.GetTenant(), start.GetSessionId())
	if err != nil {
		return nil, err
	}
	if run == nil {
		here, err := s.standsAt(ctx, session, r)
		if err != nil {
			return nil, err
		}
		if !here {
			return nil, exists
		}
	}
	none := ""
	start.Expect = &statev1.Expectation{Statuses: []statev1.SessionStatus{statev1.SessionStatus_SESSION_STATUS_PAUSED}, CurrentRunId: &none}
	answer, err := s.resume(ctx, start)
	if fault.ReasonOf(err) == "SESSION_CHANGED" {
		return nil, exists
	}
	return answer, err
}

// standsAt reports whether the session has as many messages as the checkpoint.
func (s *Server) standsAt(ctx context.Context, session *statev1.Session, r *agentv1.ResumeRequest) (bool, error) {
	var got *statev1.GetCheckpointResponse
	err := retry.Do(ctx, s.Policy, func() (err error) {
		got, err = s.Checkpoints.GetCheckpoint(ctx, &statev1.GetCheckpointRequest{
			Tenant: session.GetTenant(), SessionId: r.GetSessionId(), CheckpointId: r.GetCheckpointId(),
		})
		return err
	})
	return session.GetMessageCount() == got.GetCheckpoint().GetMessageCount(), err
}

// branchID is the id of the new session: with a request key it is made of the request,
// so that a repetition means the same session.
func (s *Server) branchID(tenant string, r *agentv1.ResumeRequest) string {
	switch {
	case r.GetNewSessionId() != "":
		return r.GetNewSessionId()
	case r.GetRequestKey() == "":
		return s.NewID()
	}
	digest := sha256.Sum256([]byte(strings.Join([]string{tenant, r.GetSessionId(), r.GetCheckpointId(), r.GetRequestKey()}, "\x00")))
	return "ses_" + hex.EncodeToString(digest[:16])
}
