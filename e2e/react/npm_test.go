package react_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const bundleLimit = 5 * time.Minute

// bundle returns the app and its imports as one script.
func bundle(t *testing.T) []byte {
	t.Helper()
	harness.InstallNPM(t, ".")
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
