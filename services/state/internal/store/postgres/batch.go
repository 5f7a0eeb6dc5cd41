package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// command is one Update.
type command struct {
	targets []session.Target
	decide  store.Decide
}

// Update implements store.Updater.
func (s *Store) Update(ctx context.Context, targets []session.Target, bytes int, decide store.Decide) error {
	keys := make([]session.Key, len(targets))
	for i, t := range targets {
		keys[i] = t.Key
	}
	return lasting(s.group.Do(ctx, keys, bytes, command{targets, decide}))
}

// write implements group.Write: one transaction for all commands, in two round
// trips. The first locks all sessions and reads what any command wants to see,
// the second writes what they have decided and commits.
func (s *Store) write(ctx context.Context, batch []command) ([]error, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	defer conn.Release()
	raw := conn.Conn().PgConn()
	each, err := transact(ctx, raw, batch)
	if err != nil {
		abandon(ctx, raw)
		if ctx.Err() == nil && cancelled(err) {
			// One of them takes too long, and the others are written without it.
			return nil, fmt.Errorf("write %d commands: %w", len(batch), err)
		}
		err = wrap(ctx, err, "write %d commands", len(batch))
	}
	return each, err
}

func transact(ctx context.Context, conn *pgconn.PgConn, batch []command) ([]error, error) {
	var r reader
	for _, c := range batch {
		for _, t := range c.targets {
			r.all = append(r.all, shown{Target: t, view: &session.View{}})
		}
	}
	r.exec(begin)
	if err := r.views(ctx, conn); err != nil {
		return nil, err
	}
	decided, each, err := decide(batch, r.all)
	if err != nil {
		return nil, err
	}
	w := newWriter()
	defer w.release()
	for _, d := range decided {
		w.change(d.shown, d.change)
	}
	something, err := w.queue(&r.pipeline)
	if err != nil {
		return nil, err
	}
	end := rollback
	if something {
		end = commit
	}
	r.exec(end)
	return each, r.run(ctx, conn)
}

// decided is what a command writes in one of its sessions.
type decided struct {
	shown  *shown
	change *session.Change
}

// decide asks the commands, each with its views. What they write is sorted by
// key, so that replicas that wait for each other's rows wait in one order.
func decide(batch []command, all []shown) (list []decided, each []error, err error) {
	for i, c := range batch {
		mine := all[:len(c.targets):len(c.targets)]
		all = all[len(mine):]
		views := make([]*session.View, len(mine))
		for j := range mine {
			views[j] = mine[j].view
		}
		changes, err := c.decide(views)
		if err != nil {
			if each == nil {
				each = make([]error, len(batch))
			}
			each[i] = err
			continue
		}
		if len(changes) != 0 && len(changes) != len(mine) {
			return nil, nil, fmt.Errorf("a command on %d sessions has decided on %d", len(mine), len(changes))
		}
		for j, change := range changes {
			if change != nil {
				list = append(list, decided{&mine[j], change})
			}
		}
	}
	slices.SortFunc(list, func(a, b decided) int { return compare(a.shown.Key, b.shown.Key) })
	return list, each, nil
}

// abandonWithin bounds the end of a transaction that has failed.
const abandonWithin = 5 * time.Second

// abandon ends the transaction that a connection may be in. A connection that
// does not get out of it is closed by the pool.
func abandon(ctx context.Context, conn *pgconn.PgConn) {
	if conn.IsClosed() || conn.TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWithin)
	defer cancel()
	var p pipeline
	p.exec(rollback)
	_ = p.run(ctx, conn) // the pool looks at the connection itself
}

// lasting turns a conflict that did not end, and a statement that did not, into
// what callers are told.
func lasting(err error) error {
	switch {
	case duplicate(err):
		return fmt.Errorf("the rows of the command exist already: %w", err)
	case isConflict(err), cancelled(err):
		return store.Unavailable(err)
	}
	return err
}

var _ group.Write[command] = (*Store)(nil).write
