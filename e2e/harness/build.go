package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// module is the import path of the repository's module.
const module = "github.com/holdfast-run/holdfast"

// buildLimit leaves room for an empty build cache on a small machine.
const buildLimit = 10 * time.Minute

// The binaries are linked once in the life of the test process.
var (
	binaries = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "holdfast-e2e-") })
	services = sync.OnceValue(func() error {
		return build("services/state/cmd/state", "services/stream/cmd/stream",
			"services/executor/cmd/executor", "services/gateway/cmd/gateway")
	})
	holdfast = sync.OnceValue(func() error { return build("cmd/holdfast") })
)

// Binary returns the path of a built binary: state, stream, executor, gateway
// or holdfast.
func Binary(t testing.TB, name string) string {
	t.Helper()
	built := services
	if name == "holdfast" {
		built = holdfast
	}
	if err := built(); err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	dir, _ := binaries() // has succeeded: build asked for it
	return filepath.Join(dir, name)
}

// RemoveBinaries is for the end of TestMain.
func RemoveBinaries() error {
	dir, err := binaries()
	return errors.Join(err, os.RemoveAll(dir))
}

func build(packages ...string) error {
	dir, err := binaries()
	if err != nil {
		return err
	}
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, p := range packages {
		args = append(args, module+"/"+p)
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
