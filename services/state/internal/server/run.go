package server

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// update runs a command on one session that leaves the session's status as it
// is, so that nothing follows for its family. bytes is about how much memory it
// holds while it waits. Of several calls of decide the last one counts.
func update[A any](ctx context.Context, s *Server, target session.Target, bytes int,
	decide func(*session.View) (*session.Change, A, error)) (A, error) {
	return run(ctx, s, []session.Target{target}, bytes, func(_ []session.Target, views []*session.View) ([]*session.Change, A, error) {
		change, answer, err := decide(views[0])
		if err != nil || change == nil {
			return nil, answer, err
		}
		return []*session.Change{change}, answer, nil
	})
}

// spread runs a command on one session, and with it what follows for the
// sessions above and below.
func spread[A any](ctx context.Context, s *Server, target session.Target, bytes int, now session.Millis,
	decide func(...*session.View) (*session.Change, A, error)) (A, error) {
	return spreadFrom(ctx, s, nil, target, bytes, now, decide)
}

// handing is spread for a command that may continue its own session: the run is handed
// to an executor that waits for one.
func handing[A any](ctx context.Context, s *Server, target session.Target, bytes int, now session.Millis,
	decide func(...*session.View) (*session.Change, A, error)) (A, error) {
	place := s.slotFor("")
	defer place.leave()
	answer, err := spreadFrom(ctx, s, place, target, bytes, now, decide)
	place.end(ctx, err)
	return answer, err
}

func spreadFrom[A any](ctx context.Context, s *Server, place *slot, target session.Target, bytes int, now session.Millis,
	decide func(...*session.View) (*session.Change, A, error)) (A, error) {
	return run(ctx, s, []session.Target{target}, bytes, func(targets []session.Target, views []*session.View) ([]*session.Change, A, error) {
		place.try()
		own, answer, err := decide(views...)
		if err != nil {
			return nil, answer, err
		}
		family, err := s.family(targets, now)
		if err != nil {
			return nil, answer, err
		}
		changes, err := family.Spread(views, own)
		if len(changes) > 0 {
			err = place.claim(views[0], changes[0])
		}
		return changes, answer, err
	})
}

func (s *Server) family(targets []session.Target, now session.Millis) (session.Family, error) {
	answer, err := abandoned()
	return session.Family{Now: now, NewID: s.newRunID, Targets: targets, Abandon: always(answer)}, err
}

func (s *Server) newRunID() string { return "run_" + s.newID() }

// alone makes a command that looks at its own session only one that spread
// runs.
func alone[A any](decide func(*session.View) (*session.Change, A, error)) func(...*session.View) (*session.Change, A, error) {
	return func(views ...*session.View) (*session.Change, A, error) { return decide(views[0]) }
}

// silent makes a command without an answer one with an empty answer.
func silent(decide func(*session.View) (*session.Change, error)) func(*session.View) (*session.Change, struct{}, error) {
	return func(v *session.View) (*session.Change, struct{}, error) {
		change, err := decide(v)
		return change, struct{}{}, err
	}
}

// run runs a command on the sessions of the targets, and again on more of them
// for as long as it asks for more. The claim streams learn of the work that it
// has made.
//
// Conflict (FAMILY_TOO_LARGE), and what the command and the store give.
func run[A any](ctx context.Context, s *Server, targets []session.Target, bytes int,
	decide func([]session.Target, []*session.View) ([]*session.Change, A, error)) (A, error) {
	const needs = 8 // how often a command may ask for more of what it sees, and for no other session
	var answer A
	for round := 0; len(targets) <= s.config.Limits.Family; round++ {
		if round > s.config.Limits.Family+needs {
			return answer, errors.New("a command asks again and again for what it was shown")
		}
		var written []*session.Change
		err := s.store.Update(ctx, targets, bytes, func(views []*session.View) ([]*session.Change, error) {
			changes, a, err := decide(targets, views)
			answer, written = a, changes
			return changes, err
		})
		wider, more := errors.AsType[*session.Wider](err)
		if !more {
			if err == nil {
				s.tell(written)
			}
			return answer, err
		}
		targets = wider.Widen(targets)
	}
	return answer, fault.New(fault.Conflict, "FAMILY_TOO_LARGE",
		"more than %d sessions of the family have to change together; change its branches one by one, from below", s.config.Limits.Family)
}

// tell wakes the claim streams for the runs that are work now and that nobody
// holds: queued ones, and ended ones whose end is still to be told. It tells the
// executors of those that are to stop.
func (s *Server) tell(changes []*session.Change) {
	now := s.millis()
	for _, c := range changes {
		if c == nil {
			continue
		}
		for _, r := range []*session.Run{c.NewRun, c.Begun} {
			if r != nil {
				s.wake(r, now)
			}
		}
		for i := range c.Runs {
			r := &c.Runs[i]
			s.wake(r, now)
			if r.Status == session.RunRunning && r.Stop != nil {
				s.stop(store.StoppedRun{ExecutorID: r.ExecutorID, RunID: r.RunID, Stop: *r.Stop})
			}
		}
	}
}

// wake wakes a claim stream for a run that is work now and that nobody holds.
func (s *Server) wake(r *session.Run, now session.Millis) {
	if r.Status == session.RunQueued && r.DueAt <= now {
		s.signal(r.AgentType)
	}
}
