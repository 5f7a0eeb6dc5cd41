package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// parse reads a URL. Invalid (CONFIG_INVALID).
func parse(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// The error of the parser may quote the URL with its password.
		return nil, fault.New(
			fault.Invalid,
			"CONFIG_INVALID",
			"the postgres URL cannot be read; it looks like postgres://user:password@host:5432/database",
		)
	}
	return config, nil
}

// Migrate applies the missing migrations, as Open does. Invalid (CONFIG_INVALID), Unavailable (STORE_UNAVAILABLE).
func Migrate(ctx context.Context, url string) error {
	config, err := parse(url)
	if err != nil {
		return err
	}
	return wrap(ctx, prepareDatabase(ctx, config), "migrate")
}

// ReadSchema reads which migrations the database has, and changes nothing. Invalid (CONFIG_INVALID), Unavailable
// (STORE_UNAVAILABLE).
func ReadSchema(ctx context.Context, url string) (store.Schema, error) {
	config, err := parse(url)
	if err != nil {
		return store.Schema{}, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return store.Schema{}, wrap(ctx, err, "connect")
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var schema store.Schema
	var migrated bool
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'), to_regclass('holdfast_state_migrations') IS NOT NULL`).
		Scan(&schema.Server, &migrated)
	if err == nil && migrated {
		err = conn.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM holdfast_state_migrations`).Scan(&schema.Applied)
	}
	if err != nil {
		return store.Schema{}, wrap(ctx, err, "read the migrations")
	}
	schema.Server = fmt.Sprintf("PostgreSQL %s", schema.Server)
	return schema.WithMissing(migrations)
}
