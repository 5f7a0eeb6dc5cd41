package sweep

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// mostSuspects bounds whom a replica suspects at once. Whoever comes on top
// loses its runs by its silence only.
const mostSuspects = 10_000

// Suspects are the executors whose claim stream to this replica has broken and
// that have not come back to it. Its methods may be called by many goroutines at
// once, and never wait.
type Suspects struct {
	came chan struct{} // holds one signal: there may be somebody

	mu     sync.Mutex
	open   map[string]int // how many claim streams each executor has here
	broken map[string]*suspect
	deaf   bool // a heartbeat was lost since that was last asked
}

// suspect is what the watch knows of an executor. Nobody else reads it.
type suspect struct {
	broke time.Time      // when the watch has learned of it; zero before
	since time.Time      // when the grace has begun; zero before
	heard session.Millis // last, as of then
	other time.Time      // when somebody else was heard within the grace; zero before
}

// NewSuspects returns nobody.
func NewSuspects() *Suspects {
	return &Suspects{came: make(chan struct{}, 1), open: map[string]int{}, broken: map[string]*suspect{}}
}

// Join is for a claim stream that opens. Each needs a Leave.
func (s *Suspects) Join(executorID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[executorID]++
	delete(s.broken, executorID)
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
	if broke && len(s.broken) < mostSuspects {
		s.broken[executorID] = &suspect{}
		select {
		case s.came <- struct{}{}:
		default: // a signal is waiting already
		}
	}
}

// Deaf is for a heartbeat that came and could not be noted: for now nobody's
// silence is a sign.
func (s *Suspects) Deaf() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = true
}

func (s *Suspects) wasDeaf() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	deaf := s.deaf
	s.deaf = false
	return deaf
}

func (s *Suspects) list() map[string]*suspect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.broken)
}

// clear takes the suspicion away, unless it is another one by now.
func (s *Suspects) clear(executorID string, of *suspect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken[executorID] == of {
		delete(s.broken, executorID)
	}
}

func (s *Suspects) clearAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.broken)
}
