// Package sweep does what must happen although nobody asks: it strikes
// executors off that have fallen silent and queues their runs again, answers
// calls whose deadline has passed, and gives sessions up whose time is over.
//
// Every replica sweeps, all at once. Which executor is silent is one fact in
// the store, and a run that several find is requeued by one of them; what is
// overdue is decided anew by the command that answers it. The replicas' clocks
// have to agree to well within the time of silence.
//
// A sweep that cannot have heard anybody must not call anybody silent: after
// its start, and after a time in which the store could not be reached or the
// process stood still, it first listens for as long as an executor may be
// silent. The sweeps over deadlines and expiry look at times that stand in the
// store, and need not listen. Each goes at its own pace, so that thousands of
// deadlines do not make another one deaf.
//
// # Suspects
//
// The socket of a process that is killed is closed at once, and its claim stream
// breaks. So does that of a process that lives: one that drains, or whose
// connection was cut. Therefore a break alone convicts nobody. The executor is
// suspected by the replica that had the stream, and loses its runs only when
// it is not heard either, on any replica, for a grace that is shorter than that of
// silence and still two heartbeats long:
//
//	break ──▶ look ──▶ look, grace begins ── … ──▶ still not heard ──▶ struck off, runs queued
//	                          │
//	                          └─ it was heard, or opened a stream here: cleared
//
// Heard means that the time in its row is another one, whatever a clock says. The
// grace begins anew when the replica cannot have heard it: when it stood still,
// could not reach the store or could not note a heartbeat; and it does not end
// while nobody else is heard, as when what stands between the executors and all
// replicas has failed. Who hangs or vanishes without a word keeps its stream, and is
// found by its silence. A replica that dies takes its suspicions with it.
package sweep

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// requeueBatch is how many runs one transaction requeues at most.
const requeueBatch = 100

// Bounds of one sweep over what is overdue. What it leaves is for the next one.
const (
	maxDue   = 10_000
	dueTimeout = time.Minute
)

// Sweep is the worker. All fields have to be set.
type Sweep struct {
	Store       store.Store
	Every       time.Duration // the pause between two looks for silent executors, and for overdue calls
	SilentAfter time.Duration // how long an executor may be silent
	BrokenAfter time.Duration // how long one may be whose claim stream has broken; 0 for as long as any other
	ExpireEvery time.Duration // the pause between two looks for expired sessions
	Suspects    *Suspects
	Now         func() time.Time
	Wake        func(agentType string)                               // is told of every run that was requeued
	TimeOut     func(context.Context, session.Key) error             // answers the overdue calls of a session
	Expire      func(ctx context.Context, most int) (Summary, error) // gives up sessions whose time is over
	Log         *slog.Logger
}

// Run sweeps until ctx ends, and then returns nil. A sweep that fails is
// logged, and tried again at the next turn.
func (s *Sweep) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { s.watchSilence(ctx) })
	loops.Go(func() { s.watchSuspects(ctx) })
	loops.Go(func() { s.runEvery(ctx, s.Every, "deadlines", s.answerOverdue) })
	loops.Go(func() { s.runEvery(ctx, s.ExpireEvery, "expiry", s.expireSessions) })
	loops.Wait()
	return nil
}

// runEvery does a sweep again and again until ctx ends.
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

// answerOverdue answers the calls that nobody has answered in time.
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

// watchSilence looks for executors that have fallen silent until ctx ends.
func (s *Sweep) watchSilence(ctx context.Context) {
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	listening := s.now() // since when every silence is the executor's own
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

// now is the wall clock, by which silence is judged: unlike the monotonic one it
// goes on while the machine sleeps.
func (s *Sweep) now() time.Time { return s.Now().Round(0) }

func (s *Sweep) sweepSilent(ctx context.Context, now time.Time, forget bool) error {
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
		requeued, err := s.Store.UpdateDue(ctx, store.Silent{}, session.Need{}, requeueBatch, command.Decide)
		if err != nil {
			return err
		}
		for _, d := range requeued {
			s.Log.InfoContext(ctx, "run of a silent executor is queued again",
				"session", d.View.Session.SessionID, "run", d.View.Run.RunID, "executor", d.View.Run.ExecutorID)
			s.Wake(d.View.Run.AgentType)
		}
		if len(requeued) < requeueBatch {
			return nil
		}
	}
}
