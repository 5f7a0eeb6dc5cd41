package cloudflare

import (
	"context"
	"sync"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// turns are those in delivery to one client.
type turns struct {
	mu    sync.Mutex
	all   map[string]*turn // by id
	run   string           // of the last turn whose delivery has ended; "" once showChat has taken it
	shown view             // what the client was shown at that end
	begun int64            // how many readings had begun by then
}

// replace adds a turn and cancels an earlier one with its id.
func (s *turns) replace(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.all[t.id]; earlier != nil {
		earlier.cancel()
		t.aborted = earlier.aborted
	}
	if s.all == nil {
		s.all = map[string]*turn{}
	}
	s.all[t.id] = t
}

// drop cancels the observed turns of a message: the client receives it in another way.
func (s *turns) drop(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.all {
		if t.kind == observed && t.message == message {
			t.cancel()
			delete(s.all, id)
		}
	}
}

// finish writes the end of a turn with a run, and removes the turn. Both are one step for the goroutine
// of work: what a client sends after the end finds no turn, and nothing else is sent before it. write is
// called with the mu.
func (s *turns) finish(t *turn, run string, shown view, write func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[t.id] != t {
		return context.Cause(t.ctx) // whoever removes a turn cancels it
	}
	if err := write(); err != nil {
		return err
	}
	delete(s.all, t.id)
	s.run, s.shown, s.begun = run, shown, t.instance.begun.Load()
	return nil
}

// isOld reports whether a reading began before the end of the last turn. It may be without the turn's
// message; another reading follows.
func (s *turns) isOld(r *reading) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.number <= s.begun
}

// ended reports whether the last ended turn delivered the run.
func (s *turns) ended(run *statev1.Run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run != "" && s.run == run.GetRunId()
}

// takeLast returns the client's view at the end of the last turn, if the turn delivered the run. It does so once.
func (s *turns) takeLast(run *statev1.Run) (shown view, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended = s.run != "" && s.run == run.GetRunId()
	shown = s.shown
	s.run, s.shown = "", view{}
	return shown, ended
}

// find returns the turn with the id; nil for none.
func (s *turns) find(id string) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}

// of returns the turn that delivers a run; nil for none.
func (s *turns) of(run *statev1.Run) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		if t.run == run.GetRunId() || t.message == run.GetMessageId() {
			return t
		}
	}
	return nil
}

// any returns one of the turns; nil for none.
func (s *turns) any() *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.all {
		return t
	}
	return nil
}

func (s *turns) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// abort notes that the client has ended a turn.
func (s *turns) abort(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.aborted = true
}
