package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

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

// write implements group.Write: one transaction for all commands.
func (s *Store) write(ctx context.Context, batch []command) ([]error, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	defer conn.Release()
	t := &transaction{conn: conn.Conn(), hot: s.hot, batch: batch}
	each, err := t.run(ctx)
	if err != nil {
		t.hot.drop(t.all)
		abandon(ctx, t.conn)
		if ctx.Err() == nil && cancelled(err) {
			// One of them takes too long, and the others are written without it.
			return nil, fmt.Errorf("write %d commands: %w", len(batch), err)
		}
		err = wrap(ctx, err, "write %d commands", len(batch))
	}
	return each, err
}

// transaction writes a batch of commands.
type transaction struct {
	conn  *pgx.Conn
	hot   *hotSessions
	batch []command
	all   []shown // the targets of the commands, in their order
}

// errOutdated says that what was known of a session is not what its row says.
var errOutdated = errors.New("another process has written the session")

// run writes the batch without a read where it can. What was known of the sessions may
// turn out to be outdated; then all of them are read.
func (t *transaction) run(ctx context.Context) ([]error, error) {
	if t.gather() {
		each, err := t.writeWithoutRead(ctx)
		if !errors.Is(err, errOutdated) {
			return each, err
		}
	}
	each, err := t.readAndWrite(ctx)
	if errors.Is(err, errOutdated) {
		abandon(ctx, t.conn)
		t.forget()
		each, err = t.readAndWrite(ctx)
	}
	return each, err
}

// gather collects the targets with what is known of them, and reports whether none has
// to be read.
func (t *transaction) gather() (known bool) {
	known = true
	for _, c := range t.batch {
		for _, target := range c.targets {
			s := shown{Target: target}
			if !s.useHot(t.hot.get(target.Key)) {
				s.view = &session.View{}
				known = false
			}
			t.all = append(t.all, s)
		}
	}
	return known
}

// forget lets all sessions be read.
func (t *transaction) forget() {
	t.hot.drop(t.all)
	for i := range t.all {
		t.all[i].reread()
	}
}

// writeWithoutRead decides by what is known of the sessions, and writes on condition that
// their rows are as they are known, in one round trip. It gives errOutdated, with nothing
// written, when one is not, and when a command refuses or writes nothing: no condition
// verifies that. So it does when a message is there already, which nobody has looked for.
func (t *transaction) writeWithoutRead(ctx context.Context) ([]error, error) {
	each, err := t.decide()
	if err != nil {
		return nil, err
	}
	if !t.verifiable(each) {
		return nil, errOutdated
	}
	var p pipeline
	w := newWriter()
	defer w.release()
	changed := t.changed()
	w.withoutLock(changed)
	for _, s := range changed {
		w.change(s)
	}
	written, something := w.queue(&p)
	if !something {
		return each, nil
	}
	err = p.run(ctx, t.conn)
	if notWritten(err) && !t.conn.IsClosed() {
		t.forget()
		return nil, errOutdated
	}
	if err == nil {
		t.hot.learn(t.all, *written)
	}
	return each, err
}

// verifiable reports whether every command writes something or asks to see more. It lets
// the sessions of the others be read.
func (t *transaction) verifiable(each []error) bool {
	sure := true
	all := t.all
	for i, c := range t.batch {
		mine := all[:len(c.targets)]
		all = all[len(mine):]
		if each != nil && each[i] != nil {
			if _, ok := errors.AsType[*session.Wider](each[i]); ok {
				continue
			}
		} else if slices.ContainsFunc(mine, func(s shown) bool { return s.change != nil }) {
			continue
		}
		sure = false
		for j := range mine {
			mine[j].reread()
		}
	}
	return sure
}

// readAndWrite takes two round trips. The first locks all sessions and reads those that
// are not known. The second writes what the commands have decided, and commits.
func (t *transaction) readAndWrite(ctx context.Context) ([]error, error) {
	r := reader{all: t.all}
	r.exec(begin)
	if err := r.views(ctx, t.conn); err != nil {
		return nil, err
	}
	each, err := t.decide()
	if err != nil {
		return nil, err
	}
	w := newWriter()
	defer w.release()
	for _, s := range t.changed() {
		w.change(s)
	}
	if err := r.end(ctx, t.conn, w, t.hot); err != nil {
		return nil, err
	}
	return each, nil
}

// end writes what w has gathered, and ends the transaction.
func (r *reader) end(ctx context.Context, conn *pgx.Conn, w *writer, hot *hotSessions) error {
	written, something := w.queue(&r.pipeline)
	if !something {
		r.exec(rollback)
		return r.run(ctx, conn)
	}
	r.exec(commit)
	err := r.run(ctx, conn)
	if err == nil {
		hot.learn(r.all, cmp.Or(*written, r.id))
	}
	return err
}

// decide asks the commands, each with its views.
func (t *transaction) decide() (each []error, err error) {
	all := t.all
	for i, c := range t.batch {
		mine := all[:len(c.targets)]
		all = all[len(mine):]
		views := make([]*session.View, len(mine))
		for j := range mine {
			views[j], mine[j].change = mine[j].view, nil
		}
		changes, err := c.decide(views)
		if err != nil {
			if each == nil {
				each = make([]error, len(t.batch))
			}
			each[i] = err
			continue
		}
		if len(changes) != 0 && len(changes) != len(mine) {
			return nil, fmt.Errorf("a command on %d sessions has decided on %d", len(mine), len(changes))
		}
		for j, change := range changes {
			mine[j].change = change
		}
	}
	return each, nil
}

// changed returns the sessions that the commands write, sorted by key, so that
// replicas that wait for each other's rows wait in one order.
func (t *transaction) changed() []*shown {
	list := make([]*shown, 0, len(t.all))
	for i := range t.all {
		if t.all[i].change != nil {
			list = append(list, &t.all[i])
		}
	}
	slices.SortFunc(list, func(a, b *shown) int { return compare(a.Key, b.Key) })
	return list
}

// abandonWithin bounds the end of a transaction that has failed.
const abandonWithin = 5 * time.Second

// abandon ends the transaction that a connection may be in. A connection that
// does not get out of it is closed by the pool.
func abandon(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWithin)
	defer cancel()
	_, _ = conn.PgConn().Exec(ctx, `ROLLBACK`).ReadAll() // the pool looks at the connection itself
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
