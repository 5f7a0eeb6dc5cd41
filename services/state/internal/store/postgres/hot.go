package postgres

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// The limits of the cache: the number of sessions, their bytes in total, and the
// bytes of one session. Other sessions are read for every command.
const (
	maxHotSessions = 16_384
	maxHotBytes    = 64 << 20
	maxHotSize     = 64 << 10
)

// hotCache holds claimed sessions as this process has last written them. An entry
// may be stale, since another process may have written the session meanwhile. A
// transaction on a cached session writes on condition that the session's row still has
// the version hotSession.written. The least recently used entries are evicted.
type hotCache struct {
	mu    sync.Mutex
	lru   *simplelru.LRU[session.Key, *hotSession]
	bytes int
}

type hotSession struct {
	hot     *session.CachedSession
	written uint32 // xmin of the row
	bytes   int
}

func newHotCache() *hotCache {
	h := &hotCache{}
	var err error
	h.lru, err = simplelru.NewLRU(maxHotSessions, func(_ session.Key, s *hotSession) { h.bytes -= s.bytes })
	if err != nil {
		panic(err) // the size is a constant above 0
	}
	return h
}

// get returns the cached session; nil if there is none.
func (h *hotCache) get(key session.Key) *hotSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, _ := h.lru.Get(key)
	return s
}

// put replaces the cached session. nil removes it.
func (h *hotCache) put(key session.Key, hot *session.CachedSession, written uint32) {
	entry := &hotSession{hot: hot, written: written}
	if hot != nil {
		entry.bytes = hot.Size()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lru.Remove(key)
	if hot == nil || entry.bytes > maxHotSize {
		return
	}
	h.lru.Add(key, entry)
	h.bytes += entry.bytes
	for h.bytes > maxHotBytes {
		h.lru.RemoveOldest()
	}
}

// drop removes the sessions.
func (h *hotCache) drop(all []loadedSession) {
	for i := range all {
		h.put(all[i].Key, nil, 0)
	}
}

// update caches the sessions as the transaction has written them. It removes locked
// sessions without a change: the lock has changed their xmax.
func (h *hotCache) update(all []loadedSession, transaction uint32) {
	for i := range all {
		s := &all[i]
		switch {
		case s.change == nil:
			h.put(s.Key, nil, 0)
		case s.hot != nil:
			h.put(s.Key, s.hot.hot.After(s.change), transaction)
		default:
			h.put(s.Key, session.CacheSession(s.Need, s.view, s.change), transaction)
		}
	}
}
