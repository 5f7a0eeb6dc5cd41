package conversation

import (
	"context"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// The limits of one assistant message. Stored messages beyond are omitted, and a text in the
// message reports it.
const (
	maxAnswer   = 5000     // stored messages
	answerBytes = 16 << 20 // bytes of stored messages
)

// truncatedEnd ends a truncated assistant message. An error would make clients retry forever.
const truncatedEnd = "The rest of this answer is too large to be shown."

// boundedMessages is a list of stored messages with a byte limit.
type boundedMessages struct {
	messages []*eventv1.Message
	bytes    int
}

// add adds the message unless that exceeds the limit. The first message always fits.
func (g *boundedMessages) add(m *eventv1.Message, limit int) bool {
	size := proto.Size(m)
	if len(g.messages) > 0 && g.bytes+size > limit {
		return false
	}
	g.messages, g.bytes = append(g.messages, m), g.bytes+size
	return true
}

// Answer returns the assistant message of a finished run, including runs that it continues. It has
// no parts if they wrote none. Answer searches the last maxAnswer messages and loads up to
// answerBytes.
func (r *Reader) Answer(ctx context.Context, s *statev1.Session, run *statev1.Run) (uistream.UIMessage, error) {
	runs, err := r.Message(ctx, s.GetTenant(), run)
	if err != nil {
		return uistream.UIMessage{}, err
	}
	ids := map[string]string{}
	for _, r := range runs {
		ids[r.GetRunId()] = run.GetMessageId()
	}
	found, behind, whole, err := r.answer(ctx, s, ids)
	if err != nil {
		return uistream.UIMessage{}, err
	}
	stored, err := r.stored(ctx, s, found, run.GetRunId())
	if err != nil {
		return uistream.UIMessage{}, err
	}
	messages := stored.Conversation()
	if len(messages) == 0 {
		return uistream.UIMessage{ID: run.GetMessageId(), Role: "assistant"}, nil
	}
	if err := r.endCalls(ctx, s, messages, behind); err != nil {
		return uistream.UIMessage{}, err
	}
	if !whole {
		markTruncated(&messages[0])
	}
	return messages[0], nil
}

// answer returns the stored messages of the runs' answer, the offset behind the last one, and
// whether the answer is complete.
func (r *Reader) answer(ctx context.Context, s *statev1.Session, runs map[string]string) (messages []*eventv1.Message, behind int64, whole bool, err error) {
	count, err := r.list(ctx, s, 0, 1)
	if err != nil {
		return nil, 0, false, err
	}
	var stored boundedMessages
	for offset := max(0, count.GetTotal()-maxAnswer); ; {
		page, err := r.list(ctx, s, offset, storedPage)
		if err != nil {
			return nil, 0, false, err
		}
		for _, m := range page.GetMessages() {
			offset++
			if _, asked := runs[m.GetMessage().GetRunId()]; !asked || !uistream.IsPartOfAnswer(m.GetMessage()) {
				continue
			}
			if !stored.add(m.GetMessage(), answerBytes) {
				return stored.messages, behind, false, nil
			}
			behind = offset
		}
		if !page.GetHasMore() || len(page.GetMessages()) == 0 {
			return stored.messages, behind, true, nil
		}
	}
}

func markTruncated(m *uistream.UIMessage) {
	m.Parts = append(m.Parts, uistream.UIPart{Type: "text", Text: truncatedEnd, State: "done"})
}
