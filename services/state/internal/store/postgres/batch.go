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
	return asUnavailable(s.group.Do(ctx, keys, bytes, command{targets, decide}))
}

// write implements group.Write: one transaction for all commands.
func (s *Store) write(ctx context.Context, batch []command) ([]error, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	defer conn.Release()
	t := &transaction{conn: conn.Conn(), hot: s.hot, composer: &s.composer, batch: batch}
	each, err := t.run(ctx)
	if err != nil {
		t.hot.drop(t.sessions)
		rollBack(ctx, t.conn)
		if ctx.Err() == nil && isCanceled(err) {
			// One command takes too long: package group writes the others without it.
			return nil, fmt.Errorf("write %d commands: %w", len(batch), err)
		}
		err = wrap(ctx, err, "write %d commands", len(batch))
	}
	return each, err
}

// transaction writes a batch of commands.
type transaction struct {
	conn     *pgx.Conn
	hot      *hotCache
	composer *composer
	batch    []command
	sessions []loadedSession // the targets of the commands, in order
}

// errStale reports a session whose row is newer than its entry in the hot cache.
var errStale = errors.New("another process has written the session")

// run writes the batch without a read if the cache holds every session. When a
// cached session is stale, it reads them all.
func (t *transaction) run(ctx context.Context) ([]error, error) {
	if t.loadHot() {
		each, err := t.writeWithoutRead(ctx)
		if !errors.Is(err, errStale) {
			return each, err
		}
	}
	each, err := t.readAndWrite(ctx)
	if errors.Is(err, errStale) {
		rollBack(ctx, t.conn)
		t.discardHot()
		each, err = t.readAndWrite(ctx)
	}
	return each, err
}

// loadHot collects the targets, with their views from the cache. It reports whether
// the cache has made every view.
func (t *transaction) loadHot() (known bool) {
	known = true
	for _, c := range t.batch {
		for _, target := range c.targets {
			s := loadedSession{Target: target}
			if !s.loadHot(t.hot.get(target.Key)) {
				s.view = &session.View{}
				known = false
			}
			t.sessions = append(t.sessions, s)
		}
	}
	return known
}

// discardHot drops the sessions from the cache. They are then read.
func (t *transaction) discardHot() {
	t.hot.drop(t.sessions)
	for i := range t.sessions {
		t.sessions[i].discardHot()
	}
}

// writeWithoutRead decides on the cached sessions, and writes in one round trip on
// condition of unchanged rows.
//
// It returns errStale, with nothing written, when a row has changed, and when a new
// message or call exists already. It does so too when a command refuses or writes nothing,
// since no condition would verify its view.
func (t *transaction) writeWithoutRead(ctx context.Context) ([]error, error) {
	each, err := t.decide()
	if err != nil {
		return nil, err
	}
	if !t.isVerifiable(each) {
		return nil, errStale
	}
	var p pipeline
	w := t.composer.newWriter()
	defer w.release()
	changed := t.changed()
	w.useUnlocked(changed)
	for _, s := range changed {
		w.change(s)
	}
	result, something, ok := w.queue(&p)
	if !something {
		return each, nil
	}
	if ok {
		err = p.run(ctx, t.conn)
	}
	if !ok || isDuplicate(err) && !t.conn.IsClosed() || err == nil && result.unchanged != int64(len(changed)) {
		t.discardHot()
		return nil, errStale
	}
	if err == nil {
		t.hot.update(t.sessions, result.transaction)
	}
	return each, err
}

// isVerifiable reports whether every command writes something or asks for more
// sessions. It drops the cached views of the other commands.
func (t *transaction) isVerifiable(each []error) bool {
	sure := true
	all := t.sessions
	for i, c := range t.batch {
		mine := all[:len(c.targets)]
		all = all[len(mine):]
		if each != nil && each[i] != nil {
			if _, ok := errors.AsType[*session.IncompleteViewError](each[i]); ok {
				continue
			}
		} else if slices.ContainsFunc(mine, func(s loadedSession) bool { return s.change != nil }) {
			continue
		}
		sure = false
		for j := range mine {
			mine[j].discardHot()
		}
	}
	return sure
}

// readAndWrite takes two round trips. The first locks all sessions and reads
// those missing in the cache. The second writes the changes and commits.
func (t *transaction) readAndWrite(ctx context.Context) ([]error, error) {
	r := reader{sessions: t.sessions, composer: t.composer}
	r.exec(begin)
	if err := r.loadViews(ctx, t.conn); err != nil {
		return nil, err
	}
	each, err := t.decide()
	if err != nil {
		return nil, err
	}
	w := t.composer.newWriter()
	defer w.release()
	for _, s := range t.changed() {
		w.change(s)
	}
	if err := r.commit(ctx, t.conn, w, t.hot); err != nil {
		return nil, err
	}
	return each, nil
}

// commit writes the changes in w and ends the transaction. Without any it rolls back.
func (r *reader) commit(ctx context.Context, conn *pgx.Conn, w *writer, hot *hotCache) error {
	result, something, _ := w.queue(&r.pipeline)
	if !something {
		r.exec(rollback)
		return r.run(ctx, conn)
	}
	r.exec(commit)
	err := r.run(ctx, conn)
	if err == nil {
		hot.update(r.sessions, cmp.Or(result.transaction, r.id))
	}
	return err
}

// decide runs the commands on their views.
func (t *transaction) decide() (each []error, err error) {
	all := t.sessions
	for i, c := range t.batch {
		mine := all[:len(c.targets)]
		all = all[len(mine):]
		views := make([]*session.View, len(mine))
		for j := range mine {
			views[j], mine[j].change = mine[j].view, nil
		}
		changes, err := c.decide(views)
		for _, change := range changes {
			if err == nil && change != nil {
				err = check(change)
			}
		}
		if err != nil {
			if each == nil {
				each = make([]error, len(t.batch))
			}
			each[i] = err
			continue
		}
		if len(changes) != 0 && len(changes) != len(mine) {
			return nil, fmt.Errorf("a command on %d sessions returned %d changes", len(mine), len(changes))
		}
		for j, change := range changes {
			mine[j].change = change
		}
	}
	return each, nil
}

// changed returns the sessions to write, sorted by key. All replicas lock rows in
// this order and so do not deadlock.
func (t *transaction) changed() []*loadedSession {
	list := make([]*loadedSession, 0, len(t.sessions))
	for i := range t.sessions {
		if t.sessions[i].change != nil {
			list = append(list, &t.sessions[i])
		}
	}
	slices.SortFunc(list, func(a, b *loadedSession) int { return compare(a.Key, b.Key) })
	return list
}

// rollbackTimeout bounds the ROLLBACK of a failed transaction.
const rollbackTimeout = 5 * time.Second

// rollBack ends the transaction of a connection, if there is one. When it fails, the
// pool closes the connection.
func rollBack(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = conn.PgConn().Exec(ctx, `ROLLBACK`).ReadAll() // the pool checks the connection
}

// asUnavailable turns a lasting conflict and a canceled statement into Unavailable
// (STORE_UNAVAILABLE). A lasting unique violation is an error of the command.
func asUnavailable(err error) error {
	switch {
	case isDuplicate(err):
		return fmt.Errorf("rows of the command exist already: %w", err)
	case isConflict(err), isCanceled(err):
		return store.Unavailable(err)
	}
	return err
}

var _ group.Write[command] = (*Store)(nil).write
