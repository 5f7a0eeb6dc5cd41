package postgres

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

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
	lru   *simplelru.LRU[session.Key, *hotSession]
	bytes int
}

type hotSession struct {
	hot     *session.Hot
	written uint32 // the transaction that has written the row
	bytes   int
}

func newHotSessions() *hotSessions {
	h := &hotSessions{}
	var err error
	h.lru, err = simplelru.NewLRU(mostHot, func(_ session.Key, s *hotSession) { h.bytes -= s.bytes })
	if err != nil {
		panic(err) // the size is a constant above 0
	}
	return h
}

// get returns what is kept of the session; nil for nothing.
func (h *hotSessions) get(key session.Key) *hotSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, _ := h.lru.Get(key)
	return s
}

// put keeps what is known after a transaction. With nil it drops what was known before.
func (h *hotSessions) put(key session.Key, hot *session.Hot, written uint32) {
	entry := &hotSession{hot: hot, written: written}
	if hot != nil {
		entry.bytes = hot.Size()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lru.Remove(key)
	if hot == nil || entry.bytes > largestHot {
		return
	}
	h.lru.Add(key, entry)
	h.bytes += entry.bytes
	for h.bytes > mostHotBytes {
		h.lru.RemoveOldest()
	}
}

// drop forgets what is known of the sessions.
func (h *hotSessions) drop(all []shown) {
	for i := range all {
		h.put(all[i].Key, nil, 0)
	}
}

// learn keeps what is known of the sessions after the transaction has written their
// changes. One that was locked and not written is not known by its row any more.
func (h *hotSessions) learn(all []shown, transaction uint32) {
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
