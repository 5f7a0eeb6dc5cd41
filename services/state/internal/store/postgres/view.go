package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// readView locks the session and reads what need names, in one round trip.
func readView(ctx context.Context, tx pgx.Tx, key session.Key, need session.Need) (*session.View, error) {
	var r reader
	v := r.view(key, need)
	if err := tx.SendBatch(ctx, &r.batch).Close(); err != nil {
		return nil, err
	}
	if v.Session == nil {
		// There was no row to lock, and the queries behind it may have met a
		// session that was created meanwhile. Shown none, a command that
		// creates it runs into its key and is shown everything.
		return &session.View{AgentKnown: v.AgentKnown}, nil
	}
	return v, nil
}

// reader queues the queries of views. The server runs them one after the
// other, so those behind the lock see what its former holder has written.
type reader struct{ batch pgx.Batch }

// row queues a query for one row or none, whose first two arguments are tenant
// and session id.
func (r *reader) row(key session.Key, query string, scan func(pgx.Row) error, args ...any) {
	r.batch.Queue(query, append([]any{key.Tenant, key.SessionID}, args...)...).QueryRow(optional(scan))
}

// rows is row for any number of rows.
func (r *reader) rows(key session.Key, query string, scan func(pgx.Row) error, args ...any) {
	r.batch.Queue(query, append([]any{key.Tenant, key.SessionID}, args...)...).Query(func(rows pgx.Rows) error { return each(rows, scan) })
}

// run queues a query for a run.
func (r *reader) run(to **session.Run, key session.Key, query string, args ...any) {
	r.row(key, query, func(row pgx.Row) (err error) {
		*to, err = scanRun(row)
		return err
	}, args...)
}

// view queues the queries that fill the view which it returns. The first one
// takes the lock.
func (r *reader) view(key session.Key, need session.Need) *session.View {
	v := &session.View{}
	r.session(v, key)
	if need.State || need.Written {
		r.state(v, key, need)
	}
	if need.AgentType != "" {
		r.batch.Queue(`SELECT EXISTS (SELECT 1 FROM agents WHERE agent_type = $1)`, need.AgentType).
			QueryRow(func(row pgx.Row) error { return row.Scan(&v.AgentKnown) })
	}
	if need.RunID != "" {
		r.run(&v.Run, key, `SELECT `+runColumns+` FROM runs r WHERE r.tenant = $1 AND r.session_id = $2 AND r.run_id = $3`, need.RunID)
	}
	if need.RequestKey != "" {
		r.run(&v.Keyed, key, `SELECT `+runColumns+` FROM runs r
			WHERE r.tenant = $1 AND r.session_id = $2 AND r.request_key = $3 AND r.request_key <> ''`, need.RequestKey)
	}
	if need.Open {
		r.run(&v.Live, key, `SELECT `+runColumns+` FROM runs r
			WHERE r.tenant = $1 AND r.session_id = $2 AND r.status IN ('queued', 'running')`)
		r.run(&v.Unsettled, key, `SELECT `+runColumns+` FROM runs r
			WHERE r.tenant = $1 AND r.session_id = $2 AND NOT r.settled AND r.status NOT IN ('queued', 'running')`)
	}
	if need.Journal {
		r.journal(v, key)
	}
	if need.Checkpoint {
		r.checkpoint(v, key)
	}
	r.messages(v, key, need)
	return v
}

func (r *reader) session(v *session.View, key session.Key) {
	r.row(key, `SELECT `+sessionColumns+` FROM sessions s WHERE s.tenant = $1 AND s.session_id = $2 FOR UPDATE`, func(row pgx.Row) error {
		s := session.Session{Key: key}
		if err := row.Scan(sessionFields(&s)...); err != nil {
			return err
		}
		v.Session = &s
		return nil
	})
}

func (r *reader) state(v *session.View, key session.Key, need session.Need) {
	r.row(key, `SELECT st.state FROM sessions s
		JOIN states st ON st.tenant = s.tenant AND st.session_id = s.session_id AND st.version = s.state_version
		WHERE s.tenant = $1 AND s.session_id = $2
			AND ($3 OR EXISTS (SELECT 1 FROM results r WHERE r.tenant = $1 AND r.session_id = $2 AND r.ops <> ''))`, func(row pgx.Row) error {
		var state string
		err := row.Scan(&state)
		if v.Session != nil {
			v.Session.State = state
		}
		return err
	}, need.State)
}

func (r *reader) journal(v *session.View, key session.Key) {
	var results []session.Result
	r.rows(key, `SELECT call_id, body, ops, usage FROM results WHERE tenant = $1 AND session_id = $2 ORDER BY position`, func(row pgx.Row) error {
		var result session.Result
		err := row.Scan(&result.CallID, &result.Body, store.In(&result.Ops), store.In(&result.Usage))
		results = append(results, result)
		return err
	})
	r.row(key, `SELECT step, body, call_ids, stream_sequence, usage FROM plans WHERE tenant = $1 AND session_id = $2`, func(row pgx.Row) error {
		j := session.Journal{}
		if err := row.Scan(&j.Step, &j.Plan, store.In(&j.CallIDs), &j.Sequence, store.In(&j.Usage)); err != nil {
			return err
		}
		j.Results = results
		v.Journal = &j
		return nil
	})
}

func (r *reader) checkpoint(v *session.View, key session.Key) {
	r.row(key, `SELECT checkpoint_id, run_id, step, epoch, version, message_count, stream_sequence, status, state_version, warnings, created_at
		FROM checkpoints WHERE tenant = $1 AND session_id = $2 ORDER BY step DESC LIMIT 1`, func(row pgx.Row) error {
		var c session.Checkpoint
		err := row.Scan(&c.ID, &c.RunID, &c.Step, &c.Epoch, &c.Version, &c.MessageCount, &c.StreamSequence, &c.Status,
			&c.StateVersion, store.In(&c.Warnings), &c.CreatedAt)
		if err != nil {
			return err
		}
		v.Checkpoint = &c
		return nil
	})
}

func (r *reader) messages(v *session.View, key session.Key, need session.Need) {
	if len(need.MessageIDs) > 0 {
		r.rows(key, `SELECT message_id FROM messages WHERE tenant = $1 AND session_id = $2 AND message_id = ANY ($3)`, func(row pgx.Row) error {
			var id string
			err := row.Scan(&id)
			v.Taken = append(v.Taken, id)
			return err
		}, need.MessageIDs)
	}
	if need.Tail.Messages == 0 {
		return
	}
	r.batch.Queue(`SELECT `+messageColumns+` FROM
			(SELECT *, sum(size) OVER (ORDER BY ordinal DESC) AS total, row_number() OVER (ORDER BY ordinal DESC) AS place FROM
				(SELECT * FROM messages WHERE tenant = $1 AND session_id = $2 ORDER BY ordinal DESC LIMIT $3) newest) m
		WHERE m.total <= $4 OR m.place = 1 ORDER BY m.ordinal DESC`, key.Tenant, key.SessionID, need.Tail.Messages, need.Tail.Bytes).
		Query(func(rows pgx.Rows) error {
			err := each(rows, func(row pgx.Row) error {
				m, err := scanMessage(row)
				v.Tail = append(v.Tail, m)
				return err
			})
			slices.Reverse(v.Tail)
			return err
		})
}
