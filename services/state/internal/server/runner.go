package server

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/meters"
	"github.com/holdfast-run/holdfast/services/state/internal/scheduler"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// runner reads requests, runs their commands through the store, and notifies the scheduler of the changes. It
// implements scheduler.Commands.
type runner struct {
	store     store.Updater
	scheduler *scheduler.Scheduler
	limits    Limits
	clock     clock
	ids       ids
	family    session.Family // what all commands have in common
	audit     session.Audit  // as family
	schemas   session.SchemaFuncs
	meters    *meters.Meters                  // nil measures nothing
	told      func(changes []*session.Change) // is called after events were stored
}

func newRunner(s store.Updater, limits Limits, clock clock, ids ids) *runner {
	return &runner{
		store: s, limits: limits, clock: clock, ids: ids, schemas: newSchemas(),
		family: session.Family{NewID: ids.run, Abandon: abandon, ChildEnd: childEnd, MaxUnread: limits.StepBytes},
		audit:  session.Audit{NewID: newAuditID, NewEvent: newEventID, Approved: approved},
	}
}

// sessionCommand is a command of package session that sees one session.
type sessionCommand[A any] interface {
	Need() session.Need
	Decide(v *session.View) (*session.Change, A, error)
}

// onFamily returns the command of a request on one session, with its consequences for the family.
func onFamily[A any](x *reader, key session.Key, d sessionCommand[A]) session.Command[A] {
	return session.Command[A]{
		Targets: []session.Target{{Key: key, Need: d.Need(), Owner: x.by.Owner}}, Bytes: x.bytes(), Now: x.now, Actor: x.by.Actor,
		Decide: func(views []*session.View) (*session.Change, A, error) { return d.Decide(views[0]) },
	}
}

// onSession is onFamily for a command that has no consequences for the family.
func onSession[A any](x *reader, key session.Key, d sessionCommand[A]) session.Command[A] {
	c := onFamily(x, key, d)
	c.Alone = true
	return c
}

// onViews is onFamily for a command that sees more sessions than its own, which is the target.
func onViews[A any](x *reader, target session.Target, decide func(views ...*session.View) (*session.Change, A, error)) session.Command[A] {
	return session.Command[A]{
		Targets: []session.Target{target}, Bytes: x.bytes(), Now: x.now, Actor: x.by.Actor,
		Decide: func(views []*session.View) (*session.Change, A, error) { return decide(views...) },
	}
}

// withoutAnswer is a sessionCommand without an answer.
type withoutAnswer struct {
	command interface {
		Need() session.Need
		Decide(v *session.View) (*session.Change, error)
	}
}

// Need implements sessionCommand.
func (w withoutAnswer) Need() session.Need { return w.command.Need() }

// Decide implements sessionCommand.
func (w withoutAnswer) Decide(v *session.View) (*session.Change, struct{}, error) {
	change, err := w.command.Decide(v)
	return change, struct{}{}, err
}

// run runs a command, and repeats it with more sessions while it gives a session.IncompleteViewError. It notifies the
// scheduler of the written changes, and hands a new run over.
//
// Conflict (FAMILY_TOO_LARGE), and the faults of session.Command.Apply and of the store.
func run[A any](ctx context.Context, r *runner, c session.Command[A]) (answer A, err error) {
	var handOver *scheduler.HandOver // nil hands nothing over
	var claim func(*session.View, *session.Change) error
	if c.HandsOver {
		handOver = r.scheduler.HandOver(c.AgentType)
		defer handOver.Abandon()
		c.Targets[0].Need = handOver.Need(c.Targets[0].Need)
		claim = handOver.Claim
	}
	const extraRounds = 8 // for commands in need of more rows of the same sessions
	for round := 0; len(c.Targets) <= r.limits.Family; round++ {
		if round > r.limits.Family+extraRounds {
			return answer, errors.New("a command repeatedly asks for sessions it already has")
		}
		var before []*session.View
		var written []*session.Change
		err := r.store.Update(ctx, c.Targets, c.Bytes, func(views []*session.View) (changes []*session.Change, err error) {
			handOver.Reset()
			audit := r.audit
			audit.Now = r.clock.millis()
			changes, answer, err = c.Apply(views, r.family, audit, claim)
			before, written = views, changes
			return changes, err
		})
		incomplete, more := errors.AsType[*session.IncompleteViewError](err)
		if more {
			c.Targets = incomplete.Extend(c.Targets)
			continue
		}
		if err == nil {
			r.scheduler.Notify(written)
			r.meters.Changed(ctx, before, written)
			r.told(written)
		}
		handOver.Finish(ctx, err)
		return answer, err
	}
	err = fault.New(fault.Conflict, "FAMILY_TOO_LARGE",
		"more than %d sessions of the family have to change together; change its branches one by one, from below", r.limits.Family)
	handOver.Finish(ctx, err)
	return answer, err
}

// Fail implements scheduler.Commands.
func (r *runner) Fail(ctx context.Context, ref session.ClaimRef, failure session.Failure, bytes int) error {
	x := r.read(nil)
	command := session.Finish{ClaimRef: ref, Now: x.now, Outcome: session.Outcome{Status: session.RunFailed, Failure: &failure}}
	c := onFamily(x, ref.Key, command)
	c.Bytes = bytes
	_, err := run(ctx, r, c)
	return err
}

// Release implements scheduler.Commands.
func (r *runner) Release(ctx context.Context, ref session.ClaimRef) error {
	return r.release(ctx, session.Release{ClaimRef: ref, Now: r.clock.millis()})
}

// release queues a claimed run again.
func (r *runner) release(ctx context.Context, command session.Release) error {
	const releaseBytes = 1024 // without usage
	c := onSession(r.read(nil), command.Key, withoutAnswer{command})
	c.Bytes = releaseBytes + session.UsageBytes(command.Usage)
	_, err := run(ctx, r, c)
	return err
}
