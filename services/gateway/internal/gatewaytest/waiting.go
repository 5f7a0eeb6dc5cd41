package gatewaytest

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// mostWaiting is how many runs of a session may wait; one more is told to wait no more.
const mostWaiting = 3

// waiting is a run that waits, with the request that it begins with.
type waiting struct {
	*statev1.Run
	request *statev1.StartRunRequest
}

// wait lets a run wait where the request's policy, or else the agent's, says so; nil
// says that it does not wait. What keeps only the first messages does not. It is called
// with mu held.
func (s *State) wait(found *session, r *statev1.StartRunRequest, keep int) (*waiting, error) {
	policy := r.GetOnBusy()
	for _, a := range s.agents {
		if a.GetAgentType() == found.GetAgentType() {
			policy = cmp.Or(policy, a.GetOnBusy())
		}
	}
	live := found.GetStatus() == statev1.SessionStatus_SESSION_STATUS_ACTIVE
	behind := keep >= 0 || r.GetResume() != nil || r.GetRetry() != nil || r.GetSeenRunId() != "" // they are for where the session stands
	if !live || policy <= statev1.BusyPolicy_BUSY_POLICY_REJECT || behind || len(found.waiting) == mostWaiting {
		return nil, nil //nolint:nilnil // it does not wait
	}
	if err := s.early(found, r); err != nil {
		return nil, err
	}
	w := &waiting{s.makeRun(found, r), r}
	w.Status, w.OnBusy = statev1.RunStatus_RUN_STATUS_WAITING, policy
	found.waiting = append(found.waiting, w)
	if policy != statev1.BusyPolicy_BUSY_POLICY_ENQUEUE {
		found.current().Stop = &statev1.Stop{Kind: statev1.StopKind_STOP_KIND_INTERRUPT}
	}
	return w, nil
}

// next begins the first waiting run when a run has ended.
func (s *session) next(over *statev1.Run) {
	if len(s.waiting) == 0 || s.GetStatus() == statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL {
		return
	}
	first := s.waiting[0]
	s.waiting = s.waiting[1:]
	if first.GetOnBusy() == statev1.BusyPolicy_BUSY_POLICY_ROLLBACK {
		s.messages = slices.DeleteFunc(s.messages, func(m *eventv1.Message) bool {
			return m.GetRunId() == over.GetRunId() && m.GetRole() != eventv1.Role_ROLE_USER
		})
	}
	s.begin(first.Run, first.request)
}

// RequestStop implements the service.
func (s *State) RequestStop(_ context.Context, r *statev1.RequestStopRequest) (*statev1.RequestStopResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	known := slices.ContainsFunc(found.all(), func(run *statev1.Run) bool { return run.GetRunId() == r.GetRunId() })
	if r.GetRunId() != "" && !known {
		return nil, fault.New(fault.NotFound, "RUN_NOT_FOUND", "there is no run %q", r.GetRunId())
	}
	s.stops = append(s.stops, r)
	for i, w := range found.waiting {
		if w.GetRunId() == r.GetRunId() {
			w.Status = statev1.RunStatus_RUN_STATUS_INTERRUPTED
			found.waiting = slices.Delete(found.waiting, i, i+1)
			found.gone = append(found.gone, w.Run)
			return &statev1.RequestStopResponse{Effect: statev1.RequestStopResponse_EFFECT_DONE, RunId: r.GetRunId()}, nil
		}
	}
	current := found.current()
	if found.GetStatus() == statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL {
		found.Status = statev1.SessionStatus_SESSION_STATUS_INTERRUPTED
		if r.GetKind() == statev1.StopKind_STOP_KIND_ABORT {
			found.Status = statev1.SessionStatus_SESSION_STATUS_FAILED
			found.calls = slices.DeleteFunc(found.calls, func(c *statev1.Call) bool { return c.GetAnswer() == nil })
		}
		return &statev1.RequestStopResponse{Effect: statev1.RequestStopResponse_EFFECT_DONE, RunId: current.GetRunId()}, nil
	}
	if found.GetStatus() != statev1.SessionStatus_SESSION_STATUS_ACTIVE || r.GetRunId() != "" && r.GetRunId() != current.GetRunId() {
		return &statev1.RequestStopResponse{Effect: statev1.RequestStopResponse_EFFECT_NONE, RunId: cmp.Or(r.GetRunId(), current.GetRunId())}, nil
	}
	current.Stop = &statev1.Stop{Kind: r.GetKind(), Reason: r.GetReason()}
	return &statev1.RequestStopResponse{Effect: statev1.RequestStopResponse_EFFECT_REQUESTED, RunId: current.GetRunId()}, nil
}

// Stops gives the RequestStop requests so far.
func (s *State) Stops() []*statev1.RequestStopRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stops)
}

// resumable says whether the session may have the run now.
func resumable(found *session, r *statev1.StartRunRequest) error {
	status, checkpoint := found.GetStatus(), r.GetResume().GetCheckpointId()
	switch {
	case status == statev1.SessionStatus_SESSION_STATUS_ACTIVE && len(found.waiting) == mostWaiting && r.GetOnBusy() > statev1.BusyPolicy_BUSY_POLICY_REJECT:
		return fault.New(fault.Exhausted, "TOO_MANY_WAITING", "%d runs wait already", mostWaiting)
	case status == statev1.SessionStatus_SESSION_STATUS_ACTIVE:
		return fault.New(fault.Conflict, "SESSION_BUSY", "the session is active")
	case r.GetRetry() != nil && status != statev1.SessionStatus_SESSION_STATUS_FAILED:
		return fault.New(fault.Conflict, "SESSION_CHANGED", "the session is %s", status)
	case r.GetRetry() != nil && found.GetFailure().GetCode() == "framework_cancelled":
		return fault.New(fault.Conflict, "RUN_CANCELLED", "the run was aborted")
	case status == statev1.SessionStatus_SESSION_STATUS_COMPLETED && r.GetResume() != nil && checkpoint == "":
		return fault.New(fault.Conflict, "SESSION_COMPLETED", "the session is completed")
	case status == statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL && !r.GetAbandonCalls():
		return fault.New(fault.Conflict, "SESSION_SUSPENDED", "the session waits")
	case checkpoint != "" && found.at(checkpoint) == nil:
		return noCheckpoint(checkpoint)
	}
	return nil
}

// proceed begins a run that continues the one that has suspended.
func (s *State) proceed(tenant string, suspended *statev1.Run) *statev1.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sessions[streamKey(tenant, suspended.GetSessionId())]
	run := s.makeRun(found, &statev1.StartRunRequest{})
	run.Entry, run.MessageId = statev1.RunEntry_RUN_ENTRY_CONTINUATION, suspended.GetMessageId()
	found.calls = nil
	found.begin(run, &statev1.StartRunRequest{})
	return run
}
