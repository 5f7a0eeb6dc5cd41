package sweep

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// watchLooks is how often the watch looks within the grace of a suspect.
const watchLooks = 20

// watch strikes suspects off that are not heard within their grace.
type watch struct {
	*Sweep
	every time.Duration
	last  time.Time                 // when it looked
	heard map[string]session.Millis // who was heard when, as of then; nil when that is not known
	moved time.Time                 // when it saw last that somebody had been heard
	blind bool                      // its last look failed
}

// watch watches the suspects until ctx ends, and costs nothing while there are
// none.
func (s *Sweep) watch(ctx context.Context) {
	w := &watch{Sweep: s, every: max(s.BrokenAfter/watchLooks, time.Millisecond)}
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for next := (<-chan time.Time)(nil); ; {
		select {
		case <-s.Suspects.came:
			if s.BrokenAfter == 0 {
				s.Suspects.clearAll()
			} else if next == nil {
				ticker.Reset(w.every)
				next, w.last, w.heard = ticker.C, s.now(), nil
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
			w.startOver(suspects)
		}
		if err != nil && !w.blind && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "sweep failed", "sweep", "suspects", "error", err)
		}
		w.blind = err != nil
	}
}

// startOver gives every suspect its whole grace again.
func (w *watch) startOver(suspects map[string]*suspect) {
	w.heard, w.moved = nil, time.Time{}
	for _, one := range suspects {
		one.since = time.Time{}
	}
}

// look clears the suspects that live and strikes those off that do not.
func (w *watch) look(ctx context.Context, now time.Time, suspects map[string]*suspect) error {
	stood := now.Before(w.last) || now.Sub(w.last) > w.every+w.BrokenAfter/4
	w.last = now
	if w.Suspects.wasDeaf() || stood {
		w.startOver(suspects)
	}
	heard, err := w.ask(ctx)
	if err != nil {
		return err
	}
	if w.heard != nil && news(heard, w.heard) {
		w.moved = now
	}
	w.heard = heard
	dead := map[string]session.Millis{}
	for id, one := range suspects {
		at, known := heard[id]
		switch {
		case !known || w.cleared(one, now, at):
			w.Suspects.clear(id, one)
		case w.convicted(one, now):
			dead[id] = at
		}
	}
	if len(dead) == 0 {
		return nil
	}
	return w.strike(ctx, now, dead, suspects)
}

func (w *watch) ask(ctx context.Context) (map[string]session.Millis, error) {
	ctx, cancel := context.WithTimeout(ctx, max(w.BrokenAfter/2, w.every))
	defer cancel()
	return w.Store.Heard(ctx)
}

// news reports whether somebody was heard that was not so before.
func news(heard, before map[string]session.Millis) bool {
	for id, at := range heard {
		if before[id] != at {
			return true
		}
	}
	return false
}

// cleared reports whether nothing is to be done about a suspect: it was heard
// within its grace, or its silence alone is enough by now. The grace begins at the
// second look, when a heartbeat that was on its way at the break has come.
func (w *watch) cleared(one *suspect, now time.Time, heard session.Millis) bool {
	switch {
	case one.broke.IsZero() || now.Before(one.broke):
		one.broke = now
		return false
	case now.Sub(one.broke) > w.SilentAfter:
		return true
	case one.since.IsZero():
		one.since, one.heard, one.other = now, heard, time.Time{}
		return false
	}
	return one.heard != heard
}

// convicted reports whether the grace of a suspect is over: all of it, and half
// of it since somebody else was heard. Where nobody is, heartbeats do not get here.
func (w *watch) convicted(one *suspect, now time.Time) bool {
	if one.since.IsZero() {
		return false
	}
	if one.other.IsZero() && w.moved.After(one.since) {
		one.other = w.moved
	}
	return now.Sub(one.since) >= w.BrokenAfter && !one.other.IsZero() && now.Sub(one.other) >= w.BrokenAfter/2
}

// strike forgets those that have still not been heard, and queues their runs again.
func (w *watch) strike(ctx context.Context, now time.Time, dead map[string]session.Millis, suspects map[string]*suspect) error {
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
		w.Suspects.clear(id, suspects[id])
	}
	w.Log.InfoContext(ctx, "executors lost their claim stream and were not heard again", "count", len(gone))
	return w.requeue(ctx, session.Millis(now.UnixMilli()))
}
