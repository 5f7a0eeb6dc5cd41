package view

import (
	"context"
	"slices"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// logTimeout limits the read of the log. After it, the snapshot omits the step in flight.
const logTimeout = 3 * time.Second

// contents is the part of a snapshot from messages and log.
type contents struct {
	messages  []uistream.UIMessage
	sequence  int64
	completed map[string]int64 // as in conversation.Newest
}

// addLive adds the step in flight to the stored messages.
func (h *Handlers) addLive(ctx context.Context, s *statev1.GetSessionResponse, stored *conversation.Newest) contents {
	v := contents{messages: stored.Messages(), sequence: s.GetSession().GetPosition(), completed: stored.Completed()}
	if !conversation.Executing(s.GetCurrentRun()) {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	if frames := h.Follower.StepInFlight(ctx, s.GetSession()); len(frames) > 0 {
		v.addStepInFlight(s.GetCurrentRun(), frames)
		v.sequence = frames[len(frames)-1].Sequence
	}
	return v
}

// addStepInFlight adds the step in flight to the run's message. Ends of earlier calls go to the
// messages with the calls.
func (v *contents) addStepInFlight(run *statev1.Run, frames []*frame.Frame) {
	chunks := make([]uistream.NumberedChunk, len(frames))
	for i, f := range frames {
		chunks[i] = uistream.NumberedChunk{Sequence: f.Sequence, Chunk: f.Chunk}
	}
	for i, m := range v.messages {
		if m.Role == "assistant" && m.ID != run.GetMessageId() {
			v.messages[i] = uistream.EndCalls(m, chunks)
		}
	}
	i := slices.IndexFunc(v.messages, func(m uistream.UIMessage) bool { return m.Role == "assistant" && m.ID == run.GetMessageId() })
	if i < 0 {
		i = len(v.messages)
		v.messages = append(v.messages, uistream.UIMessage{ID: run.GetMessageId(), Role: "assistant"})
	}
	v.messages[i] = uistream.Continue(v.messages[i], chunks)
	v.messages[i].Metadata = v.messages[i].Metadata.ContinuedBy(conversation.RunOf(run))
}
