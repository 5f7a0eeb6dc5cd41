package conversation

import (
	"context"
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// window is a range of the stored conversation.
type window struct {
	boundedMessages
	groups *runGroups
	open   string // group of the open answer at the beginning; "" for none
	offset int64
	limit  int // in messages; smaller than requested if they are large
	total  int64
}

// readWindow reads up to limit messages from the offset, within pageBytes.
func (r *Reader) readWindow(ctx context.Context, s *statev1.Session, offset int64, limit int) (*window, error) {
	w := &window{groups: r.newRunGroups(s), offset: offset, limit: limit}
	var before []*eventv1.Message
	for at, end := max(0, offset-lookBack), offset+int64(limit); ; {
		page, err := r.listMessages(ctx, s, at, int(end-at))
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

func withoutContent(m *eventv1.Message) *eventv1.Message {
	return &eventv1.Message{Role: m.GetRole(), Hidden: m.GetHidden(), RunId: m.GetRunId()}
}

// completeAnswer adds the rest of the window's last answer. If the page
// would become too large, the next page begins with this answer instead. isComplete is false if the
// answer is too large for any page.
func (r *Reader) completeAnswer(ctx context.Context, s *statev1.Session, w *window) (isComplete bool, err error) {
	group := w.groups.openGroup(w.messages)
	if group == "" || group == w.open {
		return true, nil
	}
	first := slices.IndexFunc(w.messages, func(m *eventv1.Message) bool { return w.groups.contains(m, group) })
	budget := pageBytes
	if first == 0 {
		budget = answerBytes
	}
	for next := w.offset + int64(len(w.messages)); next < w.total; {
		page, err := r.listMessages(ctx, s, next, storedPage)
		if err != nil {
			return false, err
		}
		for _, m := range page.GetMessages() {
			if err := w.groups.add(ctx, m.GetMessage()); err != nil {
				return false, err
			}
			if !w.groups.contains(m.GetMessage(), group) && !isInvisible(m.GetMessage()) {
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

// lastRun returns the run whose end is shown behind the page: the newest run, or the run of an
// unanswered question; "" for none.
func (r *Reader) lastRun(ctx context.Context, s *statev1.Session, w *window, own []*eventv1.Message) (string, error) {
	end, question := w.offset+int64(len(w.messages)), openQuestion(own)
	switch {
	case end >= w.total && len(own) > 0 && (w.open == "" || w.groups.groupOf(s.GetCurrentRunId()) != w.open):
		return s.GetCurrentRunId(), nil
	case end >= w.total || question == "":
		return "", nil
	}
	next, err := r.listMessages(ctx, s, end, lookBack)
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
