package conversation

import (
	"context"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// Page is a page of UI messages.
//
// Offset, limit and total count stored messages, of which an assistant message
// may take several. A UI message belongs to the page in which its first stored
// message lies, and comes whole: pages whose offsets follow each other hold
// every UI message once, and none is split.
type Page struct {
	Messages []uistream.UIMessage `json:"messages"`
	Total    int64                `json:"total"`
	Offset   int64                `json:"offset"`
	Limit    int                  `json:"limit"`
	HasMore  bool                 `json:"hasMore"`
}

// lookBack is how many messages before a page are looked at to learn whether it
// begins in the middle of a run's answer. Between two messages of one answer
// stand hidden messages only, and few.
const lookBack = 20

func (r *Reader) page(ctx context.Context, s *statev1.Session, offset int64, limit int) (*Page, error) {
	from := max(0, offset-lookBack)
	before := int(offset - from)
	window, err := r.window(ctx, s, from, before+limit)
	if err != nil {
		return nil, err
	}
	before = min(before, len(window.messages))
	open := answering(window.messages[:before])
	own := window.messages[before:]
	own, err = r.whole(ctx, s, window, own, offset)
	if err != nil {
		return nil, err
	}
	own = without(own, open)
	ids, err := r.messageIDs(ctx, s, own)
	if err != nil {
		return nil, err
	}
	messages := uistream.Conversation(own, ids)
	if messages == nil {
		messages = []uistream.UIMessage{}
	}
	return &Page{Messages: messages, Total: window.total, Offset: offset, Limit: limit, HasMore: offset+int64(limit) < window.total}, nil
}

// window is a stretch of the stored conversation.
type window struct {
	messages []*eventv1.Message
	total    int64
}

func (r *Reader) window(ctx context.Context, s *statev1.Session, from int64, count int) (*window, error) {
	w := &window{}
	for {
		page, err := r.list(ctx, s, from+int64(len(w.messages)), count-len(w.messages))
		if err != nil {
			return nil, err
		}
		w.total = page.GetTotal()
		for _, m := range page.GetMessages() {
			w.messages = append(w.messages, m.GetMessage())
		}
		if len(w.messages) >= count || !page.GetHasMore() || len(page.GetMessages()) == 0 {
			return w, nil
		}
	}
}

// whole adds to the page the messages behind it that belong to its last answer.
func (r *Reader) whole(ctx context.Context, s *statev1.Session, w *window, own []*eventv1.Message, offset int64) ([]*eventv1.Message, error) {
	run := answering(own)
	next := offset + int64(len(own))
	for run != "" && next < w.total && len(own) < maxAnswer {
		page, err := r.list(ctx, s, next, storedPage)
		if err != nil {
			return nil, err
		}
		for _, m := range page.GetMessages() {
			if !answers(m.GetMessage(), run) && !aside(m.GetMessage()) {
				return own, nil
			}
			own = append(own, m.GetMessage())
		}
		if len(page.GetMessages()) == 0 {
			return own, nil
		}
		next += int64(len(page.GetMessages()))
	}
	return own, nil
}

// answering names the run whose answer is open at the end of the messages, "" for
// none.
func answering(messages []*eventv1.Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if uistream.Answers(m) {
			return m.GetRunId()
		}
		if !aside(m) {
			return ""
		}
	}
	return ""
}

func answers(m *eventv1.Message, run string) bool {
	return run != "" && m.GetRunId() == run && uistream.Answers(m)
}

// aside reports whether the message is no part of what users see.
func aside(m *eventv1.Message) bool {
	return m.GetHidden() || m.GetRole() == eventv1.Role_ROLE_CONTEXT
}

// without drops the rest of an answer that began before the page.
func without(messages []*eventv1.Message, run string) []*eventv1.Message {
	kept := messages[:0:0]
	for _, m := range messages {
		if !answers(m, run) {
			kept = append(kept, m)
		}
	}
	return kept
}

// messageIDs gives the ids of the assistant messages, by run. The newest runs
// come in one answer; older ones are asked for one by one.
func (r *Reader) messageIDs(ctx context.Context, s *statev1.Session, messages []*eventv1.Message) (map[string]string, error) {
	ids := map[string]string{}
	for _, m := range messages {
		if uistream.Answers(m) && m.GetRunId() != "" {
			ids[m.GetRunId()] = ""
		}
	}
	if len(ids) == 0 {
		return ids, nil
	}
	var newest *statev1.ListRunsResponse
	err := retry.Do(ctx, r.Policy, func() (err error) {
		newest, err = r.Runs.ListRuns(ctx, &statev1.ListRunsRequest{Tenant: s.GetTenant(), SessionId: s.GetSessionId(), Limit: storedPage})
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, run := range newest.GetRuns() {
		if _, wanted := ids[run.GetRunId()]; wanted {
			ids[run.GetRunId()] = run.GetMessageId()
		}
	}
	for id, found := range ids {
		if found != "" {
			continue
		}
		run, err := r.Run(ctx, s.GetTenant(), &statev1.Run{SessionId: s.GetSessionId(), RunId: id})
		if err != nil {
			return nil, err
		}
		ids[id] = run.GetMessageId()
	}
	return ids, nil
}
