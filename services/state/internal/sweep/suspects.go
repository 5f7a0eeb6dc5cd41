package sweep

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// maxSuspects bounds the suspects of a replica. Further executors lose their runs by silence
// only.
const maxSuspects = 10_000

// Suspects are the executors with a broken claim stream to this replica that have not opened a
// new one. Its methods may be called by many goroutines at once, and never wait.
type Suspects struct {
	added chan struct{} // holds one signal: there may be a suspect

	mu              sync.Mutex
	open            map[string]int // claim streams to this replica, by executor
	suspects        map[string]*suspect
	missedHeartbeat bool // since the last takeMissedHeartbeat
}

// suspect is the state of a suspect. Only the watcher uses its fields.
type suspect struct {
	firstSeen  time.Time      // by the watcher
	graceBegan time.Time      // zero before
	lastSeen   session.Millis // of the executor, when the grace began
	otherSeen  time.Time      // when another executor was first seen within the grace; zero before
}

// NewSuspects returns an empty set.
func NewSuspects() *Suspects {
	return &Suspects{added: make(chan struct{}, 1), open: map[string]int{}, suspects: map[string]*suspect{}}
}

// Join counts a new claim stream. Each needs a Leave.
func (s *Suspects) Join(executorID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[executorID]++
	delete(s.suspects, executorID)
}

// Leave counts the end of a claim stream. A broken one makes its executor a suspect, unless it
// has another stream here.
func (s *Suspects) Leave(executorID string, broke bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[executorID]--
	if s.open[executorID] > 0 {
		return
	}
	delete(s.open, executorID)
	if broke && len(s.suspects) < maxSuspects {
		s.suspects[executorID] = &suspect{}
		select {
		case s.added <- struct{}{}:
		default: // a signal is already pending
		}
	}
}

// MissedHeartbeat notes a heartbeat that could not be stored: for now, silence proves nothing.
func (s *Suspects) MissedHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missedHeartbeat = true
}

func (s *Suspects) takeMissedHeartbeat() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := s.missedHeartbeat
	s.missedHeartbeat = false
	return missed
}

func (s *Suspects) list() map[string]*suspect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.suspects)
}

// remove clears a suspect, unless it has become one again.
func (s *Suspects) remove(executorID string, of *suspect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspects[executorID] == of {
		delete(s.suspects, executorID)
	}
}

func (s *Suspects) removeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.suspects)
}
