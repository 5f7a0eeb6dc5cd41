package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// startPooler starts a PgBouncer with the options in front of a fresh database, and returns the URL of the database
// through it. It ends with the test.
func startPooler(t *testing.T, options ...string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // often missing in PATH
	}
	config, err := pgx.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, users := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "users")
	text := fmt.Sprintf("[databases]\n%[1]s = host=%[2]s port=%[3]d dbname=%[1]s\n[pgbouncer]\nlisten_addr=%[4]s\nlisten_port=%[5]s\nauth_type=trust\nauth_file=%[6]s\nunix_socket_dir=\n%[7]s\n",
		config.Database, config.Host, config.Port, host, port, users, strings.Join(options, "\n"))
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.WriteFile(users, []byte(`"`+config.User+`" ""`+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if os.Getuid() == 0 { // it refuses to run as root
		args = append([]string{"-u", ownerOf(t, config.Host)}, args...)
	}
	pooler := exec.CommandContext(context.Background(), program, args...) // outlives the test's context, which ends before its cleanup
	var log strings.Builder
	pooler.Stdout, pooler.Stderr = &log, &log
	if err := pooler.Start(); err != nil {
		t.Fatalf("%v; make setup installs it", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- pooler.Wait() }()
	t.Cleanup(func() {
		_ = pooler.Process.Kill()
		err := <-ended
		if t.Failed() {
			t.Log(err, log.String())
		}
	})
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("PgBouncer: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return (&url.URL{Scheme: "postgres", User: url.User(config.User), Host: address, Path: config.Database, RawQuery: "sslmode=disable"}).String()
}

// ownerOf returns the name of the user who owns the folder of a server's socket, and so may use it.
func ownerOf(t *testing.T, folder string) string {
	t.Helper()
	info, err := os.Stat(folder)
	if err != nil {
		return "nobody" // the server is reached over TCP
	}
	owner, err := user.LookupId(strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Uid), 10)) //nolint:forcetypeassert // as on all systems with a PgBouncer
	if err != nil {
		t.Fatal(err)
	}
	return owner.Username
}

func TestTheStoreWorksThroughAPoolerOfSessions(t *testing.T) {
	t.Parallel()
	s := openWithURL(t, startPooler(t)) // with its defaults
	if _, err := s.pool.Exec(t.Context(), `SELECT 1 FROM sessions`); err != nil {
		t.Error(err)
	}
	for name, want := range settings {
		var got string
		if err := s.pool.QueryRow(t.Context(), `SELECT setting FROM pg_settings WHERE name = $1`, name).Scan(&got); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestAPoolerThatMixesSessionsIsNamedAtTheStart(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), startPooler(t, "pool_mode="+mode), 2, commits, nil)
			if err == nil {
				_ = s.Close()
			}
			if fault.ReasonOf(err) != "CONFIG_INVALID" || !strings.Contains(err.Error(), "pool_mode=session") {
				t.Errorf("got %v, want CONFIG_INVALID with the way out", err)
			}
		})
	}
}

func TestAParameterThatAPoolerRefusesEndsTheStart(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), startPooler(t)+"&statement_timeout=1000", 2, commits, nil)
	if err == nil {
		_ = s.Close()
	}
	if fault.ReasonOf(err) != "CONFIG_INVALID" || !strings.Contains(err.Error(), "ignore_startup_parameters") {
		t.Errorf("got %v, want CONFIG_INVALID with the way out", err)
	}
}
