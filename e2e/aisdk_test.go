package e2e

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

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	scenarioLimit = 5 * time.Minute
	installLimit  = 5 * time.Minute
)

// installSDK installs the npm packages of the lock file, once.
var installSDK = sync.OnceValues(func() (string, error) {
	lock, err := os.Stat("aisdk/package-lock.json")
	if err != nil {
		return "", err
	}
	installed, err := os.Stat("aisdk/node_modules/.package-lock.json")
	if err == nil && installed.ModTime().After(lock.ModTime()) {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installLimit)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = "aisdk"
	out, err := npm.CombinedOutput()
	return string(out), err
})

// chatOptions are the input of a scenario.
type chatOptions struct {
	API     string   `json:"api"`
	Gateway string   `json:"gateway"`
	Key     string   `json:"key"`
	Agent   string   `json:"agent"`
	Session string   `json:"session"`
	Texts   []string `json:"texts"`
	Half    int      `json:"half,omitempty"` // characters
}

// chatResult is the final state of the SDK's chat.
type chatResult struct {
	Status    string              `json:"status"`
	Error     string              `json:"error"`
	Messages  []harness.UIMessage `json:"messages"`
	ToolCalls []string            `json:"toolCalls"`
	Errors    []string            `json:"errors"`
	Finishes  []struct {
		IsAbort      bool   `json:"isAbort"`
		IsDisconnect bool   `json:"isDisconnect"`
		IsError      bool   `json:"isError"`
		FinishReason string `json:"finishReason"`
	} `json:"finishes"`
	// Cut is the state when the connection broke.
	Cut *chatResult `json:"cut"`
}

// runScenario runs a scenario of aisdk/scenarios.mjs. It calls told, if set, for every intermediate report.
func runScenario(t *testing.T, name string, o chatOptions, told func(string)) chatResult {
	t.Helper()
	if out, err := installSDK(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scenarioLimit)
	defer cancel()
	script := filepath.Join("aisdk", "run.mjs")
	node := exec.CommandContext(ctx, "node", "--no-warnings", script, name, string(options))
	node.Stderr = t.Output()
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatalf("start node: %v", err)
	}
	var result *chatResult
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line struct {
			Told   string      `json:"told"`
			Result *chatResult `json:"result"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("the scenario printed %q: %v", lines.Text(), err)
			continue
		}
		if line.Result != nil {
			result = line.Result
		} else if told != nil {
			told(line.Told)
		}
	}
	if err := node.Wait(); err != nil || result == nil {
		t.Fatalf("scenario %s: %v, result %v", name, err, result)
	}
	return *result
}

// answer returns the last message. It must be the assistant's.
func (r chatResult) answer(t *testing.T) harness.UIMessage {
	t.Helper()
	if r.Status != "ready" || r.Error != "" {
		t.Errorf("the chat's status is %s with error %q, want ready without one", r.Status, r.Error)
	}
	if len(r.Messages) == 0 || r.Messages[len(r.Messages)-1].Role != "assistant" {
		t.Fatalf("the chat ends without an answer:\n%s", harness.Transcript(r.Messages))
	}
	return r.Messages[len(r.Messages)-1]
}

// checkCut verifies that the connection broke in the middle; otherwise the test proves nothing.
func (r chatResult) checkCut(t *testing.T, whole string) {
	t.Helper()
	if r.Cut == nil || len(r.Cut.Messages) != 2 {
		t.Fatalf("nothing was cut: %+v", r.Cut)
	}
	if part := r.Cut.Messages[1].Text(); part == "" || len(part) >= len(whole) {
		t.Fatalf("the connection was lost with %d bytes of text, want some of %d", len(part), len(whole))
	}
}
