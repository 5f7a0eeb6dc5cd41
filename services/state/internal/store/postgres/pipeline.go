package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	begin    = prepared(`BEGIN`)
	commit   = prepared(`COMMIT`)
	rollback = prepared(`ROLLBACK`)
)

// pipeline is a sequence of statements in one round trip. Without a BEGIN it is one
// transaction. After an error the server skips the rest.
//
// The zero value is ready. After run the pipeline is empty and can be used again.
type pipeline struct {
	batch      pgx.Batch
	statements []*statement
	gotRow     bool  // a row was read
	err        error // the first argument error
}

// queue adds a statement, and the function that reads each row of its result;
// nil to ignore them.
func (p *pipeline) queue(s *statement, args []any, scan func(pgx.CollectableRow) error) {
	p.statements = append(p.statements, s)
	queued := p.batch.Queue(s.name, args...)
	if scan == nil {
		return
	}
	queued.Query(func(rows pgx.Rows) error {
		for rows.Next() {
			p.gotRow = true
			if err := scan(rows); err != nil {
				return err
			}
		}
		return nil // Query returns the error of the rows
	})
}

// exec adds a statement without a result.
func (p *pipeline) exec(s *statement, args ...any) { p.queue(s, args, nil) }

// count adds a statement without a result. to gets the number of written rows.
func (p *pipeline) count(s *statement, to *int64, args ...any) {
	p.statements = append(p.statements, s)
	p.batch.Queue(s.name, args...).Exec(func(tag pgconn.CommandTag) error {
		*to = tag.RowsAffected()
		return nil
	})
}

// each adds a statement for all the rows. more are its last arguments.
func (p *pipeline) each(s *statement, r *rows, scan func(pgx.CollectableRow) error, more ...any) {
	if r.count == 1 {
		s = s.single
	}
	p.queue(s, append(p.appendArguments(nil, r, r.count == 1), more...), scan)
}

// appendArguments appends the parameters of the rows.
func (p *pipeline) appendArguments(args []any, r *rows, single bool) []any {
	args, err := r.appendArguments(args, single)
	if err != nil && p.err == nil {
		p.err = err
	}
	return args
}

// connState is the state of a connection outside of pgx.
type connState struct {
	discardAt time.Time     // when its plans are next discarded
	age       time.Duration // of the plans at that time
	sent      traffic
}

// traffic counts the statements and round trips of a connection.
type traffic struct{ statements, trips int }

// A connection discards its plans, at first soon and then every oldestPlan. The
// best plan for a nearly empty table is not the best for a full one.
const (
	youngestPlan = time.Second
	oldestPlan   = time.Minute
)

func stateOf(conn *pgconn.PgConn) *connState {
	const key = "holdfast"
	p, ok := conn.CustomData()[key].(*connState)
	if !ok {
		p = &connState{discardAt: time.Now().Add(youngestPlan), age: youngestPlan}
		conn.CustomData()[key] = p
	}
	return p
}

// plansExpired reports whether to discard the plans now.
func (c *connState) plansExpired() bool {
	now := time.Now()
	if now.Before(c.discardAt) {
		return false
	}
	c.age = min(2*c.age, oldestPlan)
	c.discardAt = now.Add(c.age)
	return true
}

// run sends the statements, reads the results, and empties the pipeline.
func (p *pipeline) run(ctx context.Context, conn *pgx.Conn) error {
	defer p.clear()
	if p.err != nil {
		return p.err
	}
	state := stateOf(conn.PgConn())
	if state.plansExpired() {
		// On its own, since the statements may begin a transaction.
		if _, err := conn.PgConn().Exec(ctx, `DISCARD PLANS`).ReadAll(); err != nil {
			return err
		}
	}
	for _, s := range p.statements {
		if _, err := conn.Prepare(ctx, s.name, s.text); err != nil {
			return err
		}
	}
	state.sent.trips++
	state.sent.statements += len(p.statements)
	return conn.SendBatch(ctx, &p.batch).Close()
}

func (p *pipeline) clear() {
	clear(p.statements)
	p.batch, p.statements, p.err = pgx.Batch{}, p.statements[:0], nil
}
