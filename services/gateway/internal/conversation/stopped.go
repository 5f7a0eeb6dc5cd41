package conversation

import (
	"cmp"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// Ended reports whether nothing goes on in a session of the status by itself, nor by
// answers.
func Ended(s statev1.SessionStatus) bool {
	return s == statev1.SessionStatus_SESSION_STATUS_COMPLETED || s == statev1.SessionStatus_SESSION_STATUS_FAILED
}

// Stopped reports whether the session was ended from outside while its newest run, which
// this is, had suspended: nobody is asked any more, whatever the run's stream says.
func Stopped(s *statev1.Session, run *statev1.Run) bool {
	switch run.GetStatus() {
	case statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL, statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN, statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL:
		return run.GetRunId() == s.GetCurrentRunId() && Ended(s.GetStatus())
	default:
		return false
	}
}

// Spoken gives the messages without the last one where that is an assistant's, has nothing,
// and newest, the newest run, does not write at it any more: that run has ended calls of the
// message before, and was over before it said something.
func Spoken(messages []uistream.UIMessage, newest *statev1.Run) []uistream.UIMessage {
	last := len(messages) - 1
	if last < 0 || messages[last].Role != "assistant" || len(messages[last].Parts) > 0 {
		return messages
	}
	if Live(newest) && newest.GetMessageId() == messages[last].ID {
		return messages
	}
	return messages[:last]
}

// unanswered stands for what is not known any more of the end of a session, or of a message
// whose calls were left behind.
const unanswered = "The conversation was stopped before this call was answered."

// WhyStopped is the sentence for people about a session of which Stopped is true.
func WhyStopped(s *statev1.Session) string {
	return cmp.Or(s.GetFailure().GetError(), unanswered)
}

// Unanswered says what became of the calls that stored messages leave open, as uistream.Close
// wants it. The state service drops the open calls of a session that is stopped, and no
// message tells of that; those that were answered stay, for the next run. A call may still
// end that waits, or that belongs to what is going on: the newest run, until the session has
// ended, and before its first step whatever it takes over from the run before it, whose
// message is the last of the messages before its own.
func Unanswered(s *statev1.GetSessionResponse, messages []uistream.UIMessage) func(message, call string) string {
	session, run := s.GetSession(), s.GetCurrentRun()
	over := Stopped(session, run) || Ended(session.GetStatus()) && !Live(run)
	before := ""
	for _, m := range messages {
		if m.Role == "assistant" && m.ID != run.GetMessageId() {
			before = m.ID
		}
	}
	waits, answered := map[string]bool{}, map[string]bool{}
	for _, c := range s.GetCalls() {
		if c.GetSessionId() == session.GetSessionId() {
			waits[c.GetToolCallId()], answered[c.GetToolCallId()] = true, c.GetAnswer() != nil
		}
	}
	return func(message, call string) string {
		newest := message == run.GetMessageId()
		switch {
		case run == nil || answered[call]:
			return ""
		case over && newest:
			return WhyStopped(session)
		case over:
			return unanswered
		case newest || waits[call] || message == before && Live(run) && run.GetStepCount() == 0:
			return ""
		default:
			return unanswered
		}
	}
}
