// Package sweep does the work due by time. It unregisters silent executors and requeues
// their runs, answers calls after their deadline, expires sessions, and deletes files without a session.
//
// All replicas sweep at the same time. Which executor is silent is a fact in the store, and a
// run found by several replicas is requeued by one of them. An overdue call is decided again by
// the command that answers it. The clocks of the replicas have to agree to well within
// SilentAfter.
//
// A sweep may have missed heartbeats: after its start, after an outage of the store, and after
// a pause of the process. It then waits for SilentAfter before it calls any executor silent.
// The sweeps for deadlines and expiry compare stored times and need not wait. Each sweep has
// its own pace, so thousands of deadlines do not delay the others.
//
// # Suspects
//
// If a process is killed, its sockets close at once, and its claim stream breaks. But a stream
// also breaks when a living process drains or loses its connection. So a break alone proves
// nothing: it makes the executor a suspect of the replica with the stream. The executor loses
// its runs only if no replica receives a heartbeat for a grace period, shorter than SilentAfter
// and at least two heartbeats long:
//
//	break ──▶ check ──▶ check, grace begins ── … ──▶ still not seen ──▶ unregistered, runs requeued
//	                          │
//	                          └─ it was seen, or opened a stream here: cleared
//
// An executor was seen when the time in its row changes, whatever the clocks say. The grace
// begins again if this replica may have missed heartbeats: it was paused, or could not reach
// the store or store a heartbeat. It does not end while no other executor is seen, because the
// network between the executors and all replicas may have failed. An executor that hangs keeps
// its stream, and is found by its silence. The suspects of a replica end with it.
package sweep

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/meters"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// requeueBatch is how many runs one transaction requeues at most.
const requeueBatch = 100

// Bounds of one sweep for overdue calls or expired sessions. The next sweep takes the rest.
const (
	maxDue     = 10_000
	dueTimeout = time.Minute
)

// Sweep does the work. All fields but Meters must be set.
type Sweep struct {
	Store       store.Store
	Every       time.Duration // the interval of the searches for silent executors and overdue calls
	SilentAfter time.Duration // how long an executor may be silent
	BrokenAfter time.Duration // the same after its claim stream has broken; 0 for SilentAfter
	ExpireEvery time.Duration // the interval of the searches for expired sessions and unused files
	Suspects    *Suspects
	Now         func() time.Time
	Wake        func(agentType string)                                // is called for every requeued run
	TimeOut     func(context.Context, session.Key) error              // answers the overdue calls of a session
	Expire      func(ctx context.Context, limit int) (Summary, error) // expires at most limit sessions
	Files       func(context.Context) error                           // deletes files without a session
	Audit       func(context.Context) error                           // deletes old entries of the audit log
	Deliveries  func(context.Context) error                           // deletes old deliveries of the outbox
	Log         *slog.Logger
	Meters      *meters.Meters // nil measures nothing
}

// Run sweeps until ctx ends, and then returns nil. A failed sweep is logged, and repeated at
// its next time.
func (s *Sweep) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { s.watchSilence(ctx) })
	loops.Go(func() { s.watchSuspects(ctx) })
	loops.Go(func() { s.runEvery(ctx, s.Every, "deadlines", s.answerOverdue) })
	loops.Go(func() { s.runEvery(ctx, s.ExpireEvery, "expiry", s.expireSessions) })
	loops.Go(func() { s.runEvery(ctx, s.ExpireEvery, "files", s.Files) })
	loops.Go(func() { s.runEvery(ctx, s.ExpireEvery, "audit", s.Audit) })
	loops.Go(func() { s.runEvery(ctx, s.ExpireEvery, "deliveries", s.Deliveries) })
	loops.Wait()
	return nil
}

// runEvery repeats a sweep until ctx ends.
func (s *Sweep) runEvery(ctx context.Context, every time.Duration, name string, sweep func(context.Context) error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		within, cancel := context.WithTimeout(ctx, dueTimeout)
		if err := sweep(within); err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "sweep failed", "sweep", name, "error", err)
		}
		cancel()
	}
}

// answerOverdue answers the overdue calls.
func (s *Sweep) answerOverdue(ctx context.Context) error {
	find := func(ctx context.Context, limit int) ([]session.Key, error) {
		return s.Store.Overdue(ctx, session.Millis(s.now().UnixMilli()), limit)
	}
	return forEachDue(ctx, maxDue, find, func(ctx context.Context, key session.Key) error {
		err := s.TimeOut(ctx, key)
		if err != nil && ctx.Err() == nil {
			s.Log.WarnContext(ctx, "overdue calls could not be answered", "tenant", key.Tenant, "session", key.SessionID, "error", err)
		}
		return err
	})
}

func (s *Sweep) expireSessions(ctx context.Context) error {
	sum, err := s.Expire(ctx, maxDue)
	if sum.Detected > 0 {
		s.Log.InfoContext(ctx, "sessions expired",
			"detected", sum.Detected, "marked", sum.Marked, "already_terminal", sum.AlreadyTerminal, "errors", sum.Errors)
	}
	return err
}

// watchSilence looks for silent executors until ctx ends.
func (s *Sweep) watchSilence(ctx context.Context) {
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	listening := s.now() // since when this replica has missed no heartbeat
	last := listening
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := s.now()
		if now.Sub(last) > s.Every+s.SilentAfter/2 {
			listening = now
		}
		if err := s.sweepSilent(ctx, now, now.Sub(listening) > s.SilentAfter); err != nil {
			if ctx.Err() != nil {
				return
			}
			s.Log.WarnContext(ctx, "sweep failed", "sweep", "silence", "error", err)
			listening = s.now()
		}
		last = s.now()
	}
}

// now returns the wall clock, which measures silence: unlike the monotonic clock it goes on
// while the machine sleeps.
func (s *Sweep) now() time.Time { return s.Now().Round(0) }

func (s *Sweep) sweepSilent(ctx context.Context, now time.Time, forget bool) error {
	// A sweep that hangs for longer has missed heartbeats itself.
	ctx, cancel := context.WithTimeout(ctx, s.SilentAfter)
	defer cancel()
	if forget {
		n, err := s.Store.UnregisterSilent(ctx, session.Millis(now.Add(-s.SilentAfter).UnixMilli()))
		if err != nil {
			return err
		}
		if n > 0 {
			s.Log.InfoContext(ctx, "silent executors were unregistered", "count", n)
		}
	}
	return s.requeue(ctx, session.Millis(now.UnixMilli()))
}

// requeue requeues the runs of unregistered executors.
func (s *Sweep) requeue(ctx context.Context, now session.Millis) error {
	command := session.RequeueSilent{Now: now}
	for {
		requeued, err := s.Store.UpdateDue(ctx, store.OwnerUnregistered{}, session.Need{}, requeueBatch, command.Decide)
		if err != nil {
			return err
		}
		s.Meters.Requeued(ctx, len(requeued), meters.ExecutorLost)
		for _, d := range requeued {
			s.Log.InfoContext(ctx, "run of a silent executor is requeued",
				"session", d.View.Session.SessionID, "run", d.View.Run.RunID, "executor", session.ExecutorName(d.View.Run.ExecutorID))
			s.Wake(d.View.Run.AgentType)
		}
		if len(requeued) < requeueBatch {
			return nil
		}
	}
}
