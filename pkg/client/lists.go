package client

import (
	"cmp"
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// page is the length of a page of a list.
const page = 200

// Lists read page after page while they are consumed, and retry during an outage. A list ends with the first error.

// entries yields the entries of all pages. read reads the next page.
func entries[E any](read func() (entries []E, more bool, err error)) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for more := true; more; {
			var list []E
			var err error
			if list, more, err = read(); err != nil {
				var none E
				yield(none, err)
				return
			}
			for _, entry := range list {
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
}

// Sessions lists the sessions that meet the conditions of r, newest first, from its cursor on.
func (c *Client) Sessions(ctx context.Context, r *agentv1.ListSessionsRequest) iter.Seq2[*agentv1.Session, error] {
	r = proto.CloneOf(r)
	r.Limit = cmp.Or(r.GetLimit(), page)
	return entries(func() ([]*agentv1.Session, bool, error) {
		got, err := callWithRetry(ctx, c, c.agents.ListSessions, r)
		r.Cursor, r.Offset = got.GetNextCursor(), 0
		return got.GetSessions(), r.Cursor != "", err
	})
}

// PendingCalls lists the calls of all sessions that wait for a client, oldest first, from the cursor of r on.
func (c *Client) PendingCalls(ctx context.Context, r *agentv1.ListPendingCallsRequest) iter.Seq2[*agentv1.PendingCall, error] {
	r = proto.CloneOf(r)
	r.Limit = cmp.Or(r.GetLimit(), page)
	return entries(func() ([]*agentv1.PendingCall, bool, error) {
		got, err := callWithRetry(ctx, c, c.agents.ListPendingCalls, r)
		r.Cursor = got.GetNextCursor()
		return got.GetCalls(), r.Cursor != "", err
	})
}

// Runs lists the runs of a session, newest first, without their outputs.
func (c *Client) Runs(ctx context.Context, session string) iter.Seq2[*agentv1.Run, error] {
	r := &agentv1.ListRunsRequest{SessionId: session, Limit: page}
	return entries(func() ([]*agentv1.Run, bool, error) {
		got, err := callWithRetry(ctx, c, c.agents.ListRuns, r)
		if n := len(got.GetRuns()); n > 0 {
			r.BeforeTurn = got.GetRuns()[n-1].GetTurn()
		}
		return got.GetRuns(), got.GetHasMore(), err
	})
}

// Messages lists the messages of a session in the order of the conversation, with hidden ones.
func (c *Client) Messages(ctx context.Context, session string) iter.Seq2[*eventv1.Message, error] {
	r := &agentv1.ListMessagesRequest{SessionId: session, Limit: page}
	return entries(func() ([]*eventv1.Message, bool, error) {
		got, err := callWithRetry(ctx, c, c.agents.ListMessages, r)
		var messages []*eventv1.Message
		for _, m := range got.GetMessages() {
			messages = append(messages, m.GetMessage())
		}
		r.Offset += int64(len(messages))
		return messages, got.GetHasMore(), err
	})
}

// Checkpoints lists the checkpoints of a session, newest first, without their custom states.
func (c *Client) Checkpoints(ctx context.Context, session string) iter.Seq2[*agentv1.Checkpoint, error] {
	r := &agentv1.ListCheckpointsRequest{SessionId: session, Limit: page}
	return entries(func() ([]*agentv1.Checkpoint, bool, error) {
		got, err := callWithRetry(ctx, c, c.agents.ListCheckpoints, r)
		if n := len(got.GetCheckpoints()); n > 0 {
			r.BeforeStep = got.GetCheckpoints()[n-1].GetStep()
		}
		return got.GetCheckpoints(), got.GetHasMore(), err
	})
}

// UsageEntries lists the measurements of a session in the order of recording; without kinds all of them.
func (c *Client) UsageEntries(ctx context.Context, session string, kinds ...eventv1.UsageKind) iter.Seq2[*eventv1.RecordedUsage, error] {
	r := &agentv1.ListUsageRequest{SessionId: session, Kinds: kinds, Limit: page}
	return entries(func() ([]*eventv1.RecordedUsage, bool, error) {
		got, err := callWithRetry(ctx, c, c.agents.ListUsage, r)
		r.Offset += int32(len(got.GetEntries()))
		return got.GetEntries(), got.GetHasMore(), err
	})
}

// AuditEvents lists the events of the audit log that meet the conditions of r, newest first or as r says, from its
// cursor on. Needs the scope admin: Denied (SCOPE_MISSING).
func (c *Client) AuditEvents(ctx context.Context, r *agentv1.ListAuditEventsRequest) iter.Seq2[*eventv1.AuditEvent, error] {
	r = proto.CloneOf(r)
	r.Limit = cmp.Or(r.GetLimit(), page)
	return entries(func() ([]*eventv1.AuditEvent, bool, error) {
		got, err := callWithRetry(ctx, c, c.agents.ListAuditEvents, r)
		if n := len(got.GetEvents()); n > 0 {
			r.Cursor = got.GetEvents()[n-1].GetCursor()
		}
		return got.GetEvents(), got.GetHasMore(), err
	})
}
