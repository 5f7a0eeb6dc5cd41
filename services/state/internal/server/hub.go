package server

import (
	"slices"
	"sync"
	"time"
)

// hub wakes the claim loops that wait for work. A signal wakes one loop that
// serves the agent, in turn, so that work spreads over the executors; nothing
// is kept for a loop that is not waiting, and nobody who signals ever waits.
type hub struct {
	now func() time.Time

	mu      sync.Mutex
	waiters []*waiter // whose turn is next comes first
}

// waiter is a claim loop that can take work.
type waiter struct {
	agents map[string]bool
	woken  chan struct{} // holds one signal, so that none is lost while the loop looks for work

	// Guarded by hub.mu.
	told    int      // how many runs the signals that the loop has not followed yet have told of; those of other replicas do not count, which may have been faster
	of      *claimer // the loop's, while its last look has left no work behind; else nil
	missing int      // runs that it was told of and that its looks have not found yet
}

func newHub(now func() time.Time) *hub { return &hub{now: now} }

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
	if told := w.take(); told > 0 {
		h.wakeAnother(w, told)
	}
}

// take returns what the loop was told since it last asked. It has to look for
// that afterwards, with so many places: nobody else is told.
func (h *hub) take(w *waiter, places int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := w.take()
	if told > places {
		w.of = nil
	}
	return told
}

// seen notes that a look of the loop has left no work behind that it could take, but
// for so many runs that it was told of and has not found. What a command begins from
// now on may be handed to its executor at once, while there are places beside those for
// the runs that the loop knows of.
func (h *hub) seen(w *waiter, of *claimer, missing int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.of, w.missing = of, missing
}

// behind notes that there may be more work than the loop has taken: nothing overtakes it.
func (h *hub) behind(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.of = nil
}

// spare reports whether a run may be handed to the loop's executor. The caller holds mu.
func (h *hub) spare(w *waiter) bool {
	if w.of == nil || !w.of.handed.room(h.now()) {
		return false
	}
	left, ended := w.of.credits.get()
	return ended == nil && left > w.told+w.missing
}

// placed finds an executor that serves the agent and has a place to spare, in turn; nil
// when there is none.
func (h *hub) placed(agent string) *claimer {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, w := range h.waiters {
		if w.agents[agent] && h.spare(w) {
			h.waiters = append(slices.Delete(h.waiters, i, i+1), w)
			return w.of
		}
	}
	return nil
}

// reserve takes a place of the executor, if it still has one to spare.
func (h *hub) reserve(of *claimer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	spare := slices.ContainsFunc(h.waiters, func(w *waiter) bool { return w.of == of && h.spare(w) })
	return spare && of.credits.take(1) == 1
}

// take is called under hub.mu.
func (w *waiter) take() int {
	select {
	case <-w.woken:
	default: // the loop was woken by it
	}
	told := w.told
	w.told = 0
	return told
}

// pass wakes another loop that serves an agent of w, which has found more than
// it can take.
func (h *hub) pass(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeAnother(w, 1)
}

func (h *hub) wakeAnother(than *waiter, told int) {
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
// queued. It reports whether a loop serves it that can take work.
func (h *hub) signal(agent string) bool { return h.tell(agent, 1) }

func (h *hub) tell(agent string, told int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wake(told, func(w *waiter) bool { return w.agents[agent] })
}

// wake wakes the first that fits and is not awake. Where all are awake, the
// first will find this as well when it looks. It reports whether one fits.
func (h *hub) wake(told int, fits func(*waiter) bool) bool {
	var awake *waiter
	for i, w := range h.waiters {
		if !fits(w) {
			continue
		}
		select {
		case w.woken <- struct{}{}:
			w.told += told
			h.waiters = append(slices.Delete(h.waiters, i, i+1), w)
			return true
		default:
			if awake == nil {
				awake = w
			}
		}
	}
	if awake == nil {
		return false
	}
	awake.told += told
	return true
}
