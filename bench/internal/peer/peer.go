// Package peer is what the benchmark asks of every runtime.
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

// Peer is a runtime that executes the agent. One goroutine uses it at a time.
type Peer interface {
	// Prepare installs and builds what the peer needs. An error says why it cannot be had
	// here: the peer is skipped.
	Prepare(ctx context.Context, bin string) error
	// Start starts the processes of the peer and waits until they are ready. Stop follows,
	// after an error as well.
	Start(ctx context.Context, w World) error
	// Run executes n runs of the agent, begun at the same time, to their ends.
	Run(ctx context.Context, n int) error
	// PIDs are the processes whose time counts, with everything below them. Those of
	// Postgres always count.
	PIDs() []int
	Stop()
}

// World is what a peer is started in.
type World struct {
	Bin      string // the folder of the built programs
	Dir      string // an empty folder
	Database string // the URL of an empty Postgres database
}

// Build builds main packages of the module in the folder source into the folder bin.
func Build(ctx context.Context, source, bin string, packages ...string) error {
	args := append([]string{"build", "-C", source, "-o", bin + string(filepath.Separator)}, packages...)
	return command(ctx, "go", args...)
}

// BuildWorker builds the main package RUNTIME/worker into the folder bin.
func BuildWorker(ctx context.Context, bin, runtime string) error {
	return command(ctx, "go", "build", "-o", Worker(bin, runtime), "./"+runtime+"/worker")
}

// Worker is the path of the worker of a runtime in the folder of the built programs.
func Worker(bin, runtime string) string { return filepath.Join(bin, runtime+"-worker") }

// Install installs the npm packages of a folder as its lock file says, unless they are
// there.
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

// GoInstall builds a main package of another module into a folder of its own below bin,
// unless it is there, and returns the path of the program.
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
