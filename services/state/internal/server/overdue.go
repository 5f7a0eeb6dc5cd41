package server

import (
	"context"
	"log/slog"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// overdueBytes is about how much memory such a command holds while it waits.
const overdueBytes = 1024

// overdue runs commands due by time, without a request.
type overdue struct {
	lister store.Lister
	runner *runner
	clock  clock
	ids    ids
	log    *slog.Logger
}

// expire fails at most limit expired sessions.
func (o *overdue) expire(ctx context.Context, limit int) (sweep.Summary, error) {
	return sweep.Expiry{Store: o.lister, Expire: o.expireSession, Now: o.clock, Log: o.log}.Run(ctx, limit)
}

func (o *overdue) expireSession(ctx context.Context, key session.Key) (session.ExpiryResult, error) {
	command := session.Expire{Key: key, Now: o.clock.millis()}
	return spread(ctx, o.runner, session.Target{Key: key, Need: command.Need()}, overdueBytes, command.Now, alone(command.Decide))
}

// timeOut answers the overdue calls of a session. It does nothing for a deleted session.
func (o *overdue) timeOut(ctx context.Context, key session.Key) error {
	answer, err := timedOutAnswer()
	if err != nil {
		return err
	}
	command := session.TimeoutCalls{Key: key, Response: always(answer), NewRunID: o.ids.run(), Now: o.clock.millis()}
	_, err = spread(ctx, o.runner, session.Target{Key: key, Need: command.Need()}, overdueBytes, command.Now, alone(command.Decide))
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	return err
}
