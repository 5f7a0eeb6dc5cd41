package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
)

func TestEachTestGetsADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := connect(t, pgtest.URL(t)), connect(t, pgtest.URL(t))
	if _, err := first.Exec(t.Context(), `CREATE TABLE here (id INTEGER)`); err != nil {
		t.Fatal(err)
	}
	var tables int
	err := second.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE tablename = 'here'`).Scan(&tables)
	if err != nil || tables != 0 {
		t.Errorf("the other database has %d tables of that name, %v; want 0", tables, err)
	}
}

func TestDatabasesKeepTextsAsUTF8(t *testing.T) {
	t.Parallel()
	var encoding string
	err := connect(t, pgtest.URL(t)).QueryRow(t.Context(), `SHOW server_encoding`).Scan(&encoding)
	if err != nil || encoding != "UTF8" {
		t.Errorf("got %q, %v; want UTF8", encoding, err)
	}
}

func TestConnectionsHaveTheSettingsOfTheirURL(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var commit, timeout string
	conn := connect(t, pgtest.With(t, url, "lock_timeout", "1234"))
	err := conn.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')`).Scan(&commit, &timeout)
	if err != nil || commit != "off" || timeout != "1234ms" {
		t.Errorf("got synchronous_commit %q and lock_timeout %q, %v; want off and 1234ms", commit, timeout, err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(t.Context()) })
	return conn
}
