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

// leave removes a loop. A signal that it has not followed goes to another one.
func (h *hub) leave(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters = slices.DeleteFunc(h.waiters, func(other *waiter) bool { return other == w })
	select {
	case <-w.woken:
		h.wakeAnother(w)
	default:
	}
}

// pass wakes another loop that serves an agent of w, which has found more than
// it can take.
func (h *hub) pass(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeAnother(w)
}

func (h *hub) wakeAnother(than *waiter) {
	h.wake(func(w *waiter) bool { return w != than && w.shares(than) })
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

// signal wakes one loop that serves the agent and is not awake.
func (h *hub) signal(agent string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake(func(w *waiter) bool { return w.agents[agent] })
}

// wake wakes the first that fits and is not awake.
func (h *hub) wake(fits func(*waiter) bool) {
	for i, w := range h.waiters {
		if !fits(w) {
			continue
		}
		select {
		case w.woken <- struct{}{}:
			h.waiters = append(slices.Delete(h.waiters, i, i+1), w)
			return
		default: // awake already
		}
	}
}
