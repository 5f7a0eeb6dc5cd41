package sweep

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// maxSuspects bounds whom a replica suspects at once. Whoever comes on top
// loses its runs by its silence only.
const maxSuspects = 10_000

// Suspects are the executors whose claim stream to this replica has broken and
// that have not come back to it. Its methods may be called by many goroutines at
// once, and never wait.
type Suspects struct {
	added chan struct{} // holds one signal: there may be somebody

	mu     sync.Mutex
	open   map[string]int // how many claim streams each executor has here
	suspects map[string]*suspect
	missedHeartbeat   bool // a heartbeat was lost since that was last asked
}

// suspect is what the watch knows of an executor. Nobody else reads it.
type suspect struct {
	firstSeen time.Time      // when the watch has learned of it; zero before
	graceBegan time.Time      // when the grace has begun; zero before
	lastSeen session.Millis // last, as of then
	otherSeen time.Time      // when somebody else was heard within the grace; zero before
}

// NewSuspects returns nobody.
func NewSuspects() *Suspects {
	return &Suspects{added: make(chan struct{}, 1), open: map[string]int{}, suspects: map[string]*suspect{}}
}

// Join is for a claim stream that opens. Each needs a Leave.
func (s *Suspects) Join(executorID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[executorID]++
	delete(s.suspects, executorID)
}

// Leave is for a claim stream that has ended. One that broke makes its executor
// a suspect, unless that has another one here.
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
		default: // a signal is waiting already
		}
	}
}

// MissedHeartbeat is for a heartbeat that came and could not be noted: for now nobody's
// silence is a sign.
func (s *Suspects) MissedHeartbeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missedHeartbeat = true
}

func (s *Suspects) takeMissedHeartbeat() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	deaf := s.missedHeartbeat
	s.missedHeartbeat = false
	return deaf
}

func (s *Suspects) list() map[string]*suspect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.suspects)
}

// remove takes the suspicion away, unless it is another one by now.
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
