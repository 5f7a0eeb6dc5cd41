package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
)

// migrations are named in their order and only added to. Code of one release
// before runs on the schema after them.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrate runs what of the migrations the file has not had. The immediate
// transaction keeps other processes out until it is done; they then find
// nothing left to do.
func migrate(ctx context.Context, db *sql.DB) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	return write(ctx, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS holdfast_state_migrations (
			version INTEGER NOT NULL PRIMARY KEY CHECK (version >= 1)) STRICT`); err != nil {
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
func migrateTo(ctx context.Context, tx *sql.Tx, version int, name string) error {
	r, err := tx.ExecContext(ctx, `INSERT INTO holdfast_state_migrations (version) VALUES (?) ON CONFLICT DO NOTHING`, version)
	if err != nil {
		return err
	}
	if claimed, err := r.RowsAffected(); err != nil || claimed == 0 {
		return err
	}
	statements, err := fs.ReadFile(migrations, name)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, string(statements))
	return err
}
