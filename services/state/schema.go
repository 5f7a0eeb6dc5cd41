package state

import (
	"context"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/postgres"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite"
)

// Schema says which migrations a database has.
type Schema = store.Schema

// ReadSchema reads which migrations the configured database has, and changes nothing. Invalid (CONFIG_INVALID),
// Unavailable (STORE_UNAVAILABLE).
func ReadSchema(ctx context.Context, c Config) (Schema, error) {
	if err := c.checkDatabase(); err != nil {
		return Schema{}, err
	}
	if c.Store == "postgres" {
		return postgres.ReadSchema(ctx, c.PostgresURL)
	}
	return sqlite.ReadSchema(ctx, c.SQLitePath)
}

// Migrate applies the missing migrations, as New does, and returns the result. Faults as of ReadSchema.
func Migrate(ctx context.Context, c Config) (Schema, error) {
	if err := c.checkDatabase(); err != nil {
		return Schema{}, err
	}
	if c.Store == "postgres" {
		if err := postgres.Migrate(ctx, c.PostgresURL); err != nil {
			return Schema{}, err
		}
		return postgres.ReadSchema(ctx, c.PostgresURL)
	}
	opened, err := sqlite.Open(ctx, c.SQLitePath, c.Group, noop.Meter{})
	if err != nil {
		return Schema{}, err
	}
	if err := opened.Close(); err != nil {
		return Schema{}, err
	}
	return sqlite.ReadSchema(ctx, c.SQLitePath)
}

// checkDatabase refuses configurations without a database that stays.
func (c Config) checkDatabase() error {
	if c.Store == "memory" {
		return fault.New(
			fault.Invalid,
			"CONFIG_INVALID",
			"HOLDFAST_STATE_STORE is memory: such a store has no database; choose sqlite or postgres",
		)
	}
	return c.check()
}

// Backup writes the data of the SQLite file to a new file, while the state service may use it. Invalid
// (CONFIG_INVALID, BACKUP_UNSUPPORTED), NotFound (DATABASE_MISSING), Conflict (FILE_EXISTS), Unavailable
// (STORE_UNAVAILABLE).
func Backup(ctx context.Context, c Config, file string) error {
	if err := c.checkBackup("pg_dump --format=custom --file=FILE URL"); err != nil {
		return err
	}
	return sqlite.Backup(ctx, c.SQLitePath, file)
}

// Restore writes a backup to the SQLite file, which must not exist. Invalid (CONFIG_INVALID, BACKUP_UNSUPPORTED,
// BACKUP_INVALID, BACKUP_TOO_NEW), NotFound (BACKUP_MISSING), Conflict (FILE_EXISTS).
func Restore(ctx context.Context, c Config, file string) error {
	if err := c.checkBackup("pg_restore --dbname=URL FILE"); err != nil {
		return err
	}
	return sqlite.Restore(ctx, c.SQLitePath, file)
}

// checkBackup refuses databases other than SQLite's. instead is what to use for Postgres.
func (c Config) checkBackup(instead string) error {
	if err := c.checkDatabase(); err != nil {
		return err
	}
	if c.Store == "postgres" {
		return fault.New(fault.Invalid, "BACKUP_UNSUPPORTED", "the database is Postgres: use its own tools, as in: %s", instead)
	}
	return nil
}
