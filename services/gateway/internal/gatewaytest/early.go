package gatewaytest

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// Plans records the plan of the step in flight.
func (r *Run) Plans(calls ...string) {
	r.world.State.change(r.tenant, r.Run, func(s *session, _ *statev1.Run) { s.planned = calls })
}

// Untaken gives back the answers that the run has begun with: it is stopped before a step
// of it has taken them.
func (r *Run) Untaken() {
	r.world.State.change(r.tenant, r.Run, func(s *session, _ *statev1.Run) { s.calls, s.answered = s.answered, nil })
}

// Hold lets StartRun call f first, which may hold a request up.
func (s *State) Hold(f func(*statev1.StartRunRequest)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = f
}

func (s *State) holdUp(r *statev1.StartRunRequest) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		hold(r)
	}
}

// missing says why there is no call that is answered. It is called with mu held.
func (s *State) missing(r *statev1.SubmitCallRequest) error {
	found := s.sessions[streamKey(r.GetTenant(), r.GetSessionId())]
	switch {
	case found != nil && found.GetStatus() == statev1.SessionStatus_SESSION_STATUS_FAILED:
		return fault.New(fault.Conflict, "OWNER_NOT_CONTINUABLE", "session %q does not go on", r.GetSessionId())
	case found != nil && found.GetStatus() == statev1.SessionStatus_SESSION_STATUS_ACTIVE &&
		(found.planned == nil || slices.Contains(found.planned, r.GetToolCallId())):
		return notOpen(r.GetToolCallId())
	default:
		return fault.New(fault.NotFound, "UNKNOWN_TOOL_CALL", "the family of %q has no call %q", r.GetSessionId(), r.GetToolCallId())
	}
}

// early refuses a message that would wait with the answer to a call that is planned. It is
// called with mu held.
func (s *State) early(found *session, r *statev1.StartRunRequest) error {
	for _, a := range r.GetAnswers() {
		_, call := s.call(r.GetTenant(), r.GetSessionId(), a.GetToolCallId())
		if call == nil && slices.Contains(found.planned, a.GetToolCallId()) {
			return notOpen(a.GetToolCallId())
		}
	}
	return nil
}

func notOpen(call string) error {
	return fault.New(fault.Unavailable, "CALL_NOT_OPEN", "the run of call %q has not suspended yet; send the same request again", call)
}
