package conversation

import (
	"strings"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// SessionStatus names a status as the public interfaces do.
func SessionStatus(s statev1.SessionStatus) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "SESSION_STATUS_"))
}

// RunStatus names a status as the public interfaces do: a run that waits for an
// executor is running.
func RunStatus(s statev1.RunStatus) string {
	if s == statev1.RunStatus_RUN_STATUS_QUEUED {
		s = statev1.RunStatus_RUN_STATUS_RUNNING
	}
	return strings.ToLower(strings.TrimPrefix(s.String(), "RUN_STATUS_"))
}
