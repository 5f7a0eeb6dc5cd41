package worker

import (
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// once remembers what was done about the calls and messages of the step in flight, by id:
// readers see nothing of them twice. The zero value has done nothing. Safe for concurrent
// use.
type once struct {
	mu        sync.Mutex
	started   map[string]bool // calls whose start was shown
	ended     map[string]bool // calls whose end was shown
	asked     map[string]bool // calls that a human was asked about
	decided   map[string]bool // calls of which a human's decision was shown
	announced map[string]bool // calls, results and messages that hooks have seen
}

// deed is one of the things that are done once.
type deed func(o *once) *map[string]bool

func started(o *once) *map[string]bool   { return &o.started }
func ended(o *once) *map[string]bool     { return &o.ended }
func asked(o *once) *map[string]bool     { return &o.asked }
func decided(o *once) *map[string]bool   { return &o.decided }
func announced(o *once) *map[string]bool { return &o.announced }

// first reports whether it was not done before; from then on it was.
func (o *once) first(what deed, id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	set := what(o)
	if (*set)[id] {
		return false
	}
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[id] = true
	return true
}

func (o *once) start(calls []agent.ToolCall) {
	for _, c := range calls {
		o.first(started, c.ID)
	}
}

// retry is for a step that is shown anew. What hooks have seen they have seen.
func (o *once) retry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.started, o.ended, o.asked, o.decided = nil, nil, nil, nil
}

// forget makes room for the next step, or for another call of the model.
func (o *once) forget() {
	o.retry()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.announced = nil
}
