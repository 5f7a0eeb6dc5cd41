package scheduler

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// absence is the time since this replica last saw an executor of an agent, for each agent announced before. It counts
// only observed time: a replica begins anew when it starts or has missed checks. It counts no time without any executor
// at all. So neither a rolling deploy nor an outage of all executors makes an agent gone: the returning executors are
// given the whole time again.
type absence struct {
	after time.Duration // after which an agent is gone; 0 for never

	mu      sync.Mutex
	checked time.Time            // the last check
	since   map[string]time.Time // by agent
	due     bool                 // no claim loop has searched for the runs of the gone agents since the last check
}

// checksPerAbsence is how often a replica checks within the time after which an agent is gone.
const checksPerAbsence = 20

// maxAbsencePause bounds the pause between two checks.
const maxAbsencePause = 30 * time.Second

func (a *absence) pause() time.Duration { return min(a.after/checksPerAbsence, maxAbsencePause) }

// update takes the agents without an executor, and when each was last announced. executors is how many executors are
// registered.
func (a *absence) update(now time.Time, unserved map[string]session.Millis, executors int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	missed := now.Before(a.checked) || now.Sub(a.checked) > 3*a.pause()
	a.checked = now
	if missed || executors == 0 {
		clear(a.since)
	}
	maps.DeleteFunc(a.since, func(agent string, since time.Time) bool {
		announced, ok := unserved[agent]
		return !ok || announced >= session.Millis(since.UnixMilli()) // it was there between two checks
	})
	for agent := range unserved {
		if _, ok := a.since[agent]; !ok && executors > 0 {
			a.since[agent] = now
		}
	}
	a.due = true
}

// gone returns the absent agents, once after each check. A caller with runs left over calls again.
func (a *absence) gone(now time.Time) (agents []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.due {
		return nil
	}
	a.due = false
	for agent, since := range a.since {
		if now.Sub(since) >= a.after {
			agents = append(agents, agent)
		}
	}
	slices.Sort(agents)
	return agents
}

// rearm lets the next claim loop look for the runs of the gone agents too.
func (a *absence) rearm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due = true
}

// watchAbsence looks for agents without an executor until ctx ends.
func (s *Scheduler) watchAbsence(ctx context.Context) {
	if s.absence.after == 0 {
		return
	}
	ticker := time.NewTicker(s.absence.pause())
	defer ticker.Stop()
	for failing := false; ; {
		err := s.findAbsent(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "agents without an executor could not be read", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Scheduler) findAbsent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	unserved, err := s.Store.Unserved(ctx)
	if err != nil {
		return err
	}
	executors, err := s.Store.LastSeen(ctx)
	if err != nil {
		return err
	}
	s.absence.update(s.Now(), unserved, len(executors))
	return nil
}
