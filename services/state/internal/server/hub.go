package server

import (
	"slices"
	"sync"
)

// hub wakes the claim loops that wait for work. A signal wakes one loop that
// serves the agent, in turn, so that work spreads over the executors; nothing
// is kept for a loop that is not waiting, and nobody who signals ever waits.
type hub struct {
	mu      sync.Mutex
	waiters []*waiter // whose turn is next comes first
}

// waiter is a claim loop that can take work.
type waiter struct {
	agents map[string]bool
	woken  chan struct{} // holds one signal, so that none is lost while the loop looks for work
	told   news          // by the signals that the loop has not followed yet; guarded by hub.mu
	rests  *claimer      // the loop's, while it waits and knows of nothing that it has not seen; guarded by hub.mu
}

// news is what signals have told of.
type news struct {
	runs int  // how many came to be work
	ends bool // there are finished ones among them, whose end nobody tells
}

func (n *news) add(more news) {
	n.runs += more.runs
	n.ends = n.ends || more.ends
}

func newHub() *hub { return &hub{} }

// join adds a loop. It has to look for work after it has joined: what came
// before is not told.
func (h *hub) join(agents []string) *waiter {
	w := &waiter{agents: map[string]bool{}, woken: make(chan struct{}, 1)}
	for _, a := range agents {
		w.agents[a] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters = append(h.waiters, w)
	return w
}

// leave removes a loop. Signals that it has not followed go to another one.
func (h *hub) leave(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters = slices.DeleteFunc(h.waiters, func(other *waiter) bool { return other == w })
	if told := w.take(); told.runs > 0 {
		h.wakeAnother(w, told)
	}
}

// take returns what the loop was told since it last asked. It has to look for
// that afterwards: nobody else is told.
func (h *hub) take(w *waiter) news {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.rests = nil
	return w.take()
}

// rest notes that the loop waits and has seen everything that it was told of: what a
// command begins from now on may be handed to it at once, and overtakes nothing that it
// knows of. That ends with the next signal.
func (h *hub) rest(w *waiter, of *claimer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.told.runs == 0 {
		w.rests = of
	}
}

// resting finds an executor that serves the agent and whose loop rests with a place
// free, in turn; nil when there is none.
func (h *hub) resting(agent string) *claimer {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, w := range h.waiters {
		if w.rests == nil || !w.agents[agent] || !w.rests.handed.idle() {
			continue
		}
		if left, ended := w.rests.credits.get(); left > 0 && ended == nil {
			h.waiters = append(slices.Delete(h.waiters, i, i+1), w)
			return w.rests
		}
	}
	return nil
}

// reserve takes a place of the executor, if its loop rests still and has one free.
func (h *hub) reserve(of *claimer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	rests := slices.ContainsFunc(h.waiters, func(w *waiter) bool { return w.rests == of })
	return rests && of.handed.idle() && of.credits.take(1) == 1
}

// take is called under hub.mu.
func (w *waiter) take() news {
	select {
	case <-w.woken:
	default: // the loop was woken by it
	}
	told := w.told
	w.told = news{}
	return told
}

// pass wakes another loop that serves an agent of w, which has found more than
// it can take: finished runs as well, where it has looked for those.
func (h *hub) pass(w *waiter, ends bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeAnother(w, news{1, ends})
}

func (h *hub) wakeAnother(than *waiter, told news) {
	h.wake(told, func(w *waiter) bool { return w != than && w.shares(than) })
}

// shares reports whether the two serve one agent.
func (w *waiter) shares(other *waiter) bool {
	for agent := range w.agents {
		if other.agents[agent] {
			return true
		}
	}
	return false
}

// signal wakes one loop that serves the agent and is not awake: a run of it is
// queued.
func (h *hub) signal(agent string) { h.tell(agent, news{runs: 1}) }

// signalEnd is signal for a finished run whose end nobody tells.
func (h *hub) signalEnd(agent string) { h.tell(agent, news{runs: 1, ends: true}) }

func (h *hub) tell(agent string, told news) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake(told, func(w *waiter) bool { return w.agents[agent] })
}

// wake wakes the first that fits and is not awake. Where all are awake, the
// first will find this as well when it looks.
func (h *hub) wake(told news, fits func(*waiter) bool) {
	var awake *waiter
	for i, w := range h.waiters {
		if !fits(w) {
			continue
		}
		select {
		case w.woken <- struct{}{}:
			w.told.add(told)
			w.rests = nil
			h.waiters = append(slices.Delete(h.waiters, i, i+1), w)
			return
		default:
			if awake == nil {
				awake = w
			}
		}
	}
	if awake != nil {
		awake.told.add(told)
	}
}
