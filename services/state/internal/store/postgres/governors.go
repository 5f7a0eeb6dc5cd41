package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/governor"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var (
	// The changes of governors are small and soon old, so their commit does not wait for the disk.
	commitWithoutWaiting = prepared(`SELECT set_config('synchronous_commit', 'off', TRUE)`)
	insertGovernors      = prepared(`INSERT INTO governors (name, state) SELECT n, '' FROM unnest($1::text[]) n ON CONFLICT DO NOTHING`)
	lockGovernors        = prepared(`SELECT name, state FROM governors WHERE name = ANY ($1::text[]) ORDER BY name FOR UPDATE`)
	deleteDeadLeases     = prepared(`DELETE FROM governor_leases l WHERE l.governor = ANY ($1::text[]) AND (l.expires_at <= $2::bigint
		OR NOT EXISTS (SELECT FROM executors e WHERE e.executor_id = l.executor_id))`)
	countOtherLeases = prepared(`SELECT governor, count(*) FROM governor_leases WHERE governor = ANY ($1::text[]) AND lease_id <> $2::text
		GROUP BY governor`)
	readLease = prepared(`SELECT governor, executor_id, slot, tokens, expires_at FROM governor_leases
		WHERE governor = ANY ($1::text[]) AND lease_id = $2::text`)
	updateGovernor = prepared(`UPDATE governors SET state = $2::text WHERE name = $1::text`)
	deleteLease    = prepared(`DELETE FROM governor_leases WHERE governor = $1::text AND lease_id = $2::text`)
	insertLease    = prepared(`INSERT INTO governor_leases (governor, lease_id, executor_id, slot, tokens, expires_at)
		VALUES ($1::text, $2::text, $3::text, $4::bigint, $5::bigint, $6::bigint)`)
)

// UpdateGovernors implements store.Governors. A replica updates one at a time: a busy governor
// takes one connection from the commands of sessions, and the others wait here.
func (s *Store) UpdateGovernors(
	ctx context.Context,
	names []string,
	leaseID string,
	now governor.Millis,
	decide func([]*governor.Governor),
) error {
	select {
	case s.governing <- struct{}{}:
		defer func() { <-s.governing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.withConn(ctx, func(conn *pgx.Conn) (err error) {
		for range attempts {
			if err = updateGovernors(ctx, conn, names, leaseID, now, decide); !isConflict(err) {
				break
			}
		}
		return asUnavailable(err)
	})
	return wrap(ctx, err, "update %d governors", len(names))
}

// updateGovernors takes two round trips, one to lock and read and one to write.
func updateGovernors(
	ctx context.Context,
	conn *pgx.Conn,
	names []string,
	leaseID string,
	now governor.Millis,
	decide func([]*governor.Governor),
) error {
	defer rollBack(ctx, conn)
	loaded := make(map[string]*governor.Governor, len(names))
	governors := make([]*governor.Governor, len(names))
	for i, name := range names {
		governors[i] = &governor.Governor{}
		loaded[name] = governors[i]
	}
	var p pipeline
	loadGovernors(&p, loaded, slices.Sorted(slices.Values(names)), leaseID, now)
	if err := p.run(ctx, conn); err != nil {
		return err
	}
	had := make([]bool, len(names))
	for i, g := range governors {
		had[i] = g.Lease != nil
	}
	decide(governors)
	for i, g := range governors {
		p.exec(updateGovernor, names[i], table.AsJSON(&g.State))
		switch {
		case had[i] && g.Lease == nil:
			p.exec(deleteLease, names[i], leaseID)
		case !had[i] && g.Lease != nil:
			p.exec(insertLease, names[i], leaseID, g.Lease.Executor, int64(g.Lease.Slot), g.Lease.Tokens, int64(g.Lease.Expires))
		}
	}
	p.exec(commit)
	return p.run(ctx, conn)
}

// loadGovernors locks the governors in the order of their names, so that two updates never wait for
// each other.
func loadGovernors(p *pipeline, loaded map[string]*governor.Governor, sorted []string, leaseID string, now governor.Millis) {
	p.exec(begin)
	p.exec(commitWithoutWaiting)
	p.exec(insertGovernors, sorted)
	p.queue(lockGovernors, []any{sorted}, func(row pgx.CollectableRow) error {
		var name string
		var state governor.State
		err := row.Scan(&name, table.AsJSON(&state))
		if err == nil {
			loaded[name].State = state
		}
		return err
	})
	p.exec(deleteDeadLeases, sorted, int64(now))
	p.queue(countOtherLeases, []any{sorted, leaseID}, func(row pgx.CollectableRow) error {
		var name string
		var running int64
		err := row.Scan(&name, &running)
		if err == nil {
			loaded[name].Running = running
		}
		return err
	})
	p.queue(readLease, []any{sorted, leaseID}, func(row pgx.CollectableRow) error {
		var name string
		var l governor.Lease
		err := row.Scan(&name, &l.Executor, (*int64)(&l.Slot), &l.Tokens, (*int64)(&l.Expires))
		if err == nil {
			loaded[name].Lease = &l
		}
		return err
	})
}
