package conversation

import (
	"cmp"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// DropEmptyAnswer drops a final assistant message that stays empty: its run ended calls of the
// previous message, then ended itself. newest is the newest run.
func DropEmptyAnswer(messages []uistream.UIMessage, newest *statev1.Run) []uistream.UIMessage {
	last := len(messages) - 1
	if last < 0 || messages[last].Role != "assistant" || len(messages[last].Parts) > 0 {
		return messages
	}
	if Executing(newest) && newest.GetMessageId() == messages[last].ID {
		return messages
	}
	return messages[:last]
}

// unansweredText is the error of calls without a recorded end.
const unansweredText = "The conversation was stopped before this call was answered."

// StopReason returns, for users, why a session was stopped.
func StopReason(s *statev1.Session) string {
	return cmp.Or(s.GetFailure().GetError(), unansweredText)
}

// UnansweredReasons explains why open calls of stored messages have no result, for
// uistream.EndUnanswered. The state service drops the open calls of a stopped session without a
// message, but keeps answered calls for the next run. The reason is "" for calls that may still
// end:
//
//   - pending and answered calls,
//   - calls of the newest run, until the session ends,
//   - calls of the previous message, until the first step of the newest run.
func UnansweredReasons(s *statev1.GetSessionResponse, messages []uistream.UIMessage) func(message, call string) string {
	session, run := s.GetSession(), s.GetCurrentRun()
	ended := Stopped(session, run) || Ended(session.GetStatus()) && !Executing(run)
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
		case ended && newest:
			return StopReason(session)
		case ended:
			return unansweredText
		case newest || waits[call] || message == before && Executing(run) && run.GetStepCount() == 0:
			return ""
		default:
			return unansweredText
		}
	}
}
