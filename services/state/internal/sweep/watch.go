package sweep

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// looksPerGrace is how often the watch looks within the grace of a suspect.
const looksPerGrace = 20

// watcher strikes suspects off that are not heard within their grace.
type watcher struct {
	*Sweep
	every time.Duration
	lastLook  time.Time                 // when it looked
	lastSeen map[string]session.Millis // who was heard when, as of then; nil when that is not known
	advanced time.Time                 // when it saw last that somebody had been heard
	failing bool                      // its last look failed
}

// watchSuspects watches the suspects until ctx ends, and costs nothing while there are
// none.
func (s *Sweep) watchSuspects(ctx context.Context) {
	w := &watcher{Sweep: s, every: max(s.BrokenAfter/looksPerGrace, time.Millisecond)}
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for next := (<-chan time.Time)(nil); ; {
		select {
		case <-s.Suspects.added:
			if s.BrokenAfter == 0 {
				s.Suspects.removeAll()
			} else if next == nil {
				ticker.Reset(w.every)
				next, w.lastLook, w.lastSeen = ticker.C, s.now(), nil
			}
			continue
		case <-next:
		case <-ctx.Done():
			return
		}
		suspects := s.Suspects.list()
		if len(suspects) == 0 {
			next = nil // until somebody comes
			continue
		}
		err := w.look(ctx, s.now(), suspects)
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
	for _, one := range suspects {
		one.graceBegan = time.Time{}
	}
}

// look clears the suspects that live and strikes those off that do not.
func (w *watcher) look(ctx context.Context, now time.Time, suspects map[string]*suspect) error {
	stood := now.Before(w.lastLook) || now.Sub(w.lastLook) > w.every+w.BrokenAfter/4
	w.lastLook = now
	if w.Suspects.takeMissedHeartbeat() || stood {
		w.restartGrace(suspects)
	}
	heard, err := w.readLastSeen(ctx)
	if err != nil {
		return err
	}
	if w.lastSeen != nil && hasNewer(heard, w.lastSeen) {
		w.advanced = now
	}
	w.lastSeen = heard
	dead := map[string]session.Millis{}
	for id, one := range suspects {
		at, known := heard[id]
		switch {
		case !known || w.isCleared(one, now, at):
			w.Suspects.remove(id, one)
		case w.isDead(one, now):
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
	return w.Store.Heard(ctx)
}

// hasNewer reports whether somebody was heard that was not so before.
func hasNewer(heard, before map[string]session.Millis) bool {
	for id, at := range heard {
		if before[id] != at {
			return true
		}
	}
	return false
}

// isCleared reports whether nothing is to be done about a suspect: it was heard
// within its grace, or its silence alone is enough by now. The grace begins at the
// second look, when a heartbeat that was on its way at the break has come.
func (w *watcher) isCleared(one *suspect, now time.Time, heard session.Millis) bool {
	switch {
	case one.firstSeen.IsZero() || now.Before(one.firstSeen):
		one.firstSeen = now
		return false
	case now.Sub(one.firstSeen) > w.SilentAfter:
		return true
	case one.graceBegan.IsZero():
		one.graceBegan, one.lastSeen, one.otherSeen = now, heard, time.Time{}
		return false
	}
	return one.lastSeen != heard
}

// isDead reports whether the grace of a suspect is over: all of it, and half
// of it since somebody else was heard. Where nobody is, heartbeats do not get here.
func (w *watcher) isDead(one *suspect, now time.Time) bool {
	if one.graceBegan.IsZero() {
		return false
	}
	if one.otherSeen.IsZero() && w.advanced.After(one.graceBegan) {
		one.otherSeen = w.advanced
	}
	return now.Sub(one.graceBegan) >= w.BrokenAfter && !one.otherSeen.IsZero() && now.Sub(one.otherSeen) >= w.BrokenAfter/2
}

// unregister forgets those that have still not been heard, and queues their runs again.
func (w *watcher) unregister(ctx context.Context, now time.Time, dead map[string]session.Millis, suspects map[string]*suspect) error {
	ctx, cancel := context.WithTimeout(ctx, w.SilentAfter)
	defer cancel()
	gone, err := w.Store.ForgetUnheard(ctx, dead)
	if err != nil {
		return err
	}
	if len(gone) == 0 {
		return nil
	}
	for _, id := range gone {
		w.Suspects.remove(id, suspects[id])
	}
	w.Log.InfoContext(ctx, "executors lost their claim stream and were not heard again", "count", len(gone))
	return w.requeue(ctx, session.Millis(now.UnixMilli()))
}
