package step

import eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"

// Reasons of a suspension, as in RunSuspended.
const (
	SuspendedClientTool = "client_tool"
	SuspendedChildren   = "awaiting_children"
	SuspendedPartial    = "step_partial"
)

// RunStarted returns the first chunk of a run.
func RunStarted(turn int32, messageID string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{Turn: turn, MessageId: messageID}}}
}

// RunResumed returns the first chunk of a run that resumes or continues another, previous.
func RunResumed(previous string, turn int32, messageID string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{
		PreviousRunId: previous, Turn: turn, MessageId: messageID,
	}}}
}
