// Package pgtest gives tests a real PostgreSQL.
//
// Where the environment names a server in HOLDFAST_TEST_POSTGRES (the URL of a
// user who may create databases), that one is used. Otherwise the first
// call in a process starts a throw-away server from the programs that are
// installed, reachable through a socket in a folder of its own and not through
// the network. It never vacuums nor analyzes by itself. It stops, and its folder goes, when the test process ends, however
// that ends: a shell beside it holds the other end of a pipe.
//
// Nothing is skipped: without any PostgreSQL a test fails and says what to
// install.
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

// Variable is the environment variable that may name a server.
const Variable = "HOLDFAST_TEST_POSTGRES"

// patience is how long a server may take to start or to create a database:
// long, since many test processes may share few processors.
const patience = 60 * time.Second

// server is a server that tests may create databases on.
type server struct {
	url   string    // of a database that is always there
	alive io.Closer // a throw-away server stops when this is closed, or collected
}

// shared is the server of this process, found or started once.
var shared = sync.OnceValues(func() (server, error) {
	if given := os.Getenv(Variable); given != "" {
		return server{url: given}, nil
	}
	return start()
})

// URL returns the URL of a fresh, empty database that only this test knows. Its
// connections do not wait for the disk when they commit, which nobody can tell whose
// server does not crash; those of a benchmark do. On a server that was given it is dropped when the test ends, with whoever is
// still connected; on a throw-away server it goes with the server.
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
			return // DROP DATABASE takes a checkpoint of the whole server
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

// With returns the URL with a setting of the server for all connections that are made
// by it.
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
