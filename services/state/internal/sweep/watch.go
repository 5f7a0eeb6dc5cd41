package sweep

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// checksPerGrace is how often the watcher checks within a grace period.
const checksPerGrace = 20

// watcher unregisters suspects not seen within their grace.
type watcher struct {
	*Sweep
	every     time.Duration
	lastCheck time.Time
	lastSeen  map[string]session.Millis // by executor, as of the last check; nil when unknown
	advanced  time.Time                 // the last check that saw a new heartbeat of any executor
	failing   bool                      // the last check failed
}

// watchSuspects watches the suspects until ctx ends. Without suspects it makes no queries.
func (s *Sweep) watchSuspects(ctx context.Context) {
	w := &watcher{Sweep: s, every: max(s.BrokenAfter/checksPerGrace, time.Millisecond)}
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for next := (<-chan time.Time)(nil); ; {
		select {
		case <-s.Suspects.added:
			if s.BrokenAfter == 0 {
				s.Suspects.removeAll()
			} else if next == nil {
				ticker.Reset(w.every)
				next, w.lastCheck, w.lastSeen = ticker.C, s.now(), nil
			}
			continue
		case <-next:
		case <-ctx.Done():
			return
		}
		suspects := s.Suspects.list()
		if len(suspects) == 0 {
			next = nil // until there is a suspect
			continue
		}
		err := w.check(ctx, s.now(), suspects)
		if err != nil {
			w.restartGrace(suspects)
		}
		if err != nil && !w.failing && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "sweep failed", "sweep", "suspects", "error", err)
		}
		w.failing = err != nil
	}
}

// restartGrace gives every suspect its whole grace again.
func (w *watcher) restartGrace(suspects map[string]*suspect) {
	w.lastSeen, w.advanced = nil, time.Time{}
	for _, s := range suspects {
		s.graceBegan = time.Time{}
	}
}

// check clears the suspects seen again, and unregisters the dead ones.
func (w *watcher) check(ctx context.Context, now time.Time, suspects map[string]*suspect) error {
	paused := now.Before(w.lastCheck) || now.Sub(w.lastCheck) > w.every+w.BrokenAfter/4
	w.lastCheck = now
	if w.Suspects.takeMissedHeartbeat() || paused {
		w.restartGrace(suspects)
	}
	seen, err := w.readLastSeen(ctx)
	if err != nil {
		return err
	}
	if w.lastSeen != nil && hasNewer(seen, w.lastSeen) {
		w.advanced = now
	}
	w.lastSeen = seen
	dead := map[string]session.Millis{}
	for id, s := range suspects {
		at, known := seen[id]
		switch {
		case !known || w.isCleared(s, now, at):
			w.Suspects.remove(id, s)
		case w.isDead(s, now):
			dead[id] = at
		}
	}
	if len(dead) == 0 {
		return nil
	}
	return w.unregister(ctx, now, dead, suspects)
}

func (w *watcher) readLastSeen(ctx context.Context) (map[string]session.Millis, error) {
	ctx, cancel := context.WithTimeout(ctx, max(w.BrokenAfter/2, w.every))
	defer cancel()
	return w.Store.LastSeen(ctx)
}

// hasNewer reports whether an executor was seen since before.
func hasNewer(seen, before map[string]session.Millis) bool {
	for id, at := range seen {
		if before[id] != at {
			return true
		}
	}
	return false
}

// isCleared reports whether a suspect needs no more checks: it was seen within its grace, or its
// silence has become long enough for the other sweep. The grace begins at the second check: by
// then a heartbeat sent before the break has arrived.
func (w *watcher) isCleared(s *suspect, now time.Time, seen session.Millis) bool {
	switch {
	case s.firstSeen.IsZero() || now.Before(s.firstSeen):
		s.firstSeen = now
		return false
	case now.Sub(s.firstSeen) > w.SilentAfter:
		return true
	case s.graceBegan.IsZero():
		s.graceBegan, s.lastSeen, s.otherSeen = now, seen, time.Time{}
		return false
	}
	return s.lastSeen != seen
}

// isDead reports whether the grace of a suspect has ended: all of it has passed, and half of it
// since another executor was seen. If no other is seen, heartbeats do not arrive.
func (w *watcher) isDead(s *suspect, now time.Time) bool {
	if s.graceBegan.IsZero() {
		return false
	}
	if s.otherSeen.IsZero() && w.advanced.After(s.graceBegan) {
		s.otherSeen = w.advanced
	}
	return now.Sub(s.graceBegan) >= w.BrokenAfter && !s.otherSeen.IsZero() && now.Sub(s.otherSeen) >= w.BrokenAfter/2
}

// unregister unregisters the dead suspects, unless they are seen at the last moment, and
// requeues their runs.
func (w *watcher) unregister(ctx context.Context, now time.Time, dead map[string]session.Millis, suspects map[string]*suspect) error {
	ctx, cancel := context.WithTimeout(ctx, w.SilentAfter)
	defer cancel()
	unregistered, err := w.Store.UnregisterUnseen(ctx, dead)
	if err != nil {
		return err
	}
	if len(unregistered) == 0 {
		return nil
	}
	for _, id := range unregistered {
		w.Suspects.remove(id, suspects[id])
	}
	w.Log.InfoContext(ctx, "executors with a broken claim stream sent no heartbeat and were unregistered", "count", len(unregistered))
	return w.requeue(ctx, session.Millis(now.UnixMilli()))
}
