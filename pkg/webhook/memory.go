package webhook

import (
	"sync"
	"time"
)

// A memory keeps ids as long as their requests could be repeated, and no more than these.
const (
	remembered = 2 * Tolerance
	maxSeen    = 10_000
)

// Memory has the ids of the last ten minutes, at most the newest 10,000. The zero value is empty. Safe for concurrent use.
type Memory struct {
	mu   sync.Mutex
	at   map[string]time.Time
	ring []string // the ids in the order of their arrival, from next
	next int
}

// add reports whether the id is new.
func (m *Memory) add(id string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, seen := m.at[id]; seen && now.Sub(at) < remembered {
		return false
	}
	if m.at == nil {
		m.at = map[string]time.Time{}
	}
	if len(m.ring) < maxSeen {
		m.ring = append(m.ring, id)
	} else {
		delete(m.at, m.ring[m.next])
		m.ring[m.next] = id
		m.next = (m.next + 1) % maxSeen
	}
	m.at[id] = now
	return true
}
