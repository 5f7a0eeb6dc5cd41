package conversation

import (
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// Page is a page of UI messages.
//
// Offset, limit and total count stored messages, and several may form one assistant message. A
// UI message belongs to the page of its first stored message and is always complete. Consecutive
// pages therefore contain every UI message exactly once.
//
// Limit is the requested limit, or smaller if the page would be too large. The next page begins at
// Offset+Limit.
type Page struct {
	Messages []uistream.UIMessage `json:"messages"`
	Total    int64                `json:"total" doc:"the stored messages of the session; several may form one UI message, as the steps of an answer do"`
	Offset   int64                `json:"offset" doc:"in stored messages"`
	Limit    int                  `json:"limit" doc:"in stored messages; the next page begins at offset + limit"`
	HasMore  bool                 `json:"hasMore" doc:"stored messages follow; the next page may be empty if they belong to a message of this one"`
}

// pageBytes limits the stored messages of a page. Only the first message may exceed it, and an
// assistant message at the beginning of the page, up to answerBytes: it has to be complete.
const pageBytes = 8 << 20

// lookBack is how many messages before a page are read to learn whether it begins inside an answer.
// Only a few hidden messages can be between two messages of an answer.
const lookBack = 20

// lookAhead is how many messages behind an answer are read for the ends of its open calls. If the
// user wrote a new message, these ends precede the next step.
const lookAhead = 200

// endCalls ends the messages' open calls with results stored at offset from and later.
func (r *Reader) endCalls(ctx context.Context, s *statev1.Session, messages []uistream.UIMessage, from int64) error {
	var seen boundedMessages
	for next := from; uistream.HasOpenCalls(messages) && next < from+lookAhead; {
		page, err := r.listMessages(ctx, s, next, int(from+lookAhead-next))
		if err != nil {
			return err
		}
		for _, m := range page.GetMessages() {
			if !seen.add(m.GetMessage(), pageBytes) {
				return nil
			}
			uistream.ApplyResults(messages, m.GetMessage())
		}
		if !page.GetHasMore() || len(page.GetMessages()) == 0 {
			return nil
		}
		next += int64(len(page.GetMessages()))
	}
	return nil
}

// Page returns a page of the session's conversation. Open calls are shown in their current state:
// requested, answered, or ended if they will not be answered.
func (r *Reader) Page(ctx context.Context, session *statev1.GetSessionResponse, offset int64, limit int) (*Page, error) {
	page, session, err := r.consistentPage(ctx, session, offset, limit)
	if err != nil {
		return nil, err
	}
	page.Messages = DropEmptyAnswer(page.Messages, session.GetCurrentRun())
	uistream.ShowPending(page.Messages, PendingCalls(session))
	uistream.EndUnanswered(page.Messages, UnansweredReasons(session, page.Messages))
	return page, nil
}

// attempts is how often messages are read while the session keeps changing. After that, the calls
// are slightly newer than the messages, and calls missing in them are ignored.
const attempts = 3

// consistentPage returns a page with the session of the same moment. The moment matters only for
// open calls.
func (r *Reader) consistentPage(
	ctx context.Context,
	session *statev1.GetSessionResponse,
	offset int64,
	limit int,
) (*Page, *statev1.GetSessionResponse, error) {
	for attempt := 1; ; attempt++ {
		page, err := r.readPage(ctx, session.GetSession(), offset, limit)
		if err != nil || !uistream.HasOpenCalls(page.Messages) {
			return page, session, err
		}
		now, err := r.SessionDetails(ctx, session.GetSession().GetTenant(), session.GetSession().GetSessionId())
		if err != nil || now.GetSession().GetVersion() == session.GetSession().GetVersion() || attempt == attempts {
			return page, now, err
		}
		session = now
	}
}

func (r *Reader) readPage(ctx context.Context, s *statev1.Session, offset int64, limit int) (*Page, error) {
	w, err := r.readWindow(ctx, s, offset, limit)
	if err != nil {
		return nil, err
	}
	isComplete, err := r.completeAnswer(ctx, s, w)
	if err != nil {
		return nil, err
	}
	own := w.ownMessages()
	last, err := r.lastRun(ctx, s, w, own)
	if err != nil {
		return nil, err
	}
	stored, err := r.loadStored(ctx, s, own, last)
	if err != nil {
		return nil, err
	}
	messages := stored.Conversation()
	if messages == nil {
		messages = []uistream.UIMessage{}
	}
	if err := r.endCalls(ctx, s, messages, offset+int64(len(w.messages))); err != nil {
		return nil, err
	}
	if !isComplete {
		markTruncated(&messages[0]) // only the first answer of a page may be incomplete
	}
	return &Page{Messages: messages, Total: w.total, Offset: offset, Limit: w.limit, HasMore: offset+int64(w.limit) < w.total}, nil
}
