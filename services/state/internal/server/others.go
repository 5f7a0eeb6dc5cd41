package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// What replicas tell each other, where their store carries signals. Behind the first one
// is the agent.
const (
	signalQueued = "queued:"
	signalStop   = "stop"
)

const (
	// signalEvery is how long a replica waits behind signals before it sends others.
	signalEvery = 10 * time.Millisecond
	// signalWithin bounds one sending.
	signalWithin = 2 * time.Second
	// hearAgain is how long a replica that hears nobody waits before it tries again.
	hearAgain = time.Second
)

// others are the other replicas of the service, which may have the executors of what
// happens here. What they miss they find by their polls.
type others struct {
	more chan struct{} // holds one signal: something waits

	mu    sync.Mutex
	waits map[string]bool
}

// newOthers returns nil, which is told in vain, for a store that carries no signals.
func newOthers(s store.Store) *others {
	if _, carries := s.(store.Signaler); !carries {
		return nil
	}
	return &others{more: make(chan struct{}, 1), waits: map[string]bool{}}
}

func (o *others) tell(what string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits[what] = true
	signal(o.more)
}

func (o *others) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for what := range o.waits {
		all = append(all, what)
	}
	clear(o.waits)
	slices.Sort(all)
	return all
}

// signal wakes a claim loop for a queued run of the agent: of this replica, or, where none
// here can take it, of the others.
func (s *Server) signal(agent string) {
	if !s.hub.signal(agent) {
		s.others.tell(signalQueued + agent)
	}
}

// stop tells the executor of a run that is to stop, here or at another replica.
func (s *Server) stop(run store.StoppedRun) {
	if !s.stops.tell(run) {
		s.others.tell(signalStop)
	}
}

// KeepInTouch tells the other replicas of work and hears them until ctx ends. Where the
// store carries no signals it returns at once.
func (s *Server) KeepInTouch(ctx context.Context) {
	carrier, carries := s.store.(store.Signaler)
	if !carries {
		return
	}
	var hearing sync.WaitGroup
	defer hearing.Wait()
	hearing.Go(func() { s.hear(ctx, carrier) })
	for {
		select {
		case <-s.others.more:
		case <-ctx.Done():
			return
		}
		s.send(ctx, carrier, s.others.take())
		if !pause(ctx, signalEvery) {
			return
		}
	}
}

func (s *Server) send(ctx context.Context, carrier store.Signaler, all []string) {
	ctx, cancel := context.WithTimeout(ctx, signalWithin)
	defer cancel()
	if err := carrier.Signal(ctx, all); err != nil {
		s.log.DebugContext(ctx, "other replicas were not told of work, and find it by their polls", "error", err)
	}
}

func (s *Server) hear(ctx context.Context, carrier store.Signaler) {
	for broken := false; ; broken = true {
		began := s.now()
		err := carrier.Hear(ctx, s.heard)
		if ctx.Err() != nil {
			return
		}
		if !broken || s.now().Sub(began) > hearAgain { // it has heard them meanwhile
			s.log.WarnContext(ctx, "other replicas are not heard, and work of theirs is found by polls until they are", "error", err)
		}
		if !pause(ctx, hearAgain) {
			return
		}
	}
}

// heard follows a signal of another replica. Several may hear it, so that a loop that
// finds nothing has missed nothing. What it does not know is of a newer replica.
func (s *Server) heard(what string) {
	if agent, ok := strings.CutPrefix(what, signalQueued); ok {
		s.hub.tell(agent, 0)
	} else if what == signalStop {
		signal(s.stops.heard)
	}
}

// pause reports false when ctx has ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
