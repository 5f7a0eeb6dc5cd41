package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
)

// messagesPage is the size of a page of messages.
const messagesPage = 200

// conversation reads the messages of a session.
type conversation struct {
	claimed  claimedRun
	sessions statev1.SessionServiceClient
	timeout  time.Duration // of one request
}

// load returns all messages. tail came with the claim. load reads the messages before tail.
func (c conversation) load(ctx context.Context, tail []*statev1.StoredMessage) ([]*statev1.StoredMessage, error) {
	first := c.claimed.session.GetMessageCount()
	if len(tail) > 0 {
		first = tail[0].GetOrdinal()
	}
	before, err := c.stored(ctx, first)
	if err != nil {
		return nil, err
	}
	return append(before, tail...), nil
}

// stored reads the first count messages.
func (c conversation) stored(ctx context.Context, count int64) ([]*statev1.StoredMessage, error) {
	var messages []*statev1.StoredMessage
	for int64(len(messages)) < count {
		var page *statev1.ListMessagesResponse
		err := retry.Call(ctx, c.timeout, func(ctx context.Context) (err error) {
			page, err = c.sessions.ListMessages(ctx, &statev1.ListMessagesRequest{
				Tenant: c.claimed.ref.GetTenant(), SessionId: c.claimed.ref.GetSessionId(), Offset: int64(len(messages)),
				Limit: int32(min(messagesPage, count-int64(len(messages)))),
			}, c.claimed.granted())
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the conversation: %w", err)
		}
		if len(page.GetMessages()) == 0 {
			return nil, fmt.Errorf("the conversation ends at message %d, but %d exist", len(messages), count)
		}
		messages = append(messages, page.GetMessages()...)
	}
	return messages, nil
}

// branched reports whether the session is a branch without a step of its own. Then the steps of its messages
// belong to the other session.
func (c conversation) branched(messages []*statev1.StoredMessage) bool {
	return c.claimed.session.GetStepCount() == 0 &&
		slices.ContainsFunc(messages, func(s *statev1.StoredMessage) bool { return s.GetMessage().GetStep() > 0 })
}

// begin returns the index of the first message of the run. For a continuation, it is that of the first run of
// the turn.
func (c conversation) begin(transcript []agent.Message) int {
	run := c.claimed.run
	begin := int(min(run.GetStartMessageCount(), int64(len(transcript))))
	if run.GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION {
		return begin
	}
	if first := run.GetTurnMessageCount(); first > 0 {
		return int(min(first, int64(begin)))
	}
	return beginOfTurn(transcript, begin)
}

// beginOfTurn returns the index of the first of the adjacent user messages before the place. Unless the turn was
// resumed, they began it. It is for the first run of a session, and for continuations whose claim lacks the
// begin of the turn.
func beginOfTurn(transcript []agent.Message, place int) int {
	asks := func(m agent.Message) bool { return m.Role == agent.RoleUser && !m.Hidden }
	for place > 0 && !asks(transcript[place-1]) {
		place--
	}
	for place > 0 && asks(transcript[place-1]) {
		place--
	}
	return place
}

// toTranscript converts all messages of a session.
func toTranscript(stored []*statev1.StoredMessage) ([]agent.Message, error) {
	transcript := make([]agent.Message, 0, len(stored))
	for i, s := range stored {
		if s.GetOrdinal() != int64(i) {
			return nil, fmt.Errorf("found message %d in the place of message %d", s.GetOrdinal(), i)
		}
		m, err := toMessage(s.GetMessage())
		if err != nil {
			return nil, err
		}
		transcript = append(transcript, m)
	}
	return transcript, nil
}
