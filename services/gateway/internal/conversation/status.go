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
