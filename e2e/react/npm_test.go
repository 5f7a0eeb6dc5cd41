package react_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	installLimit = 5 * time.Minute
	bundleLimit  = 5 * time.Minute
)

// install installs the npm packages of the lock file, once.
var install = sync.OnceValues(func() (string, error) {
	lock, err := os.Stat("package-lock.json")
	if err != nil {
		return "", err
	}
	installed, err := os.Stat("node_modules/.package-lock.json")
	if err == nil && installed.ModTime().After(lock.ModTime()) {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error").CombinedOutput()
	return string(out), err
})

// bundle returns the app and its imports as one script.
func bundle(t *testing.T) []byte {
	t.Helper()
	if out, err := install(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bundleLimit)
	defer cancel()
	esbuild := exec.CommandContext(ctx, filepath.Join("node_modules", ".bin", "esbuild"), "app/main.jsx",
		"--bundle", "--format=esm", "--jsx=automatic", `--define:process.env.NODE_ENV="production"`, "--log-level=warning")
	var complaints strings.Builder
	esbuild.Stderr = &complaints
	script, err := esbuild.Output()
	if err != nil || complaints.Len() > 0 {
		t.Fatalf("bundle the app: %v\n%s", err, complaints.String())
	}
	return script
}
