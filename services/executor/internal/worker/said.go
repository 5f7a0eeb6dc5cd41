package worker

import (
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// said is what readers were told of the calls of the step in flight, by id: nothing is
// told of them twice, and the end of each once the step is committed. The zero value has
// told nothing. Safe for concurrent use.
type said struct {
	mu     sync.Mutex
	starts map[string]bool
	ends   map[string]bool
	asked  map[string]bool // for an approval
	judged map[string]bool // what a human has decided
	hooked map[string]bool // hooks were: ids of calls, of their results, and of messages
}

// about is one of the things that are told of a call.
type about func(s *said) *map[string]bool

func starts(s *said) *map[string]bool { return &s.starts }
func ends(s *said) *map[string]bool   { return &s.ends }
func asked(s *said) *map[string]bool  { return &s.asked }
func judged(s *said) *map[string]bool { return &s.judged }
func hooked(s *said) *map[string]bool { return &s.hooked }

// first reports whether it has not been told of the call, which from then on it has.
func (s *said) first(what about, callID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := what(s)
	if (*set)[callID] {
		return false
	}
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[callID] = true
	return true
}

func (s *said) begun(calls []agent.ToolCall) {
	for _, c := range calls {
		s.first(starts, c.ID)
	}
}

// adopt takes over what a former owner has told.
func (s *said) adopt(t told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts, s.ends, s.asked, s.judged = t.toolStart, t.toolEnd, t.asked, t.judged
}

// untell is for a step that is told anew: what hooks were called for they have seen.
func (s *said) untell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts, s.ends, s.asked, s.judged = nil, nil, nil, nil
}

// forget makes room for the next step, or for another attempt at this one.
func (s *said) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts, s.ends, s.asked, s.judged, s.hooked = nil, nil, nil, nil, nil
}
