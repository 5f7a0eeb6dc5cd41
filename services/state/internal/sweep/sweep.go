// Package sweep does what must happen although nobody asks: it strikes
// executors off that have fallen silent, and queues their runs again.
//
// Every replica sweeps, all at once. Which executor is silent is one fact in
// the store, and a run that several find is requeued by one of them. The
// replicas' clocks have to agree to well within the time of silence.
//
// A sweep that cannot have heard anybody must not call anybody silent: after
// its start, and after a time in which the store could not be reached or the
// process stood still, it first listens for as long as an executor may be
// silent.
package sweep

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// batch is how many runs one transaction requeues at most.
const batch = 100

// Sweep is the worker. All fields have to be set.
type Sweep struct {
	Store       store.Store
	Every       time.Duration // the pause between two sweeps
	SilentAfter time.Duration // how long an executor may be silent
	Now         func() time.Time
	Wake        func(agentType string) // is told of every run that was requeued
	Log         *slog.Logger
}

// Run sweeps until ctx ends, and then returns nil. A sweep that fails is
// logged, and tried again at the next turn.
func (s *Sweep) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	listening := s.now() // since when every silence is the executor's own
	last := listening
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := s.now()
		if now.Sub(last) > s.Every+s.SilentAfter/2 {
			listening = now
		}
		if err := s.sweep(ctx, now, now.Sub(listening) > s.SilentAfter); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			s.Log.WarnContext(ctx, "sweep failed", "error", err)
			listening = s.now()
		}
		last = s.now()
	}
}

// now is the wall clock, by which silence is judged: unlike the monotonic one it
// goes on while the machine sleeps.
func (s *Sweep) now() time.Time { return s.Now().Round(0) }

func (s *Sweep) sweep(ctx context.Context, now time.Time, forget bool) error {
	// No longer than an executor may be silent: a sweep that hangs is blind.
	ctx, cancel := context.WithTimeout(ctx, s.SilentAfter)
	defer cancel()
	if forget {
		n, err := s.Store.Forget(ctx, session.Millis(now.Add(-s.SilentAfter).UnixMilli()))
		if err != nil {
			return err
		}
		if n > 0 {
			s.Log.InfoContext(ctx, "executors fell silent", "count", n)
		}
	}
	return s.requeue(ctx, session.Millis(now.UnixMilli()))
}

// requeue queues the runs again whose executor is struck off.
func (s *Sweep) requeue(ctx context.Context, now session.Millis) error {
	command := session.RequeueSilent{Now: now}
	for {
		requeued, err := s.Store.UpdateDue(ctx, store.Silent{}, session.Need{}, batch, command.Decide)
		if err != nil {
			return err
		}
		for _, d := range requeued {
			s.Log.InfoContext(ctx, "run of a silent executor is queued again",
				"session", d.View.Session.SessionID, "run", d.View.Run.RunID, "executor", d.View.Run.ExecutorID)
			s.Wake(d.View.Run.AgentType)
		}
		if len(requeued) < batch {
			return nil
		}
	}
}
