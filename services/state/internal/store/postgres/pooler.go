package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// setOnConnect makes each new connection set the settings, except for those of the URL. They are no
// parameters of the startup message, because poolers such as PgBouncer refuse unknown ones there.
func setOnConnect(config *pgx.ConnConfig, settings map[string]string) {
	var names, values []byte
	list := func(to []byte, value string) []byte {
		if len(to) > 0 {
			to = append(to, ',')
		}
		return append(to, value...)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if _, given := config.RuntimeParams[name]; !given {
			names, values = list(names, name), list(values, settings[name])
		}
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		const set = `SELECT set_config(name, value, false) FROM unnest(string_to_array($1, ','), string_to_array($2, ',')) AS s (name, value)`
		return conn.ExecParams(ctx, set, [][]byte{names, values}, nil, nil, nil).Read().Err
	}
}

// unsupportedParameter begins PgBouncer's message about a parameter of the startup message. PgBouncer has one SQLSTATE
// for all its errors, permanent and temporary.
const unsupportedParameter = "unsupported startup parameter"

// refusedParameter returns Invalid (CONFIG_INVALID) if a pooler refused a parameter of the URL, else err.
func refusedParameter(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(e.Message, unsupportedParameter) {
		return fault.New(
			fault.Invalid,
			"CONFIG_INVALID",
			"the pooler at the postgres URL refuses a parameter of the URL (%s); leave it out, or add it to ignore_startup_parameters of PgBouncer",
			e.Message,
		)
	}
	return err
}

// checkPooling gives Invalid (CONFIG_INVALID) if a pooler passes one connection to the server from client to client
// after each transaction or statement. Settings, prepared statements and LISTEN belong to a connection. Such a
// pooler gives the connection that conn has just used to the next client, and its settings with it.
func checkPooling(ctx context.Context, conn *pgx.Conn, config *pgx.ConnConfig) error {
	const mark = "holdfast.connection"
	name := rand.Text()
	if _, err := conn.Exec(ctx, `SELECT set_config($1, $2, false)`, pgx.QueryExecModeExec, mark, name); err != nil {
		return err
	}
	next, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer next.Close(context.WithoutCancel(ctx))
	var found string
	if err := next.QueryRow(ctx, `SELECT coalesce(current_setting($1, true), '')`, pgx.QueryExecModeExec, mark).Scan(&found); err != nil {
		return err
	}
	if found == name {
		return fault.New(
			fault.Invalid,
			"CONFIG_INVALID",
			"a pooler at the postgres URL gives its connections to other clients between transactions (PgBouncer: pool_mode=transaction or statement); set pool_mode=session for this database, or connect to the server itself",
		)
	}
	return nil
}
