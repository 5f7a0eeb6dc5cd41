package postgres

import (
	"container/list"
	"sync"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// The limits of what is kept of claimed sessions: their number, their bytes together and the
// bytes of one. A session that is not kept is read with every command.
const (
	mostHot      = 16_384
	mostHotBytes = 64 << 20
	largestHot   = 64 << 10
)

// hotSessions keeps what this process knows of claimed sessions, since it was the last to
// write them. What it keeps may be old: another process may have written since. So
// whoever decides by it writes on condition that the session's row is still the one
// of hotSession.written. The sessions that were used last are kept.
type hotSessions struct {
	mu    sync.Mutex
	byKey map[session.Key]*list.Element
	used  list.List // of *hotSession, the last used first
	bytes int
}

type hotSession struct {
	key     session.Key
	hot     *session.Hot
	written int64 // the transaction that has written the row, as an int4
	bytes   int
}

func newHotSessions() *hotSessions { return &hotSessions{byKey: map[session.Key]*list.Element{}} }

// get returns what is kept of the session; nil for nothing.
func (h *hotSessions) get(key session.Key) *hotSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byKey[key]
	if e == nil {
		return nil
	}
	h.used.MoveToFront(e)
	return e.Value.(*hotSession)
}

// put keeps what is known after a transaction. With nil it drops what was known before.
func (h *hotSessions) put(key session.Key, hot *session.Hot, written int64) {
	entry := &hotSession{key: key, hot: hot, written: written}
	if hot != nil {
		entry.bytes = hot.Size()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.byKey[key]; e != nil {
		h.remove(e)
	}
	if hot == nil || entry.bytes > largestHot {
		return
	}
	h.byKey[key] = h.used.PushFront(entry)
	h.bytes += entry.bytes
	for h.used.Len() > mostHot || h.bytes > mostHotBytes {
		h.remove(h.used.Back())
	}
}

func (h *hotSessions) remove(e *list.Element) {
	entry := h.used.Remove(e).(*hotSession)
	delete(h.byKey, entry.key)
	h.bytes -= entry.bytes
}

// drop forgets what is known of the sessions.
func (h *hotSessions) drop(all []shown) {
	for i := range all {
		h.put(all[i].Key, nil, 0)
	}
}

// learn keeps what is known of the sessions after the transaction has written their
// changes. One that was locked and not written is not known by its row any more.
func (h *hotSessions) learn(all []shown, transaction int64) {
	for i := range all {
		s := &all[i]
		switch {
		case s.change == nil:
			h.put(s.Key, nil, 0)
		case s.hot != nil:
			h.put(s.Key, s.hot.hot.After(s.change), transaction)
		default:
			h.put(s.Key, session.Heat(s.Need, s.view, s.change), transaction)
		}
	}
}
