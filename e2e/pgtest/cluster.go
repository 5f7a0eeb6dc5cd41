package pgtest

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// keeper runs the server and ends it when standard input ends, that is, when the test process closes the pipe or
// dies. Background jobs are off, because tests examine plans and count reads. $3 is the setting of fsync.
const keeper = `
"$1" -D "$2/data" -k "$2" -c listen_addresses= -c max_connections=400 -c autovacuum=off -c fsync="$3" -c log_min_messages=fatal >"$2/log" 2>&1 &
cat >/dev/null
kill -QUIT $!
wait
rm -rf "$2"
`

// start creates a cluster in a temporary folder and runs a server on it.
func start() (server, error) {
	bin, err := programs()
	if err != nil {
		return server{}, err
	}
	account, err := unprivileged()
	if err != nil {
		return server{}, err
	}
	dir, err := os.MkdirTemp("", "pg") // a short name, because socket paths are limited
	if err != nil {
		return server{}, err
	}
	if account != nil {
		if err := os.Chown(dir, int(account.Uid), int(account.Gid)); err != nil {
			return server{}, err
		}
	}
	init := exec.CommandContext(
		context.Background(),
		filepath.Join(bin, "initdb"),
		"-D",
		dir+"/data",
		"-U",
		"postgres",
		"--auth=trust",
		"--encoding=UTF8",
		"--locale=C",
		"--no-sync",
	)
	as(init, account)
	if out, err := init.CombinedOutput(); err != nil {
		return server{}, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return run(bin, dir, account)
}

func run(bin, dir string, account *syscall.Credential) (server, error) {
	// No context: the server lives as long as the process, not a test.
	sh := exec.CommandContext(context.Background(), "/bin/sh", "-c", keeper, "keeper", filepath.Join(bin, "postgres"), dir, fsync())
	as(sh, account)
	pipe, err := sh.StdinPipe()
	if err != nil {
		return server{}, err
	}
	if err := sh.Start(); err != nil {
		return server{}, fmt.Errorf("start postgres: %w", err)
	}
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/postgres", RawQuery: url.Values{"host": {dir}}.Encode()}
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := execute(u.String(), `SELECT 1`)
		if err == nil {
			return server{url: u.String(), alive: pipe}, nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return server{}, fmt.Errorf("postgres does not answer: %w\n%s", err, tail(dir+"/log"))
		}
	}
}

// fsync returns off unless benchmarks run: the folder does not outlive the server, so only they need the disk.
func fsync() string {
	if f := flag.Lookup("test.bench"); f != nil && f.Value.String() != "" {
		return "on"
	}
	return "off"
}

// as runs the command as the account in its own process group. A keyboard interrupt thus reaches only the tests,
// which then end the server.
func as(c *exec.Cmd, account *syscall.Credential) {
	c.Dir = "/"
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: account, Setpgid: true}
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

// programs returns the folder of the newest initdb and postgres.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	for _, path := range found {
		dir := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("initdb and postgres are neither under /usr/lib/postgresql nor in the PATH: "+
		"install the server (Debian and Ubuntu: apt-get install postgresql), or set %s to the URL of one", Variable)
}

// version is the 17 of /usr/lib/postgresql/17/bin/initdb.
func version(path string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	if err != nil {
		return 0
	}
	return n
}

func tail(path string) string {
	const most = 4096
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}
