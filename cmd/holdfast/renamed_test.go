package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// renaming is a process whose only agent changes its name.
type renaming struct {
	*running
	*testing.T
	file string
}

// startRenaming starts a process with an agent.
func startRenaming(t *testing.T, name string, environ ...string) *renaming {
	t.Helper()
	r := &renaming{T: t, file: filepath.Join(t.TempDir(), "agents.yaml")}
	r.rename(name)
	r.running = startWith(t, append(environ, "HOLDFAST_EXECUTOR_AGENTS_POLL=50ms"), "--data", t.TempDir(), "--agents", r.file)
	return r
}

// rename gives the agent another name, in the file alone.
func (r *renaming) rename(name string) {
	r.Helper()
	text := fmt.Sprintf("models: {scripted: {script: '{models: {m: {chunk: whole, rules: [{reply: I am %[1]s}]}}}'}}\nagents: [{name: %[1]s, model: scripted/m}]\n", name)
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// answer decodes the answer to a GET.
func (r *renaming) answer(path string) (got map[string]any) {
	r.Helper()
	if err := json.Unmarshal([]byte(r.do(r.T, http.MethodGet, path, "")), &got); err != nil {
		r.Fatal(err)
	}
	return got
}

// until looks again until the condition holds.
func (r *renaming) until(what string, holds func() bool) {
	r.Helper()
	for deadline := time.Now().Add(limit); !holds(); {
		if time.Now().After(deadline) {
			r.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(awaitPause)
	}
}

// begin renames the agent to another name, and sends a message to the former name as soon as nobody serves it.
func (r *renaming) begin(former, other string) {
	r.Helper()
	r.rename(other)
	r.until("the new name", func() bool {
		return strings.Contains(r.do(r.T, http.MethodGet, "/agents", ""), other)
	})
	if got := r.do(r.T, http.MethodPost, "/start", fmt.Sprintf(`{"sessionId":"s","agentType":%q,"message":"hi"}`, former)); !strings.Contains(got, `"runId"`) {
		r.Fatalf("got %s", got)
	}
}

func TestARunOfAnAgentThatWasRenamedSaysThatNoExecutorServesIt(t *testing.T) {
	t.Parallel()
	r := startRenaming(t, "parrot")
	r.begin("parrot", "raven")
	want := func(got any) {
		t.Helper()
		reason, _ := got.(map[string]any)
		if reason["reason"] != "no_executor" || reason["detail"] != `no executor serves the agent "parrot"` || reason["since"] == nil {
			t.Errorf("got %v", got)
		}
	}
	r.until("a reason", func() bool { return r.answer("/status?sessionId=s")["queuedReason"] != nil })
	want(r.answer("/status?sessionId=s")["queuedReason"])
	runs := r.answer("/runs?sessionId=s")["runs"].([]any)
	want(runs[0].(map[string]any)["queuedReason"])
	want(r.answer("/sessions/s")["run"].(map[string]any)["queuedReason"])

	r.rename("parrot")
	r.until("the end", func() bool { return r.answer("/status?sessionId=s")["status"] == "completed" })
	if got := r.answer("/status?sessionId=s"); got["queuedReason"] != nil || got["output"] != "I am parrot" {
		t.Errorf("got %v", got)
	}
}

func TestARunOfAnAgentThatIsGoneFails(t *testing.T) {
	t.Parallel()
	r := startRenaming(t, "parrot", "HOLDFAST_STATE_AGENT_GONE_AFTER=2s")
	r.begin("parrot", "raven")
	r.until("the failure", func() bool { return r.answer("/status?sessionId=s")["status"] == "failed" })
	run := r.answer("/sessions/s")["run"].(map[string]any)
	failure, _ := run["failure"].(map[string]any)
	if failure["code"] != "framework_agent_gone" || failure["error"] != "The agent of this conversation is not available any more." || run["stopRequested"] != "agent_gone" {
		t.Errorf("got %v", run)
	}
	if got := r.do(t, http.MethodPost, "/chat", `{"id":"t","agentType":"raven","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"hello"}]}]}`); !strings.Contains(got, "I am raven") {
		t.Errorf("got %s", got)
	}
}
