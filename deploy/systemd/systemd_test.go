// Package systemd_test checks the units.
package systemd_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var services = []string{"state", "stream", "executor", "gateway"}

// verifyLimit bounds one run of systemd-analyze.
const verifyLimit = time.Minute

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEachServiceHasAUnitWithoutRights(t *testing.T) {
	t.Parallel()
	for _, s := range services {
		unit := read(t, "holdfast-"+s+".service")
		for _, line := range []string{
			"ExecStart=/usr/local/bin/holdfast-" + s, "EnvironmentFile=/etc/holdfast/" + s + ".env", "Restart=always", "DynamicUser=yes",
			"NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateDevices=yes", "CapabilityBoundingSet=",
			"SystemCallFilter=@system-service",
		} {
			if !strings.Contains(unit, "\n"+line+"\n") {
				t.Errorf("the unit of %s lacks the line %q", s, line)
			}
		}
	}
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatalf("%v (e2e/setup installs it)", err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, s := range services {
		name := "holdfast-" + s + ".service"
		// The programs are not installed here, which would be an error.
		unit := strings.Replace(read(t, name), "/usr/local/bin/holdfast-"+s, "/bin/true", 1)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	ctx, cancel := context.WithTimeout(t.Context(), verifyLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, analyze, args...).CombinedOutput()
	// It warns about unknown lines without failing.
	if err != nil || strings.Contains(string(out), dir) {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}

func TestEveryVariableOfTheExampleIsDocumented(t *testing.T) {
	t.Parallel()
	documented := read(t, "../../docs/configuration.md")
	found := regexp.MustCompile(`(?m)^([A-Z_0-9]+)=`).FindAllStringSubmatch(read(t, "holdfast.env.example"), -1)
	if len(found) == 0 {
		t.Error("the example has no variables")
	}
	for _, v := range found {
		if !strings.Contains(documented, "| `"+v[1]+"` |") {
			t.Errorf("%s is no variable of Holdfast", v[1])
		}
	}
}
