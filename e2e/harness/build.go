package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// module is the import path of the repository's module.
const module = "github.com/holdfast-run/holdfast"

// natsServer is the main package of the NATS server, in the version that the stream service embeds.
const natsServer = "github.com/nats-io/nats-server/v2"

// buildLimit allows for an empty build cache on a small machine.
const buildLimit = 10 * time.Minute

// Each test process checks once that the binaries are up to date.
var (
	services = sync.OnceValue(func() error {
		return build(module+"/services/state/cmd/state", module+"/services/stream/cmd/stream",
			module+"/services/executor/cmd/executor", module+"/services/gateway/cmd/gateway")
	})
	holdfast  = sync.OnceValue(func() error { return build(module + "/cmd/holdfast") })
	nats      = sync.OnceValue(func() error { return build(natsServer) })
	faultexec = sync.OnceValue(func() error { return build(module + "/services/executor/internal/faultexec") })
)

// Program builds a main package of the module, named by its folder, and returns the path of the binary.
func Program(t testing.TB, folder string) string {
	t.Helper()
	if err := build(module + "/" + folder); err != nil {
		t.Fatalf("build %s: %v", folder, err)
	}
	return binaryPath(t, filepath.Base(folder))
}

// Binary returns the path of a built binary: state, stream, executor, gateway, holdfast, nats-server or
// faultexec.
func Binary(t testing.TB, name string) string {
	t.Helper()
	built := services
	switch name {
	case "holdfast":
		built = holdfast
	case "nats-server":
		built = nats
	case "faultexec":
		built = faultexec
	}
	if err := built(); err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	return binaryPath(t, name)
}

func binaryPath(t testing.TB, name string) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatalf("find the binaries: %v", err)
	}
	return filepath.Join(dir, name)
}

// Main is the TestMain of a package. It runs at most parallel tests at a time, or as many as go test allows
// if parallel is 0.
func Main(m *testing.M, parallel int) {
	flag.Parse()
	if parallel > 0 {
		if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// binaries returns the folder of the binaries. All test processes share it, because linking the same
// programs in each of them takes minutes.
var binaries = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), ".bin", "e2e")
	return dir, os.MkdirAll(dir, 0o755)
})

// build links main packages whose binaries are missing or outdated. It holds a file lock, so concurrent test
// processes wait for each other instead of linking twice.
func build(packages ...string) (err error) {
	dir, err := binaries()
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the binaries: %w", err)
	}
	// Without debugging information they link faster.
	args := append([]string{"build", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}, packages...)
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
