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
	"sync"
	"testing"
	"time"
)

// module is the import path of the repository's module.
const module = "github.com/holdfast-run/holdfast"

// natsServer is the package of the NATS server's own program, in the version
// that the stream service embeds.
const natsServer = "github.com/nats-io/nats-server/v2"

// buildLimit leaves room for an empty build cache on a small machine.
const buildLimit = 10 * time.Minute

// The binaries are linked once in the life of the test process.
var (
	binaries = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "holdfast-e2e-") })
	services = sync.OnceValue(func() error {
		return build(module+"/services/state/cmd/state", module+"/services/stream/cmd/stream",
			module+"/services/executor/cmd/executor", module+"/services/gateway/cmd/gateway")
	})
	holdfast  = sync.OnceValue(func() error { return build(module + "/cmd/holdfast") })
	nats      = sync.OnceValue(func() error { return build(natsServer) })
	faultexec = sync.OnceValue(func() error { return build(module + "/services/executor/internal/faultexec") })
)

// Program builds a main package of the module, named by its folder, and returns the
// path of the binary.
func Program(t testing.TB, folder string) string {
	t.Helper()
	if err := build(module + "/" + folder); err != nil {
		t.Fatalf("build %s: %v", folder, err)
	}
	dir, _ := binaries() // has succeeded: build asked for it
	return filepath.Join(dir, filepath.Base(folder))
}

// Binary returns the path of a built binary: state, stream, executor, gateway,
// holdfast, nats-server or faultexec.
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
	dir, _ := binaries() // has succeeded: build asked for it
	return filepath.Join(dir, name)
}

// Main is the TestMain of a package: it runs the tests, so many at a time, or as many as
// go test says where together is 0, removes the binaries, and ends the process.
func Main(m *testing.M, together int) {
	flag.Parse()
	if together > 0 {
		if err := flag.Set("test.parallel", strconv.Itoa(together)); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if err := removeBinaries(); err != nil {
		fmt.Fprintln(os.Stderr, "remove the binaries:", err)
		code = 1
	}
	os.Exit(code)
}

func removeBinaries() error {
	dir, err := binaries()
	return errors.Join(err, os.RemoveAll(dir))
}

func build(packages ...string) error {
	dir, err := binaries()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
