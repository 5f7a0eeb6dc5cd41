package vite_test

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const support = "../../examples/support-typescript"

// portOf returns a free port.
func portOf(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(harness.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestTheSupportAgentInTypeScriptRefundsAfterAnApprovalAlthoughBothProgramsDie(t *testing.T) {
	t.Parallel()
	harness.InstallNPM(t, "../../clients/typescript")
	harness.InstallNPM(t, support)
	harness.InstallNPM(t, ".")
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v (e2e/setup installs it)", err)
	}
	folder, err := filepath.Abs(support)
	if err != nil {
		t.Fatal(err)
	}
	binary := harness.Binary(t, "holdfast")
	ctx, cancel := context.WithTimeout(t.Context(), playLimit)
	defer cancel()
	drive := exec.CommandContext(ctx, "node", "--no-warnings", "support.mjs", chromium, binary, folder, portOf(t), portOf(t), t.TempDir())
	if out, err := drive.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
