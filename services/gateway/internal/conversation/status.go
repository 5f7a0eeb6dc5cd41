package conversation

import (
	"strings"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// SessionStatus returns the public name of a status.
func SessionStatus(s statev1.SessionStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "SESSION_STATUS_"))
}

// RunStatus returns the public name of a status. A queued run is running.
func RunStatus(s statev1.RunStatus) string {
	if s == statev1.RunStatus_RUN_STATUS_QUEUED {
		s = statev1.RunStatus_RUN_STATUS_RUNNING
	}
	return strings.ToLower(strings.TrimPrefix(s.String(), "RUN_STATUS_"))
}

// QueuedReason returns the public name of the reason why a run is queued.
func QueuedReason(q *statev1.QueuedReason) string {
	return strings.ToLower(strings.TrimPrefix(q.GetReason().String(), "REASON_"))
}

// Status is what a session and its newest run do.
type Status struct {
	Executing bool // the run is queued or running
	Suspended bool // the session waits for answers or children
	Ended     bool // see Ended
	Stopped   bool // see Stopped
}

// StatusOf returns the status of the session with its newest run; nil for none.
func StatusOf(s *statev1.Session, run *statev1.Run) Status {
	return Status{Executing: Executing(run), Suspended: Suspended(s), Ended: Ended(s.GetStatus()), Stopped: Stopped(s, run)}
}

// Executing reports whether the run is queued or running.
func Executing(run *statev1.Run) bool {
	s := run.GetStatus()
	return s == statev1.RunStatus_RUN_STATUS_QUEUED || s == statev1.RunStatus_RUN_STATUS_RUNNING
}

// Waiting reports whether the run waits for the live run.
func Waiting(run *statev1.Run) bool {
	return run.GetStatus() == statev1.RunStatus_RUN_STATUS_WAITING
}

// NeverStarted reports whether the run ended while it waited. It never began and is not in the stream.
func NeverStarted(run *statev1.Run) bool {
	waited := run.GetOnBusy() != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED
	return run != nil && waited && run.GetStartedAt() == 0 && !Waiting(run) && !Executing(run)
}

// Suspended reports whether the session waits for answers or children.
func Suspended(s *statev1.Session) bool {
	switch s.GetStatus() {
	case statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL,
		statev1.SessionStatus_SESSION_STATUS_SUSPENDED_AWAITING_CHILDREN,
		statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL:
		return true
	default:
		return false
	}
}

// Ended reports whether a session with the status has ended: it neither runs nor waits for answers.
func Ended(s statev1.SessionStatus) bool {
	return s == statev1.SessionStatus_SESSION_STATUS_COMPLETED || s == statev1.SessionStatus_SESSION_STATUS_FAILED
}

// Stopped reports whether the session was stopped while its newest run, run, was suspended. Its
// calls will not be answered any more, although its stream shows them as open.
func Stopped(s *statev1.Session, run *statev1.Run) bool {
	switch run.GetStatus() {
	case statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL,
		statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN,
		statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL:
		return run.GetRunId() == s.GetCurrentRunId() && Ended(s.GetStatus())
	default:
		return false
	}
}
