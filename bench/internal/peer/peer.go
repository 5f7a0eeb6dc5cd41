// Package peer is the interface between the benchmark and every runtime.
package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// Peer is a runtime for the agent. One goroutine uses it at a time.
type Peer interface {
	// Prepare installs and builds the peer. An error explains why it is unavailable; the peer is then skipped.
	Prepare(ctx context.Context, bin string) error
	// Start starts the peer's processes and waits until they are ready. Stop follows, also after an error.
	Start(ctx context.Context, w World) error
	// Run executes n concurrent runs of the agent to their ends.
	Run(ctx context.Context, n int) error
	// PIDs returns the processes to measure, with all their descendants. Postgres always counts.
	PIDs() []int
	Stop()
}

// World is the environment of a peer.
type World struct {
	Bin      string // the folder of the built programs
	Dir      string // empty
	Database string // URL of an empty Postgres database
}

// Build builds main packages of the module in source into the folder bin.
func Build(ctx context.Context, source, bin string, packages ...string) error {
	args := append([]string{"build", "-C", source, "-o", bin + string(filepath.Separator)}, packages...)
	return command(ctx, "go", args...)
}

// BuildWorker builds the main package RUNTIME/worker into the folder bin.
func BuildWorker(ctx context.Context, bin, runtime string) error {
	return command(ctx, "go", "build", "-o", Worker(bin, runtime), "./"+runtime+"/worker")
}

// Worker returns the path of a runtime's worker below bin.
func Worker(bin, runtime string) string { return filepath.Join(bin, runtime+"-worker") }

// Install installs a folder's npm packages from its lock file unless they are installed.
func Install(ctx context.Context, folder string) error {
	locked, err := os.Stat(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		return err
	}
	installed, err := os.Stat(filepath.Join(folder, "node_modules", ".package-lock.json"))
	if err == nil && !installed.ModTime().Before(locked.ModTime()) {
		return nil
	}
	return command(ctx, "npm", "ci", "--prefix", folder, "--no-audit", "--no-fund", "--loglevel=error")
}

// GoInstall builds a main package of another module into a folder below bin unless it exists, and returns the
// program's path.
func GoInstall(ctx context.Context, bin, mainPackage, version string) (program string, err error) {
	name := path.Base(mainPackage)
	folder := filepath.Join(bin, name+"-"+version)
	program = filepath.Join(folder, name)
	if _, err := os.Stat(program); !errors.Is(err, os.ErrNotExist) {
		return program, err
	}
	return program, command(ctx, "env", "GOBIN="+folder, "GOFLAGS=", "go", "install", mainPackage+"@"+version)
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}
