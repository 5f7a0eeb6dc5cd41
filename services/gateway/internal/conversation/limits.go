package conversation

import (
	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
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

func markTruncated(m *uistream.UIMessage) {
	m.Parts = append(m.Parts, uistream.UIPart{Type: "text", Text: truncatedEnd, State: "done"})
}
