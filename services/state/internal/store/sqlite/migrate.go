package sqlite

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"math"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// migrations are named in their order and only added to.
//
//go:embed migrations/*.sql
var migrations embed.FS

// fills are what migrations do, by their version, that takes more than SQL.
// They run behind the statements, in the same transaction.
var fills = map[int]func(context.Context, *connection) error{2: fillFacets}

// migrate runs what of the migrations the file has not had. The immediate
// transaction keeps other processes out until it is done; they then find
// nothing left to do.
func migrate(ctx context.Context, c *connection) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	return c.transact(ctx, `BEGIN IMMEDIATE`, func() error {
		if _, err := c.exec(ctx, `CREATE TABLE IF NOT EXISTS holdfast_state_migrations (
			version INTEGER NOT NULL PRIMARY KEY CHECK (version >= 1)) STRICT`); err != nil {
			return fmt.Errorf("create the table of migrations: %w", err)
		}
		for i, name := range names {
			if err := migrateTo(ctx, c, i+1, name); err != nil {
				return fmt.Errorf("migration %s: %w", name, err)
			}
		}
		return nil
	})
}

// migrateTo claims the version first, and runs its statements when the claim
// is new.
func migrateTo(ctx context.Context, c *connection, version int, name string) error {
	claimed, err := c.exec(ctx, `INSERT INTO holdfast_state_migrations (version) VALUES (?) ON CONFLICT DO NOTHING`, version)
	if err != nil || claimed == 0 {
		return err
	}
	statements, err := fs.ReadFile(migrations, name)
	if err != nil {
		return err
	}
	if _, err := c.conn.ExecContext(ctx, string(statements)); err != nil {
		return err
	}
	if fill := fills[version]; fill != nil {
		return fill(ctx, c)
	}
	return nil
}

// fillPage is how many sessions are in memory at once while they are filled in.
const fillPage = 500

// fillFacets writes the facets of the sessions that there are.
func fillFacets(ctx context.Context, c *connection) error {
	for last := int64(math.MinInt64); ; {
		var page []session.Session
		err := c.each(ctx, `SELECT rowid, tenant, session_id, agent_type, parent_id, status, user_id, organization_id, tags, metadata, created_at
			FROM sessions WHERE rowid > ? ORDER BY rowid LIMIT ?`, arguments(last, fillPage), func(row scanner) error {
			var s session.Session
			err := row.Scan(&last, &s.Tenant, &s.SessionID, &s.AgentType, &s.ParentID, &s.Status, &s.UserID, &s.OrganizationID,
				table.AsJSON(&s.Tags), table.AsJSON(&s.Metadata), &s.CreatedAt)
			page = append(page, s)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, s := range page {
			for _, facet := range s.Facets() {
				if _, err := c.exec(ctx, insertFacet, s.Tenant, s.SessionID, facet, s.CreatedAt); err != nil {
					return err
				}
			}
		}
	}
}
