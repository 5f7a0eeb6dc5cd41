package cloudflare

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/stop"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// stopWait is how long a client that clears a conversation waits for the end of its run.
const stopWait = 10 * time.Second

// clear removes all messages, after it has stopped the runs.
func (c *connection) clear() error {
	ctx := retry.Request(c.ctx)
	now, err := c.instance.read(ctx)
	if err != nil || c.readOnly {
		return c.restore(err)
	}
	if now.GetSession() == nil {
		return nil
	}
	if err := c.stopAll(ctx, now); err != nil {
		return c.restore(err)
	}
	return c.cut(0)
}

// stopAll stops the waiting runs, and then the live one: its end would start the next.
func (c *connection) stopAll(ctx context.Context, now *reading) error {
	request := stop.Request{Tenant: c.tenant, SessionID: c.address.session, Kind: statev1.StopKind_STOP_KIND_INTERRUPT, Reason: "cleared"}
	for _, run := range slices.Backward(now.GetWaiting()) {
		request.RunID = run.GetRunId()
		if _, err := c.Stops.Stop(ctx, request); err != nil {
			return err
		}
	}
	if !isLive(now.GetSessionResponse) && len(now.GetCalls()) == 0 && len(now.GetWaiting()) == 0 {
		return nil
	}
	request.RunID, request.Wait = "", stopWait
	_, err := c.Stops.Stop(ctx, request)
	return err
}

// cut keeps only the first stored messages.
func (c *connection) cut(keep int64) error {
	ctx := retry.Request(c.ctx)
	request := &statev1.TruncateMessagesRequest{Tenant: c.tenant, SessionId: c.address.session, Count: keep}
	err := retry.Do(ctx, c.Sessions.Policy, func() error {
		_, err := c.Sessions.Sessions.TruncateMessages(ctx, request)
		return err
	})
	if err != nil {
		return c.restore(err)
	}
	now, err := c.instance.read(ctx)
	if err != nil {
		return c.restore(err)
	}
	c.chat.shown = viewOf(now.GetSessionResponse)
	c.instance.changed(c.ctx)
	return nil
}

// restore sends the stored conversation to a client that has changed its own in vain.
func (c *connection) restore(err error) error {
	if err := c.ignore("the conversation of a client is not stored", err); err != nil {
		return err
	}
	return c.sendConversation(false)
}

// setMessages stores the conversation of a client, if it has only removed messages from the end.
// Otherwise the client receives the stored one: messages have been read by a model, and are not
// rewritten.
func (c *connection) setMessages(f received) error {
	var wanted []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(f.Messages, &wanted); err != nil {
		return c.restore(err)
	}
	if len(wanted) == 0 {
		return c.clear()
	}
	ctx := retry.Request(c.ctx)
	now, err := c.Sessions.SessionDetails(ctx, c.tenant, c.address.session)
	if err != nil || c.readOnly || isLive(now) {
		return c.restore(err)
	}
	newest, err := c.Sessions.ReadNewest(ctx, now.GetSession())
	if err != nil || newest.Changed {
		return c.restore(err)
	}
	ids := make([]string, len(wanted))
	for i, m := range wanted {
		ids[i] = m.ID
	}
	keep, err := newest.Keep(ids)
	if err != nil {
		return c.restore(err)
	}
	return c.cut(keep)
}

// attempts is how often a conversation is read while messages are removed from it.
const attempts = 3

// transcript returns the newest part of the conversation, never nil. It is without the message that
// a live run has begun: the client receives that as a stream. Unavailable (SESSION_CHANGING).
func (s *Sockets) transcript(ctx context.Context, now *statev1.GetSessionResponse) ([]uistream.UIMessage, error) {
	session := now.GetSession()
	for range attempts {
		if session == nil || session.GetMessageCount() == 0 {
			return []uistream.UIMessage{}, nil
		}
		newest, err := s.Sessions.ReadNewest(ctx, session)
		if err != nil {
			return nil, err
		}
		if !newest.Changed {
			messages := settle(now, newest.Messages())
			return messages, s.Sessions.AddDescendants(ctx, now, messages)
		}
		if now, err = s.Sessions.SessionDetails(ctx, session.GetTenant(), session.GetSessionId()); err != nil {
			return nil, err
		}
		session = now.GetSession()
	}
	return nil, fault.New(fault.Unavailable, "SESSION_CHANGING", "the conversation changed during %d reads in a row; retry", attempts)
}

// settle shows the calls of the messages as they stand.
func settle(now *statev1.GetSessionResponse, messages []uistream.UIMessage) []uistream.UIMessage {
	run := now.GetCurrentRun()
	uistream.ShowPending(messages, conversation.PendingCalls(now))
	if !conversation.Executing(run) {
		messages = conversation.DropEmptyAnswer(messages, run)
		uistream.EndUnanswered(messages, conversation.UnansweredReasons(now, messages))
		return messages
	}
	last := len(messages) - 1
	if last >= 0 && run.GetEntry() == statev1.RunEntry_RUN_ENTRY_START && messages[last].ID == run.GetMessageId() {
		return messages[:last]
	}
	return messages
}
