package server

import (
	"context"
	"log/slog"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// overdue runs commands due by time, without a request.
type overdue struct {
	lister store.Lister
	runner *runner
	clock  clock
	log    *slog.Logger
}

// expire fails at most limit expired sessions.
func (o *overdue) expire(ctx context.Context, limit int) (sweep.Summary, error) {
	return sweep.Expiry{Store: o.lister, Expire: o.expireSession, Now: o.clock, Log: o.log}.Run(ctx, limit)
}

func (o *overdue) expireSession(ctx context.Context, key session.Key) (session.ExpiryResult, error) {
	x := o.runner.read(nil)
	return run(ctx, o.runner, onFamily(x, key, session.Expire{Key: key, Now: x.now}))
}

// timeOut answers the overdue calls of a session. It does nothing for a deleted session.
func (o *overdue) timeOut(ctx context.Context, key session.Key) error {
	x := o.runner.read(nil)
	_, err := run(ctx, o.runner, onFamily(x, key, session.TimeoutCalls{Key: key, Response: timedOut, NewRunID: x.ids.run(), Now: x.now}))
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}
