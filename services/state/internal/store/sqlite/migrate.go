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

// migrations are applied in the order of their names. Files are only added.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrationFuncs are the parts of migrations that need more than SQL, by version. They
// run after the statements, in the same transaction.
var migrationFuncs = map[int]func(context.Context, *connection) error{2: fillFacets}

// migrate applies the missing migrations in one immediate transaction. It blocks other
// processes, which then have nothing to apply.
func migrate(ctx context.Context, c *connection) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	return c.inTransaction(ctx, `BEGIN IMMEDIATE`, func() error {
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

// migrateTo records the version, and runs its statements if it was not recorded.
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
	if fill := migrationFuncs[version]; fill != nil {
		return fill(ctx, c)
	}
	return nil
}

// fillPageSize is how many sessions fillFacets holds in memory.
const fillPageSize = 500

// fillFacets writes the facets of the existing sessions.
func fillFacets(ctx context.Context, c *connection) error {
	for last := int64(math.MinInt64); ; {
		var page []session.Session
		err := c.forEach(ctx, `SELECT rowid, tenant, session_id, agent_type, parent_id, status, user_id, organization_id, tags, metadata,
				created_at
			FROM sessions WHERE rowid > ? ORDER BY rowid LIMIT 0 + ?`, arguments(last, fillPageSize), func(row scanner) error {
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
