// Package pgtest gives tests a real PostgreSQL.
//
// HOLDFAST_TEST_POSTGRES may name a server: the URL of a user with permission to create databases. Otherwise the
// first call in a process starts a throw-away server from the installed programs, reachable through a socket in
// a private folder only. It runs neither vacuum nor analyze on its own. The server and its folder disappear with
// the test process, however that ends, because a shell holds the other end of a pipe.
//
// Without any PostgreSQL a test fails with instructions; it is not skipped.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Variable is the environment variable with the URL of a server.
const Variable = "HOLDFAST_TEST_POSTGRES"

// patience is how long a server may take to start or to create a database. It is long, because test processes
// share processors.
const patience = 60 * time.Second

// server is a server on which tests create databases.
type server struct {
	url   string    // of a permanent database
	alive io.Closer // closing or collecting it stops a throw-away server
}

// shared is the server of this process, found or started once.
var shared = sync.OnceValues(func() (server, error) {
	if given := os.Getenv(Variable); given != "" {
		return server{url: given}, nil
	}
	return start()
})

// URL returns the URL of a fresh, empty database for this test. Commits do not wait for the disk, except in
// benchmarks; without a crash of the server there is no difference. The database is dropped at the end of the
// test, or with the throw-away server.
func URL(t testing.TB) string {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL for the tests: %v", err)
	}
	name := "holdfast_" + strings.ToLower(rand.Text())
	if err := execute(s.url, `CREATE DATABASE `+name+` ENCODING 'UTF8' TEMPLATE template0`); err != nil {
		t.Fatalf("create a database: %v", err)
	}
	t.Cleanup(func() {
		if s.alive != nil {
			return // DROP DATABASE would checkpoint the whole server
		}
		if err := execute(s.url, `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatalf("%s is not a URL: %v", Variable, err)
	}
	u.Path = "/" + name
	if _, measures := t.(*testing.B); measures {
		return u.String()
	}
	return With(t, u.String(), "synchronous_commit", "off")
}

// With adds a server setting for all connections through the URL.
func With(t testing.TB, databaseURL, setting, value string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatalf("%s is not a URL: %v", databaseURL, err)
	}
	query := u.Query()
	query.Set(setting, value)
	u.RawQuery = query.Encode()
	return u.String()
}

// execute runs one statement on a connection of its own.
func execute(url, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// Clone copies a database of URL as it is, and returns the URL of the copy. The database must have no other connections.
func Clone(t testing.TB, databaseURL string) string {
	t.Helper()
	copied := URL(t)
	Overwrite(t, copied, databaseURL)
	return copied
}

// Overwrite replaces a database of URL by a copy of another one. It ends the connections to the first; the other must have
// none.
func Overwrite(t testing.TB, databaseURL, from string) {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL for the tests: %v", err)
	}
	for _, statement := range []string{
		`DROP DATABASE ` + nameOf(t, databaseURL) + ` WITH (FORCE)`,
		`CREATE DATABASE ` + nameOf(t, databaseURL) + ` TEMPLATE ` + nameOf(t, from),
	} {
		if err := execute(s.url, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// nameOf returns the name of a database of URL.
func nameOf(t testing.TB, databaseURL string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatalf("%s is not a URL: %v", databaseURL, err)
	}
	return strings.TrimPrefix(u.Path, "/")
}
