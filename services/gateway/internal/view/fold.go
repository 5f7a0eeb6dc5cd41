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

// logTimeout is how long a snapshot waits for the log. After that it leaves the step in flight out.
const logTimeout = 3 * time.Second

// view is the part of a snapshot that comes from messages and from the log.
type view struct {
	messages  []uistream.UIMessage
	sequence  int64
	completed map[string]int64 // as in conversation.Newest
}

// fold adds the step in flight to the stored messages.
func (h *Handlers) fold(ctx context.Context, s *statev1.GetSessionResponse, stored *conversation.Newest) view {
	v := view{messages: stored.Messages(), sequence: s.GetSession().GetPosition(), completed: stored.Completed()}
	if !conversation.Executing(s.GetCurrentRun()) {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	if frames := h.Follower.InFlight(ctx, s.GetSession()); len(frames) > 0 {
		v.goOn(s.GetCurrentRun(), frames)
		v.sequence = frames[len(frames)-1].Sequence
	}
	return v
}

// goOn adds the step in flight to the run's message, and the ends of their calls to earlier
// messages.
func (v *view) goOn(run *statev1.Run, frames []*frame.Frame) {
	told := make([]uistream.Told, len(frames))
	for i, f := range frames {
		told[i] = uistream.Told{Sequence: f.Sequence, Chunk: f.Chunk}
	}
	for i, m := range v.messages {
		if m.Role == "assistant" && m.ID != run.GetMessageId() {
			v.messages[i] = uistream.Settle(m, told)
		}
	}
	i := slices.IndexFunc(v.messages, func(m uistream.UIMessage) bool { return m.Role == "assistant" && m.ID == run.GetMessageId() })
	if i < 0 {
		i = len(v.messages)
		v.messages = append(v.messages, uistream.UIMessage{ID: run.GetMessageId(), Role: "assistant"})
	}
	v.messages[i] = uistream.Continue(v.messages[i], told)
	v.messages[i].Metadata = v.messages[i].Metadata.With(conversation.RunOf(run))
}
