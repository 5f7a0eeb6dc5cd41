package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/governor"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// UpdateGovernors implements store.Governors.
func (s *Store) UpdateGovernors(
	ctx context.Context, names []string, leaseID string, now governor.Millis, decide func([]*governor.Governor),
) error {
	err := s.committer.Do(ctx, nil, 0, func(ctx context.Context, c *connection) (refused, err error) {
		governors := make([]*governor.Governor, len(names))
		had := make([]bool, len(names))
		for i, name := range names {
			if governors[i], err = loadGovernor(ctx, c, name, leaseID, now); err != nil {
				return nil, err
			}
			had[i] = governors[i].Lease != nil
		}
		decide(governors)
		for i, name := range names {
			if err := writeGovernor(ctx, c, name, leaseID, governors[i], had[i]); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return wrap(ctx, err, "update %d governors", len(names))
}

func loadGovernor(ctx context.Context, c *connection, name, leaseID string, now governor.Millis) (*governor.Governor, error) {
	var g governor.Governor
	if _, err := c.exec(ctx, `DELETE FROM governor_leases WHERE governor = ?1 AND (expires_at <= ?2
		OR NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = governor_leases.executor_id))`, name, int64(now)); err != nil {
		return nil, err
	}
	if _, err := c.queryRow(ctx, `SELECT state FROM governors WHERE name = ?`, arguments(name), table.AsJSON(&g.State)); err != nil {
		return nil, err
	}
	if _, err := c.queryRow(ctx, `SELECT count(*) FROM governor_leases WHERE governor = ? AND lease_id <> ?`, arguments(name, leaseID),
		&g.Running); err != nil {
		return nil, err
	}
	var l governor.Lease
	found, err := c.queryRow(ctx, `SELECT executor_id, slot, tokens, expires_at FROM governor_leases WHERE governor = ? AND lease_id = ?`,
		arguments(name, leaseID), &l.Executor, (*int64)(&l.Slot), &l.Tokens, (*int64)(&l.Expires))
	if found {
		g.Lease = &l
	}
	return &g, err
}

func writeGovernor(ctx context.Context, c *connection, name, leaseID string, g *governor.Governor, had bool) (err error) {
	if _, err := c.exec(ctx, `INSERT INTO governors (name, state) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state`,
		name, table.AsJSON(&g.State)); err != nil {
		return err
	}
	switch {
	case had && g.Lease == nil:
		_, err = c.exec(ctx, `DELETE FROM governor_leases WHERE governor = ? AND lease_id = ?`, name, leaseID)
	case !had && g.Lease != nil:
		_, err = c.exec(ctx, `INSERT INTO governor_leases (governor, lease_id, executor_id, slot, tokens, expires_at) VALUES (?, ?, ?, ?, ?, ?)`,
			name, leaseID, g.Lease.Executor, int64(g.Lease.Slot), g.Lease.Tokens, int64(g.Lease.Expires))
	}
	return err
}
