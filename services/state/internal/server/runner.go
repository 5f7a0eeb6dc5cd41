package server

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/meters"
	"github.com/holdfast-run/holdfast/services/state/internal/scheduler"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// runner runs commands through the store and notifies the scheduler of their changes. It
// implements scheduler.Commands.
type runner struct {
	store     store.Updater
	scheduler *scheduler.Scheduler
	clock     clock
	ids       ids
	maxFamily int // sessions of one write
	maxUnread int // bytes of unread answers of a session
	schemas   session.SchemaFuncs
	meters    *meters.Meters      // nil measures nothing
	actor     string              // of the caller, for the audit log; empty for executors and the service itself
	intent    session.AuditAction // of a request that may begin a run, or that has one effect; empty for others
}

// by returns the runner for commands of a caller.
func (r *runner) by(c *statev1.Caller) *runner {
	of := *r
	of.actor = c.GetActor()
	return &of
}

// byFor is by for a request whose one effect the audit log has under the name.
func (r *runner) byFor(c *statev1.Caller, effect session.AuditAction) *runner {
	of := r.by(c)
	of.intent = effect
	return of
}

// logErasureDelay is when the live log of a deleted session is removed for the last time. Until then its executor
// has learned that the session is gone, and writes no more.
const logErasureDelay = session.Millis(60 * 1000)

// record adds to the changes their entries of the audit log, and the live logs to remove.
func (r *runner) record(views []*session.View, changes []*session.Change) {
	now := r.clock.millis()
	session.EraseLogs(views, changes, now+logErasureDelay)
	session.Audit{Actor: r.actor, Intent: r.intent, Now: now, NewID: newAuditID, Approved: approved}.Record(views, changes)
}

// update runs a command on one session without consequences for its family: the session's
// status stays. bytes is about how much memory the command holds while it waits. decide may be
// called several times, and the last call counts.
func update[A any](ctx context.Context, r *runner, target session.Target, bytes int,
	decide func(*session.View) (*session.Change, A, error)) (A, error) {
	return run(ctx, r, []session.Target{target}, bytes, func(_ []session.Target, views []*session.View) ([]*session.Change, A, error) {
		change, answer, err := decide(views[0])
		if err != nil || change == nil {
			return nil, answer, err
		}
		return []*session.Change{change}, answer, nil
	})
}

// spread runs a command on one session, with the consequences for its parents and children.
func spread[A any](ctx context.Context, r *runner, target session.Target, bytes int, now session.Millis,
	decide func(...*session.View) (*session.Change, A, error)) (A, error) {
	return spreadAll(ctx, r, nil, []session.Target{target}, bytes, now, decide, nil)
}

// spreadAndHandOver is spread for a command that may continue its session. It hands the new run
// to an idle executor.
func spreadAndHandOver[A any](ctx context.Context, r *runner, target session.Target, bytes int, now session.Millis,
	decide func(...*session.View) (*session.Change, A, error)) (A, error) {
	handOver := r.scheduler.HandOver("")
	defer handOver.Abandon()
	answer, err := spreadAll(ctx, r, handOver, []session.Target{target}, bytes, now, decide, nil)
	handOver.Finish(ctx, err)
	return answer, err
}

// spreadAll is spread for a command on several targets, its own session first. handOver may be
// nil. review, unless nil, sees all changes and may correct the answer.
func spreadAll[A any](ctx context.Context, r *runner, handOver *scheduler.HandOver, targets []session.Target, bytes int, now session.Millis,
	decide func(...*session.View) (*session.Change, A, error), review func(changes []*session.Change, answer *A)) (A, error) {
	abandoned, err := abandonedAnswer()
	if err != nil {
		return *new(A), err
	}
	return run(ctx, r, targets, bytes, func(targets []session.Target, views []*session.View) ([]*session.Change, A, error) {
		handOver.Reset()
		own, answer, err := decide(views...)
		if err != nil {
			return nil, answer, err
		}
		family := session.Family{Now: now, NewID: r.ids.run, Targets: targets, Abandon: always(abandoned), ChildEnd: childEnd, MaxUnread: r.maxUnread}
		changes, err := family.Propagate(views, own)
		if err != nil {
			return nil, answer, err
		}
		if review != nil {
			review(changes, &answer)
		}
		if len(changes) > 0 {
			err = handOver.Claim(views[0], changes[0])
		}
		return changes, answer, err
	})
}

// alone adapts a command on its own session only.
func alone[A any](decide func(*session.View) (*session.Change, A, error)) func(...*session.View) (*session.Change, A, error) {
	return func(views ...*session.View) (*session.Change, A, error) { return decide(views[0]) }
}

// silent adapts a command without an answer.
func silent(decide func(*session.View) (*session.Change, error)) func(*session.View) (*session.Change, struct{}, error) {
	return func(v *session.View) (*session.Change, struct{}, error) {
		change, err := decide(v)
		return change, struct{}{}, err
	}
}

// run runs a command on the sessions of the targets, and repeats it with more sessions while it
// gives session.IncompleteViewError. It notifies the scheduler of the written changes.
//
// NotFound (SESSION_NOT_FOUND) for a target of another user than its Owner, Conflict (FAMILY_TOO_LARGE), and the faults of the command and of the store.
func run[A any](ctx context.Context, r *runner, targets []session.Target, bytes int,
	decide func([]session.Target, []*session.View) ([]*session.Change, A, error)) (A, error) {
	const extraRounds = 8 // for commands in need of more rows of the same sessions
	var answer A
	for round := 0; len(targets) <= r.maxFamily; round++ {
		if round > r.maxFamily+extraRounds {
			return answer, errors.New("a command repeatedly asks for sessions it already has")
		}
		var written []*session.Change
		var before []*session.View
		err := r.store.Update(ctx, targets, bytes, func(views []*session.View) ([]*session.Change, error) {
			for i, v := range views {
				if err := targets[i].CheckOwner(v); err != nil {
					return nil, err
				}
			}
			changes, a, err := decide(targets, views)
			answer, written, before = a, changes, views
			if err == nil {
				r.record(views, changes)
			}
			return changes, err
		})
		wider, more := errors.AsType[*session.IncompleteViewError](err)
		if !more {
			if err == nil {
				r.scheduler.Notify(written)
				r.meters.Changed(ctx, before, written)
			}
			return answer, err
		}
		targets = wider.Extend(targets)
	}
	return answer, fault.New(fault.Conflict, "FAMILY_TOO_LARGE",
		"more than %d sessions of the family have to change together; change its branches one by one, from below", r.maxFamily)
}

// Fail implements scheduler.Commands.
func (r *runner) Fail(ctx context.Context, ref session.ClaimRef, failure session.Failure, bytes int) error {
	command := session.Finish{ClaimRef: ref, Now: r.clock.millis(), Outcome: session.Outcome{Status: session.RunFailed, Failure: &failure}}
	_, err := spread(ctx, r, session.Target{Key: ref.Key, Need: command.Need()}, bytes, command.Now, alone(command.Decide))
	return err
}

// Release implements scheduler.Commands.
func (r *runner) Release(ctx context.Context, ref session.ClaimRef) error {
	return r.release(ctx, session.Release{ClaimRef: ref, Now: r.clock.millis()})
}

// release queues a claimed run again.
func (r *runner) release(ctx context.Context, command session.Release) error {
	const releaseBytes = 1024 // without usage
	_, err := update(ctx, r, session.Target{Key: command.Key, Need: command.Need()}, releaseBytes+usageBytes(command.Usage), silent(command.Decide))
	return err
}
