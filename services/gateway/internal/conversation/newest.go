package conversation

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// The size of the newest part of a conversation. It is read backwards in blocks. It does not begin
// inside an answer: such an answer is omitted. Only the last answer is read from its beginning, up
// to maxAnswer messages and answerBytes.
const (
	newestMessages = 200
	newestBytes    = pageBytes
	newestRead     = 20
)

// truncatedStart begins an assistant message without its beginning.
const truncatedStart = "The first part of this answer is too large to be shown."

// Newest is the newest part of a conversation. It begins with a user's message or at the beginning
// of the conversation. Pages up to Offset have all earlier UI messages, each complete.
type Newest struct {
	Offset int64 // index of the first stored message
	// Changed: messages were removed during the read.
	Changed bool

	stored    uistream.Stored
	truncated bool // it begins inside an answer that is too large
}

// ReadNewest reads the newest part of the conversation, up to the session's message count.
func (r *Reader) ReadNewest(ctx context.Context, s *statev1.Session) (*Newest, error) {
	n := &Newest{Offset: s.GetMessageCount()}
	for bytes := 0; n.Offset > 0 && !n.isLargeEnough(bytes); {
		begin := max(0, n.Offset-newestRead)
		block, err := r.readBetween(ctx, s, begin, n.Offset)
		if err != nil {
			return nil, err
		}
		if int64(len(block)) < n.Offset-begin {
			n.Changed = true
			return n, nil
		}
		for _, m := range block {
			bytes += proto.Size(m)
		}
		n.stored.Messages, n.Offset = append(block, n.stored.Messages...), begin
	}
	n.alignStart()
	var err error
	n.stored, err = r.loadStored(ctx, s, n.stored.Messages, s.GetCurrentRunId())
	return n, err
}

// readBetween reads the messages from begin up to and without end; fewer if the session has fewer.
func (r *Reader) readBetween(ctx context.Context, s *statev1.Session, begin, end int64) ([]*eventv1.Message, error) {
	var messages []*eventv1.Message
	for begin < end {
		page, err := r.listMessages(ctx, s, begin, int(end-begin))
		if err != nil {
			return nil, err
		}
		for _, m := range page.GetMessages() {
			messages = append(messages, m.GetMessage())
		}
		if len(page.GetMessages()) == 0 {
			break
		}
		begin += int64(len(page.GetMessages()))
	}
	return messages, nil
}

func (n *Newest) isLargeEnough(bytes int) bool {
	if len(n.stored.Messages) < newestMessages && bytes < newestBytes {
		return false
	}
	return slices.ContainsFunc(n.stored.Messages, startsMessage) || len(n.stored.Messages) >= maxAnswer || bytes >= answerBytes
}

func startsMessage(m *eventv1.Message) bool { return !uistream.IsPartOfAnswer(m) && !isInvisible(m) }

// alignStart drops messages before the beginning of a UI message.
func (n *Newest) alignStart() {
	if n.Offset == 0 {
		return
	}
	first := slices.IndexFunc(n.stored.Messages, startsMessage)
	if first < 0 {
		n.truncated = true
		return
	}
	n.stored.Messages, n.Offset = n.stored.Messages[first:], n.Offset+int64(first)
}

// Messages returns the UI messages.
func (n *Newest) Messages() []uistream.UIMessage {
	messages := n.stored.Conversation()
	if n.truncated && len(messages) > 0 {
		cut := &messages[0]
		cut.Parts = slices.Insert(cut.Parts, 0, uistream.UIPart{Type: "text", Text: truncatedStart, State: "done"})
	}
	return messages
}

// Keep returns how many stored messages of the conversation remain if it ends after the UI messages
// with the ids, which must be the first ones. Conflict (MESSAGES_FIXED): they are not.
func (n *Newest) Keep(ids []string) (int64, error) {
	shown := n.stored.Conversation()
	begins := len(shown) >= len(ids)
	for i := 0; begins && i < len(ids); i++ {
		begins = shown[i].ID == ids[i]
	}
	if !begins || n.Offset > 0 {
		return 0, fault.New(
			fault.Conflict,
			"MESSAGES_FIXED",
			"the conversation can only be shortened at its end; it does not begin with these messages",
		)
	}
	part := n.stored
	for part.Messages = n.stored.Messages; len(part.Conversation()) > len(ids); {
		part.Messages = part.Messages[:len(part.Messages)-1]
	}
	return int64(len(part.Messages)), nil
}

// Completed returns the time at which a step took the answer, by call, for the calls of client
// tools and approvals in the messages.
func (n *Newest) Completed() map[string]int64 {
	requestedIn := map[string]int32{} // by call: its step
	for step, record := range n.stored.Records {
		for _, e := range record.GetEvents() {
			if start := e.GetToolStart(); start.GetAwaitsClient() {
				requestedIn[start.GetToolCallId()] = step.Number
			}
			if question := e.GetToolApprovalRequest(); question != nil {
				requestedIn[question.GetToolCallId()] = step.Number
			}
		}
	}
	completed := map[string]int64{}
	for _, m := range n.stored.Messages {
		for _, p := range m.GetParts() {
			id := p.GetToolResult().GetToolCallId()
			if step, found := requestedIn[id]; found && m.GetStep() > step { // a call that ended in its own step awaited no answer
				completed[id] = m.GetCreatedAt()
			}
		}
	}
	return completed
}
