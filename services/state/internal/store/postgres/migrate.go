package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// migrations are applied in the order of their names. Files are only added.
//
// Most versions allow a rolling upgrade:
//
//   - 2 does not. Older code cannot read custom states stored as writes, and writes no
//     facets. Its new sessions would be in no list, since later writes only add changed
//     facets. Stop all older replicas first.
//   - 3 does. Only newer code lets runs wait. When an older replica ends the live run,
//     the waiting runs wait until the next run ends.
//   - 6 does. Older code does not hand over the writes of a plan. Executors also put
//     recorded writes into their commits.
//   - 7 does. An executor registered by an older replica may announce any agent. While
//     there is one, no run counts as orphaned.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock of a migrating process. The number must be
// unused by others in the database. It spells "holdfast" in ASCII.
const migrationLock int64 = 0x686f6c6466617374

// migrate applies the missing migrations. It retries conflicts with other
// transactions.
func migrate(ctx context.Context, conn *pgx.Conn) (err error) {
	for range attempts {
		if err = migrateOnce(ctx, conn); !isConflict(err) {
			break
		}
	}
	return err
}

// migrateOnce applies all migrations in one transaction, or none of them.
func migrateOnce(ctx context.Context, conn *pgx.Conn) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, migrationLock); err != nil {
			return err
		}
		// Under the lock: IF NOT EXISTS does not prevent two processes from
		// creating the table at the same time.
		if _, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS holdfast_state_migrations (
			version    INTEGER     NOT NULL PRIMARY KEY CHECK (version >= 1),
			applied_at TIMESTAMPTZ NOT NULL DEFAULT now())`); err != nil {
			return fmt.Errorf("create the table of migrations: %w", err)
		}
		for i, name := range names {
			if err := migrateTo(ctx, tx, i+1, name); err != nil {
				return fmt.Errorf("migration %s: %w", name, err)
			}
		}
		return nil
	})
}

// migrateTo records the version, and runs its statements if it was not recorded.
func migrateTo(ctx context.Context, tx pgx.Tx, version int, name string) error {
	tag, err := tx.Exec(ctx, `INSERT INTO holdfast_state_migrations (version) VALUES ($1) ON CONFLICT DO NOTHING`, version)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	statements, err := fs.ReadFile(migrations, name)
	if err != nil {
		return err
	}
	// Only the simple protocol accepts several statements in one text.
	if _, err := tx.Exec(ctx, string(statements), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if version == facetsMigration {
		return fillFacets(ctx, tx.Conn())
	}
	return nil
}

// facetsMigration is the version with the table of facets.
const facetsMigration = 2

// facetPageSize is how many sessions fillFacets holds in memory.
const facetPageSize = 1000

// sessionsPage reads the sources of facets. All these columns exist at facetsMigration.
var sessionsPage = prepared(
	`SELECT s.tenant, s.session_id, s.agent_type, s.parent_id, s.status, s.user_id, s.organization_id, s.tags, s.metadata, s.created_at
	FROM sessions s WHERE (s.tenant, s.session_id) > ($1::text, $2::text) ORDER BY s.tenant, s.session_id LIMIT $3::bigint`,
)

// fillFacets writes the facets of the existing sessions.
func fillFacets(ctx context.Context, conn *pgx.Conn) error {
	var last session.Key
	for more := true; more; {
		var p pipeline
		w := writer{composer: &composer{}}
		more = false
		p.queue(sessionsPage, arguments(last, facetPageSize), scanEach(func(to []any, s *session.Session) []any {
			return append(to, &s.Tenant, &s.SessionID, &s.AgentType, &s.ParentID, (*string)(&s.Status), &s.UserID, &s.OrganizationID,
				table.AsJSON(&s.Tags), table.AsJSON(&s.Metadata), (*int64)(&s.CreatedAt))
		}, func(s *session.Session) {
			w.facets(nil, s)
			last, more = s.Key, true
		}))
		if err := p.run(ctx, conn); err != nil {
			return fmt.Errorf("read sessions: %w", err)
		}
		w.queue(&p)
		if err := p.run(ctx, conn); err != nil {
			return fmt.Errorf("write facets: %w", err)
		}
	}
	return nil
}
