package scheduler

import (
	"slices"
	"sync"
	"time"
)

// hub wakes waiting claim loops. A signal wakes one loop of the agent, in turn, so work spreads
// over the executors. Without a waiting loop it is dropped. The sender never waits.
type hub struct {
	now func() time.Time

	mu      sync.Mutex
	waiters []*waiter // the next in turn comes first
}

// waiter is a claim loop with free credits.
type waiter struct {
	agents  map[string]bool
	credits *credits
	woken   chan struct{} // holds one signal, so none is lost while the loop looks for work

	// Guarded by hub.mu.
	notified int      // runs of the signals since the last take; signals of other replicas count 0, because their loops may be faster
	idle     *claimer // the loop's claimer, while no queued run is left for it; else nil
	missing  int      // runs signaled and not found
}

func newHub(now func() time.Time) *hub { return &hub{now: now} }

// join adds a loop. Its next query must follow: earlier runs leave no signal.
func (h *hub) join(agents []string, credits *credits) *waiter {
	w := &waiter{agents: map[string]bool{}, credits: credits, woken: make(chan struct{}, 1)}
	for _, a := range agents {
		w.agents[a] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters = append(h.waiters, w)
	return w
}

// leave removes a loop. Its pending signals go to another one.
func (h *hub) leave(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters = slices.DeleteFunc(h.waiters, func(other *waiter) bool { return other == w })
	if runs := w.take(); runs > 0 {
		h.wakeAnother(w, runs)
	}
}

// take returns the number of runs signaled since the last take. The loop has to query them
// with limit credits, because no other loop was notified.
func (h *hub) take(w *waiter, limit int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := w.take()
	if runs > limit {
		w.idle = nil
	}
	return runs
}

// markIdle notes that a query has left no queued run, but for the missing ones. Commands may
// claim runs for the executor while it has more credits than known runs.
func (h *hub) markIdle(w *waiter, c *claimer, missing int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.idle, w.missing = c, missing
}

// markBacklog notes a possible backlog. No new run overtakes it.
func (h *hub) markBacklog(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.idle = nil
}

// hasRoom reports whether a command may claim a run for the executor. The caller holds mu.
func (h *hub) hasRoom(w *waiter) bool {
	if w.idle == nil || !w.idle.outbox.accepts(h.now()) {
		return false
	}
	return w.credits.open() > w.notified+w.missing
}

// findIdle returns an idle executor of the agent with room for a run, in turn; nil if there is
// none. An empty agentType fits all.
func (h *hub) findIdle(agentType string) *claimer {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, w := range h.waiters {
		if (agentType == "" || w.agents[agentType]) && h.hasRoom(w) {
			h.waiters = append(slices.Delete(h.waiters, i, i+1), w)
			return w.idle
		}
	}
	return nil
}

// serves reports whether the executor waits for runs of the agent.
func (h *hub) serves(c *claimer, agentType string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return c != nil && slices.ContainsFunc(h.waiters, func(w *waiter) bool { return w.idle == c && w.agents[agentType] })
}

// reserve takes a credit of the executor, if it still has room for a run.
func (h *hub) reserve(c *claimer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := slices.ContainsFunc(h.waiters, func(w *waiter) bool { return w.idle == c && h.hasRoom(w) })
	if !room {
		return false
	}
	n, spare := c.credits.take(1)
	if spare { // the loop took the others since
		c.credits.giveBack(n)
	}
	return n == 1 && !spare
}

// idle implements Scheduler.Idle.
func (h *hub) idle(executorID string) (free int, atRest bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waiters {
		if w.idle != nil && w.idle.executorID == executorID && w.notified+w.missing == 0 && w.idle.outbox.empty() {
			free, _ = w.idle.credits.get()
			return free, true
		}
	}
	return 0, false
}

// take is called under hub.mu.
func (w *waiter) take() int {
	select {
	case <-w.woken:
	default: // the loop has read the signal itself
	}
	runs := w.notified
	w.notified = 0
	return runs
}

// pass wakes another loop of the same agents, because w may leave work behind.
func (h *hub) pass(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeAnother(w, 1)
}

// passSignal wakes another loop of the same agents that serves any tenant, because w has only spare credits.
func (h *hub) passSignal(w *waiter, runs int) {
	if runs == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake(runs, func(other *waiter) bool { return other != w && other.sharesAgent(w) && other.credits.open() > 0 })
}

func (h *hub) wakeAnother(than *waiter, runs int) {
	h.wake(runs, func(w *waiter) bool { return w != than && w.sharesAgent(than) })
}

func (w *waiter) sharesAgent(other *waiter) bool {
	for agent := range w.agents {
		if other.agents[agent] {
			return true
		}
	}
	return false
}

// signal wakes a loop of the agent for a queued run. It reports whether the loop can take a run of any tenant.
func (h *hub) signal(agentType string) bool { return h.notify(agentType, 1) }

// notify prefers loops that can take a run of any tenant. Without one, it wakes a loop with spare credits.
func (h *hub) notify(agentType string, runs int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wake(runs, func(w *waiter) bool { return w.agents[agentType] && w.credits.open() > 0 }) {
		return true
	}
	h.wake(runs, func(w *waiter) bool { return w.agents[agentType] })
	return false
}

// wake wakes the first fitting loop without a signal. If all have one, the first will find
// these runs as well. It reports whether one fits.
func (h *hub) wake(runs int, fits func(*waiter) bool) bool {
	var awake *waiter
	for i, w := range h.waiters {
		if !fits(w) {
			continue
		}
		select {
		case w.woken <- struct{}{}:
			w.notified += runs
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
	awake.notified += runs
	return true
}
