package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	// scenarioLimit bounds a scenario, and installLimit an installation of npm packages.
	scenarioLimit = 10 * time.Minute
	installLimit  = 5 * time.Minute
	// closeLimit is how long a browser may take to exit after its scenario is cancelled.
	closeLimit = time.Minute
)

// installing is held by the test that installs npm packages.
var installing sync.Mutex

// InstallNPM installs the npm packages of the lock file of a folder, unless they are there.
func InstallNPM(t testing.TB, folder string) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	lock, err := os.Stat(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.Stat(filepath.Join(folder, "node_modules/.package-lock.json"))
	if err == nil && installed.ModTime().After(lock.ModTime()) {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = folder
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci in %s: %v\n%s", folder, err, out)
	}
}

// Scenario runs a scenario of run.mjs in a folder with options as JSON, and returns its result. It calls told, if set,
// for every intermediate report.
func Scenario[R any](t *testing.T, folder, name string, options any, told func(string)) R {
	t.Helper()
	InstallNPM(t, folder)
	asJSON, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scenarioLimit)
	defer cancel()
	node := exec.CommandContext(ctx, "node", "--no-warnings", filepath.Join(folder, "run.mjs"), name, string(asJSON))
	node.Cancel = func() error { return node.Process.Signal(os.Interrupt) } // ends the browser as well
	node.WaitDelay = closeLimit
	node.Stderr = t.Output()
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatalf("start node: %v", err)
	}
	last := readReports[R](t, bufio.NewScanner(out), told)
	if err := node.Wait(); err != nil || last == nil {
		t.Fatalf("scenario %s: %v, result %v", name, err, last)
	}
	return *last
}

// readReports reads lines of JSON to the end, and returns the last result.
func readReports[R any](t *testing.T, lines *bufio.Scanner, told func(string)) (last *R) {
	t.Helper()
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct {
			Told   string `json:"told"`
			Result *R     `json:"result"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("the scenario printed %q: %v", lines.Text(), err)
			continue
		}
		if line.Result != nil {
			last = line.Result
		} else if told != nil {
			told(line.Told)
		}
	}
	return last
}
