package conversation

import (
	"context"
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// Page is a page of UI messages.
//
// Offset, limit and total count stored messages, several of which may form one assistant message. A
// UI message belongs to the page of its first stored message and is always complete. Consecutive
// pages therefore contain every UI message exactly once.
//
// Limit is the requested limit, or smaller if the page would be too large. The next page begins at
// Offset+Limit.
type Page struct {
	Messages []uistream.UIMessage `json:"messages"`
	Total    int64                `json:"total"`
	Offset   int64                `json:"offset"`
	Limit    int                  `json:"limit"`
	HasMore  bool                 `json:"hasMore"`
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
		page, err := r.list(ctx, s, next, int(from+lookAhead-next))
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
func (r *Reader) consistentPage(ctx context.Context, session *statev1.GetSessionResponse, offset int64, limit int) (*Page, *statev1.GetSessionResponse, error) {
	for attempt := 1; ; attempt++ {
		page, err := r.page(ctx, session.GetSession(), offset, limit)
		if err != nil || !uistream.HasOpenCalls(page.Messages) {
			return page, session, err
		}
		now, err := r.Whole(ctx, session.GetSession().GetTenant(), session.GetSession().GetSessionId())
		if err != nil || now.GetSession().GetVersion() == session.GetSession().GetVersion() || attempt == attempts {
			return page, now, err
		}
		session = now
	}
}

func (r *Reader) page(ctx context.Context, s *statev1.Session, offset int64, limit int) (*Page, error) {
	w, err := r.window(ctx, s, offset, limit)
	if err != nil {
		return nil, err
	}
	isWhole, err := r.completeAnswer(ctx, s, w)
	if err != nil {
		return nil, err
	}
	own := w.ownMessages()
	last, err := r.lastRun(ctx, s, w, own)
	if err != nil {
		return nil, err
	}
	stored, err := r.stored(ctx, s, own, last)
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
	if !isWhole {
		markTruncated(&messages[0]) // only the first answer of a page may be incomplete
	}
	return &Page{Messages: messages, Total: w.total, Offset: offset, Limit: w.limit, HasMore: offset+int64(w.limit) < w.total}, nil
}

// window is a range of the stored conversation.
type window struct {
	boundedMessages
	groups *runGroups
	open   string // group of the answer that is open at the beginning; "" for none
	offset int64
	limit  int // in messages; smaller than requested if they are large
	total  int64
}

// window reads up to limit messages from the offset, within pageBytes.
func (r *Reader) window(ctx context.Context, s *statev1.Session, offset int64, limit int) (*window, error) {
	w := &window{groups: r.newRunGroups(s), offset: offset, limit: limit}
	var before []*eventv1.Message
	for at, end := max(0, offset-lookBack), offset+int64(limit); ; {
		page, err := r.list(ctx, s, at, int(end-at))
		if err != nil {
			return nil, err
		}
		w.total = page.GetTotal()
		for _, m := range page.GetMessages() {
			if err := w.groups.add(ctx, m.GetMessage()); err != nil {
				return nil, err
			}
			if at < offset {
				before = append(before, withoutContent(m.GetMessage()))
				w.open = w.groups.openGroup(before)
			} else if !w.add(m.GetMessage(), pageBytes) {
				w.limit = len(w.messages)
				return w, nil
			}
			at++
		}
		if at >= end || !page.GetHasMore() || len(page.GetMessages()) == 0 {
			return w, nil
		}
	}
}

// withoutContent copies the message without its parts.
func withoutContent(m *eventv1.Message) *eventv1.Message {
	return &eventv1.Message{Role: m.GetRole(), Hidden: m.GetHidden(), RunId: m.GetRunId()}
}

// completeAnswer adds the messages behind the window that belong to its last answer. If the page
// would become too large, the next page begins with this answer instead. whole is false if the
// answer is too large for any page.
func (r *Reader) completeAnswer(ctx context.Context, s *statev1.Session, w *window) (isWhole bool, err error) {
	turn := w.groups.openGroup(w.messages)
	if turn == "" || turn == w.open {
		return true, nil
	}
	first := slices.IndexFunc(w.messages, func(m *eventv1.Message) bool { return w.groups.contains(m, turn) })
	budget := pageBytes
	if first == 0 {
		budget = answerBytes
	}
	for next := w.offset + int64(len(w.messages)); next < w.total; {
		page, err := r.list(ctx, s, next, storedPage)
		if err != nil {
			return false, err
		}
		for _, m := range page.GetMessages() {
			if err := w.groups.add(ctx, m.GetMessage()); err != nil {
				return false, err
			}
			if !w.groups.contains(m.GetMessage(), turn) && !isInvisible(m.GetMessage()) {
				return true, nil
			}
			if len(w.messages) >= maxAnswer || !w.add(m.GetMessage(), budget) {
				w.cut(first)
				return first > 0, nil
			}
		}
		if len(page.GetMessages()) == 0 {
			return true, nil
		}
		next += int64(len(page.GetMessages()))
	}
	return true, nil
}

// cut moves the messages from the index on to the next page, except those of the page's first
// answer.
func (w *window) cut(index int) {
	if index > 0 {
		w.messages, w.limit = w.messages[:index], index
	}
}

// lastRun returns the run that ends behind the messages of the page: the session's newest run, or
// that of an unanswered question; "" for none.
func (r *Reader) lastRun(ctx context.Context, s *statev1.Session, w *window, own []*eventv1.Message) (string, error) {
	end, question := w.offset+int64(len(w.messages)), openQuestion(own)
	switch {
	case end >= w.total && len(own) > 0 && (w.open == "" || w.groups.groupOf(s.GetCurrentRunId()) != w.open):
		return s.GetCurrentRunId(), nil
	case end >= w.total || question == "":
		return "", nil
	}
	next, err := r.list(ctx, s, end, lookBack)
	if err != nil {
		return "", err
	}
	for _, m := range next.GetMessages() {
		switch m := m.GetMessage(); {
		case isInvisible(m):
		case isQuestion(m):
			return question, nil
		default:
			return "", nil
		}
	}
	return "", nil
}

// isInvisible reports whether users do not see the message.
func isInvisible(m *eventv1.Message) bool {
	return m.GetHidden() || m.GetRole() == eventv1.Role_ROLE_CONTEXT
}

// ownMessages returns the messages without the rest of an answer that began before the page.
func (w *window) ownMessages() []*eventv1.Message {
	own := w.messages[:0:0]
	for _, m := range w.messages {
		if !w.groups.contains(m, w.open) {
			own = append(own, m)
		}
	}
	return own
}
