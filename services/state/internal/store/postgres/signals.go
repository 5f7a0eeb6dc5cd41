package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var _ store.Signaler = (*Store)(nil)

// channel is where the replicas notify each other. Those of another schema of the same
// database hear it too, and look once in vain.
const channel = "holdfast_state"

// A connection that hears nothing is trusted for so long, and then asked whether it lives.
const (
	aliveEvery   = 30 * time.Second
	answerWithin = 5 * time.Second
)

// Signal implements store.Signaler. A notification holds the lock of all that notify
// while it is committed; it is a transaction of its own, so that no other waits with it,
// and one that need not be durable, so that it does not wait itself.
func (s *Store) Signal(ctx context.Context, signals []string) error {
	const notify = `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2 || signal) FROM unnest($3::text[]) AS signal`
	_, err := s.pool.Exec(ctx, notify, channel, s.name+" ", signals)
	return wrap(ctx, err, "notify the other replicas")
}

// Hear implements store.Signaler, on a connection of its own.
func (s *Store) Hear(ctx context.Context, hear func(signal string)) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return wrap(ctx, err, "connect to hear the other replicas")
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // nothing is in flight
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return wrap(ctx, err, "listen to the other replicas")
	}
	for {
		signal, err := s.next(ctx, conn)
		if err != nil {
			return err
		}
		if signal != "" {
			hear(signal)
		}
	}
}

// next gives the next signal of another replica, or "" after a while in which there was
// nothing else.
func (s *Store) next(ctx context.Context, conn *pgx.Conn) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, aliveEvery)
	defer cancel()
	notification, err := conn.WaitForNotification(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && !conn.IsClosed() {
		asking, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		return "", wrap(ctx, conn.Ping(asking), "hear the other replicas")
	}
	if err != nil {
		return "", wrap(ctx, err, "hear the other replicas")
	}
	from, signal, ok := strings.Cut(notification.Payload, " ")
	if !ok || from == s.name {
		return "", nil
	}
	return signal, nil
}
