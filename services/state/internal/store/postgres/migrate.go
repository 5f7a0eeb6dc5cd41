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

// migrations are named in their order and only added to. Version 2 is not for a
// rolling upgrade: the code before it cannot read a custom state that is kept as
// writes, and keeps no facets. A session that it creates is in no list, also
// after this code has written it, since only facets that change are written and
// no boot looks for missing ones: that would read all sessions. Its replicas are
// to be stopped first. Version 3 is for one: runs wait only by the code that knows
// it, and where a replica of the code before ends the live run they wait on until
// the next end. So is version 6: the code before it hands no writes of a plan over, and
// executors that record them put them into their commits as well. And version 7: an
// executor that a replica of the code before has registered may announce any agent,
// and while there is one no run is taken for an orphan.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock that booting processes take in turn. Any
// number does that nothing else in the database uses; this one spells
// "holdfast" in ASCII.
const migrationLock int64 = 0x686f6c6466617374

// migrate runs what of the migrations the database has not had, anew when
// another transaction was in the way.
func migrate(ctx context.Context, conn *pgx.Conn) (err error) {
	for range attempts {
		if err = migrateOnce(ctx, conn); !isConflict(err) {
			break
		}
	}
	return err
}

// migrateOnce is one transaction: a boot that dies leaves nothing half done.
func migrateOnce(ctx context.Context, conn *pgx.Conn) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, migrationLock); err != nil {
			return err
		}
		// Under the lock, since IF NOT EXISTS does not keep two from creating
		// the table at the same moment.
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

// migrateTo claims the version first, and runs its statements when the claim
// is new.
func migrateTo(ctx context.Context, tx pgx.Tx, version int, name string) error {
	tag, err := tx.Exec(ctx, `INSERT INTO holdfast_state_migrations (version) VALUES ($1) ON CONFLICT DO NOTHING`, version)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	statements, err := fs.ReadFile(migrations, name)
	if err != nil {
		return err
	}
	// The simple protocol takes many statements in one text.
	if _, err := tx.Exec(ctx, string(statements), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if version == facetsVersion {
		return fillFacets(ctx, tx.Conn())
	}
	return nil
}

// facetsVersion is the migration that makes the table of facets.
const facetsVersion = 2

// facetsPage is how many sessions are held in memory at once.
const facetsPage = 1000

// sessionsPage reads what facets are made of, which the columns of that version
// have; later ones bring more.
var sessionsPage = prepared(`SELECT s.tenant, s.session_id, s.agent_type, s.parent_id, s.status, s.user_id, s.organization_id, s.tags, s.metadata, s.created_at
	FROM sessions s WHERE (s.tenant, s.session_id) > ($1::text, $2::text) ORDER BY s.tenant, s.session_id LIMIT $3::bigint`)

// fillFacets gives the sessions that are there their facets, which the code
// makes.
func fillFacets(ctx context.Context, conn *pgx.Conn) error {
	var last session.Key
	for more := true; more; {
		var p pipeline
		var w writer
		more = false
		p.queue(sessionsPage, arguments(last, facetsPage), all(func(to []any, s *session.Session) []any {
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
