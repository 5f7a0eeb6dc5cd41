package scheduler

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// The signals between replicas. For a queued run, the agent follows the prefix. For a run ended from outside, the run
// and its executor follow, with a space between them.
const (
	signalQueued = "queued:"
	signalStop   = "stop"
	signalCutOff = "cutoff:"
)

const (
	signalInterval = 10 * time.Millisecond // between two sendings
	signalTimeout  = 2 * time.Second       // of one sending
	listenPause    = time.Second           // between two tries to listen
)

// replicas collects signals for the other replicas. Their polls find the work of lost signals.
type replicas struct {
	more chan struct{} // holds one signal: a signal is pending

	mu      sync.Mutex
	pending map[string]bool
}

// newReplicas returns nil for a store without signals. send on nil does nothing.
func newReplicas(signals store.Signaler) *replicas {
	if signals == nil {
		return nil
	}
	return &replicas{more: make(chan struct{}, 1), pending: map[string]bool{}}
}

func (r *replicas) send(what string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[what] = true
	signal(r.more)
}

func (r *replicas) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for what := range r.pending {
		all = append(all, what)
	}
	clear(r.pending)
	slices.Sort(all)
	return all
}

// exchangeSignals sends and receives signals until ctx ends. It returns at once for a store
// without signals.
func (s *Scheduler) exchangeSignals(ctx context.Context) {
	if s.Signals == nil {
		return
	}
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { s.listen(ctx) })
	for {
		select {
		case <-s.replicas.more:
		case <-ctx.Done():
			return
		}
		s.sendSignals(ctx, s.replicas.take())
		if !pause(ctx, signalInterval) {
			return
		}
	}
}

func (s *Scheduler) sendSignals(ctx context.Context, all []string) {
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	if err := s.Signals.Signal(ctx, all); err != nil {
		s.Log.DebugContext(ctx, "signals to other replicas were not sent; their polls find the work", "error", err)
	}
}

func (s *Scheduler) listen(ctx context.Context) {
	for failing := false; ; failing = true {
		began := s.Now()
		err := s.Signals.Listen(ctx, s.receive)
		if ctx.Err() != nil {
			return
		}
		if !failing || s.Now().Sub(began) > listenPause { // it has received signals meanwhile
			s.Log.WarnContext(ctx, "signals of other replicas are not received; polls find their work meanwhile", "error", err)
		}
		if !pause(ctx, listenPause) {
			return
		}
	}
}

// receive handles a signal of another replica. Several replicas may receive it, so a loop may
// find nothing. Unknown signals come from a newer version, and are ignored.
func (s *Scheduler) receive(what string) {
	if agentType, ok := strings.CutPrefix(what, signalQueued); ok {
		s.hub.notify(agentType, 0)
	} else if ended, ok := strings.CutPrefix(what, signalCutOff); ok {
		runID, executorID, _ := strings.Cut(ended, " ")
		s.stops.send(cutOff(executorID, runID))
	} else if what == signalStop {
		signal(s.stops.signaled)
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
