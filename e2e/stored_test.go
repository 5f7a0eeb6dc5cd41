package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// echoing is a file of agents with a model that says its system prompt.
const echoing = `
models: {told: {provider: scripted, script: "models: {m: {rules: [{when: {lastUser: who}, reply: '{{.System}}'}]}}"}}
agents: [{name: own, model: told/m, systemPrompt: I am of the file.}]
`

// putAgent stores an agent that says the text, and returns what that has changed.
func putAgent(t *testing.T, c harness.Client, name, says string) string {
	t.Helper()
	body := fmt.Sprintf(`{"definition": {"model": "told/m", "systemPrompt": %q}}`, says)
	answer := c.Do(t, http.MethodPut, "/agents/"+name, []byte(body))
	var put struct{ Outcome, Hash string }
	if err := json.Unmarshal([]byte(answer.Body), &put); err != nil || answer.Code != http.StatusOK || len(put.Hash) != 64 {
		t.Fatalf("got %d %s", answer.Code, answer.Body)
	}
	return put.Outcome
}

// asks fails the test unless the agent of the session says the text.
func asks(t *testing.T, c harness.Client, session, agent, want string) {
	t.Helper()
	checkContent(t, agent+" in "+session, c.Chat(t, session, agent, "who").ReadAll(), textContent(want))
}

func TestAnAgentIsStoredRunChangedAndRunAgain(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) harness.Client{
		"holdfast dev": func(t *testing.T) harness.Client {
			t.Helper()
			return harness.StartDev(t, echoing).Client
		},
		"separate processes": func(t *testing.T) harness.Client {
			t.Helper()
			return harness.Start(t, harness.Options{Agents: echoing, ExecutorEnv: []string{"HOLDFAST_EXECUTOR_STORED_AGENTS=true"}}).Client
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			if got := putAgent(t, c, "clerk", "first"); got != "created" {
				t.Errorf("got %q, want created", got)
			}
			asks(t, c, "s1", "clerk", "first")
			if got := putAgent(t, c, "clerk", "first"); got != "unchanged" {
				t.Errorf("got %q, want unchanged", got)
			}
			if got := putAgent(t, c, "clerk", "second"); got != "changed" {
				t.Errorf("got %q, want changed", got)
			}
			asks(t, c, "s1", "clerk", "second")
			if a := c.Do(t, http.MethodPut, "/agents/own", []byte(`{"definition": {"model": "told/m"}}`)); a.Code != http.StatusConflict ||
				!strings.Contains(a.Body, "AGENT_ANNOUNCED") {
				t.Errorf("got %d %s, want a refusal of the executor's name", a.Code, a.Body)
			}
			if a := c.Do(t, http.MethodDelete, "/agents/clerk", nil); a.Code != http.StatusOK {
				t.Errorf("got %d %s", a.Code, a.Body)
			}
			if a := c.Do(t, http.MethodGet, "/agents/clerk", nil); a.Code != http.StatusNotFound {
				t.Errorf("got %d %s of a deleted agent", a.Code, a.Body)
			}
		})
	}
}

func TestAgentsApplyStoresTheAgentsOfFilesAndPrintsMistakes(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, echoing)
	dir := t.TempDir()
	apply := func(text string) (string, error) {
		t.Helper()
		file := filepath.Join(dir, "team.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), harness.Binary(t, "holdfast"), "agents", "apply", "--url", d.URL, file)
		out, err := command.CombinedOutput()
		return strings.ReplaceAll(string(out), dir+"/", ""), err
	}
	const team = "defaults: {model: told/m}\nagents:\n  - {name: a, systemPrompt: I am a.}\n  - {name: b, systemPrompt: I am b.}\n"
	if out, err := apply(team); err != nil || !strings.Contains(out, "created a ") || !strings.Contains(out, "created b ") {
		t.Errorf("got %v\n%s", err, out)
	}
	if out, err := apply(strings.Replace(team, "I am b.", "I was b.", 1)); err != nil || !strings.Contains(out, "unchanged a ") ||
		!strings.Contains(out, "changed b ") {
		t.Errorf("got %v\n%s", err, out)
	}
	asks(t, d.Client, "s1", "b", "I was b.")
	if out, err := apply(team + "    maxSteps: many\n"); err == nil || !strings.Contains(out, "team.yaml:") {
		t.Errorf("got %v\n%s\nwant a mistake with its place", err, out)
	}
}
