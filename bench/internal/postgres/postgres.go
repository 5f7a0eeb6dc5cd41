// Package postgres runs the database server shared by all runtimes.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/bench/internal/process"
)

// Settings differ from the server's defaults. Commits wait for the disk, and no vacuum disturbs a measurement.
var Settings = []string{"synchronous_commit=on", "fsync=on", "max_connections=400", "autovacuum=off"}

const startLimit = time.Minute

// Server is a throw-away server, reachable through a socket in its own folder.
type Server struct {
	process *process.Process
	dir     string
	names   int
}

// Start creates a cluster in a new folder and runs a server on it. Stop removes both.
func Start(ctx context.Context) (_ *Server, err error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	account, err := unprivileged()
	if err != nil {
		return nil, err
	}
	s := &Server{}
	if s.dir, err = os.MkdirTemp("", "pg"); err != nil { // a short name, because socket paths are limited
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if account != nil {
		if err := os.Chown(s.dir, int(account.Uid), int(account.Gid)); err != nil {
			return nil, err
		}
	}
	init := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", s.dir+"/data", "-U", "postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	init.SysProcAttr, init.Dir = &syscall.SysProcAttr{Credential: account}, "/"
	if out, err := init.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	args := []string{"-D", s.dir + "/data", "-k", s.dir, "-c", "listen_addresses="}
	for _, setting := range Settings {
		args = append(args, "-c", setting)
	}
	if s.process, err = process.Start(process.Spec{
		Name: "postgres", Path: filepath.Join(bin, "postgres"), Args: args, Dir: "/", Account: account,
	}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return s, s.process.WaitReady(ctx, func(ctx context.Context) error { return s.execute(ctx, `SELECT 1`) })
}

// PID returns the parent of all processes of the server.
func (s *Server) PID() int { return s.process.PID() }

// Create creates a database and returns its URL. Drop removes it.
func (s *Server) Create(ctx context.Context) (databaseURL string, err error) {
	s.names++
	if err := s.execute(ctx, `CREATE DATABASE `+s.name()+` TEMPLATE template0`); err != nil {
		return "", fmt.Errorf("create a database: %w", err)
	}
	return s.url(s.name()), nil
}

// Drop removes the newest database and flushes its writes, so the next peer does not pay for them.
func (s *Server) Drop(ctx context.Context) error {
	if err := s.execute(ctx, `DROP DATABASE `+s.name()+` WITH (FORCE)`); err != nil {
		return fmt.Errorf("drop the database: %w", err)
	}
	return s.execute(ctx, `CHECKPOINT`)
}

// Stop ends the server and removes its folder.
func (s *Server) Stop() error {
	s.process.Stop(syscall.SIGINT) // a fast shutdown
	return os.RemoveAll(s.dir)
}

func (s *Server) name() string { return fmt.Sprint("peers_", s.names) }

func (s *Server) url(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User("postgres"),
		Host:     "",
		Path:     "/" + database,
		RawQuery: url.Values{"host": {s.dir}}.Encode(),
	}
	return u.String()
}

func (s *Server) execute(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// unprivileged returns the account of the server: nil for our own, another one for root, which PostgreSQL
// refuses.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres to run it as: %w", err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uidErr, gidErr)
}

// programs returns the folder of initdb and postgres.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	slices.Sort(found)
	slices.Reverse(found) // the newest version first
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	for _, path := range found {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "postgres")); err == nil {
			return filepath.Dir(path), nil
		}
	}
	return "", errors.New(
		"initdb and postgres are neither under /usr/lib/postgresql nor in the PATH: install the server, for example with apt-get install postgresql",
	)
}
