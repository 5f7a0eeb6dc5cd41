package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is the channel of NOTIFY between replicas. Replicas on other schemas of
// the database receive its signals too, and find nothing to do.
const channel = "holdfast_state"

// A listening connection without notifications is pinged at this interval.
const (
	pingInterval = 30 * time.Second
	pingTimeout  = 5 * time.Second
)

// Signal implements store.Signaler. All notifying transactions
// share a lock during their commits. So a NOTIFY has its own transaction, not flushed to
// disk, and no command waits for it.
func (s *Store) Signal(ctx context.Context, signals []string) error {
	const notify = `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2 || signal) FROM unnest($3::text[]) AS signal`
	_, err := s.pool.Exec(ctx, notify, channel, s.name+" ", signals)
	return wrap(ctx, err, "notify the other replicas")
}

// Listen implements store.Signaler, on a connection of its own.
func (s *Store) Listen(ctx context.Context, hear func(signal string)) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return wrap(ctx, err, "connect to receive signals of the other replicas")
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // nothing is in flight
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return wrap(ctx, err, "listen for signals of the other replicas")
	}
	for {
		signal, err := s.nextSignal(ctx, conn)
		if err != nil {
			return err
		}
		if signal != "" {
			hear(signal)
		}
	}
}

// nextSignal returns the next signal of another replica, or "" for an own signal and
// after pingInterval without any.
func (s *Store) nextSignal(ctx context.Context, conn *pgx.Conn) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, pingInterval)
	defer cancel()
	notification, err := conn.WaitForNotification(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && !conn.IsClosed() {
		asking, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		return "", wrap(ctx, conn.Ping(asking), "receive signals of the other replicas")
	}
	if err != nil {
		return "", wrap(ctx, err, "receive signals of the other replicas")
	}
	from, signal, ok := strings.Cut(notification.Payload, " ")
	if !ok || from == s.name {
		return "", nil
	}
	return signal, nil
}
