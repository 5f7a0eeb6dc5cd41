package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/client"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// startWithRemote starts a Holdfast with the agents of the tree, and one whose agent asks their boss.
func startWithRemote(t *testing.T) (here, there *running) {
	t.Helper()
	there = startTree(t)
	file := filepath.Join(t.TempDir(), "agents.yaml")
	agents := fmt.Sprintf(`
models:
  scripted:
    script: |
      models:
        asker:
          rules:
            - when: {lastUser: slow}
              reply: [{call: {name: subagent__slow, arguments: {message: 'Go'}}}]
            - when: {toolResult: subagent__far}
              reply: 'They say: {{field .LastResult}}{{field .LastResult "error"}}'
            - reply: [{call: {name: subagent__far, arguments: {message: '{{.LastUser}}'}}}]
agents:
  - name: asker
    model: scripted/asker
    tools: [{subAgent: far, description: Asks the boss of the others.}, {subAgent: slow}]
  - name: far
    remote: {url: %q, agent: boss}
  - name: slow
    remote: {url: %q, agent: slow}
  - name: nowhere
    remote: {url: %q, agent: nobody}
`, there.url, there.url, there.url)
	if err := os.WriteFile(file, []byte(agents), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, "--data", t.TempDir(), "--agents", file), there
}

func chatBody(session, agent, text string) string {
	return fmt.Sprintf(`{"id":%q,"agentType":%q,"messages":[{"id":"m of %s","role":"user","parts":[{"type":"text","text":%q}]}]}`, session, agent, session, text)
}

// question returns the part of the message that waits for an approval.
func (m *uiMessage) question(t *testing.T) *uiPart {
	t.Helper()
	at := slices.IndexFunc(m.Parts, func(p uiPart) bool { return p.State == "approval-requested" })
	if at < 0 {
		t.Fatalf("there is no question in %v", m.Parts)
	}
	return &m.Parts[at]
}

func TestAnApprovalInARemoteAgentIsAnsweredHere(t *testing.T) {
	t.Parallel()
	here, _ := startWithRemote(t)
	for agent, want := range map[string]string{
		"asker": "They say: The boss says: The manager says: It is 42.",
		"far":   "The boss says: The manager says: It is 42.",
	} {
		streamParts(t, here.do(t, http.MethodPost, "/chat", chatBody("s-"+agent, agent, "Go")))
		messages := here.loadMessages(t, "s-"+agent)
		question := messages[len(messages)-1].question(t)
		question.State = "approval-responded"
		question.Approval["approved"] = true
		body, err := json.Marshal(map[string]any{"id": "s-" + agent, "agentType": agent, "messages": messages})
		if err != nil {
			t.Fatal(err)
		}
		streamParts(t, here.do(t, http.MethodPost, "/chat", string(body)))
		messages = here.loadMessages(t, "s-"+agent)
		var text strings.Builder
		for _, p := range messages[len(messages)-1].Parts {
			text.WriteString(p.Text)
		}
		if text.String() != want {
			t.Errorf("%s answers %q, want %q", agent, text.String(), want)
		}
	}
}

func TestARemoteAgentThatDoesNotExistIsLost(t *testing.T) {
	t.Parallel()
	here, _ := startWithRemote(t)
	here.do(t, http.MethodPost, "/chat", chatBody("lost", "nowhere", "Go"))
	status := here.do(t, http.MethodGet, "/status?sessionId=lost", "")
	if !strings.Contains(status, `"status":"failed"`) || !strings.Contains(status, "The remote agent was lost.") {
		t.Errorf("status = %s", status)
	}
}

// remoteSession waits until the session has copied a step, and returns its session there.
func remoteSession(t *testing.T, here *running, session string) string {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var snapshot struct {
			State struct{ Remote struct{ Session string } }
		}
		if err := json.Unmarshal([]byte(here.do(t, http.MethodGet, "/snapshot?sessionId="+session, "")), &snapshot); err != nil {
			t.Fatal(err)
		}
		if id := snapshot.State.Remote.Session; id != "" {
			return id
		}
	}
	t.Fatalf("the session %s has copied nothing", session)
	return ""
}

// waitStatus waits until the session has the status.
func (r *running) waitStatus(t *testing.T, session, want string) {
	t.Helper()
	status := ""
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if status = r.do(t, http.MethodGet, "/status?sessionId="+session, ""); strings.Contains(status, fmt.Sprintf(`"status":%q`, want)) {
			return
		}
	}
	t.Fatalf("the session %s is %s, want it %s", session, status, want)
}

// The remote agent is a root of its own in the first case, and a sub-agent in the second: then the end of its caller
// ends its session here.
func TestAStopReachesTheRemoteAgent(t *testing.T) {
	t.Parallel()
	here, there := startWithRemote(t)
	for kind, want := range map[string]string{"abort": "failed", "interrupt": "interrupted"} {
		for _, agent := range []string{"slow", "asker"} {
			session := kind + "-" + agent
			if _, err := client.New(client.Config{URL: here.url}).Start(t.Context(), &agentv1.StartRequest{SessionId: session, AgentType: agent, Message: "slow"}); err != nil {
				t.Fatal(err)
			}
			copied := session
			if agent == "asker" {
				copied = here.subSession(t, session)
			}
			far := remoteSession(t, here, copied)
			there.waitStatus(t, far, "active")
			here.do(t, http.MethodPost, "/chat/"+session+"/"+kind, "")
			there.waitStatus(t, far, want)
			here.waitStatus(t, session, want)
		}
	}
}

// subSession waits for the sub-agent of the session.
func (r *running) subSession(t *testing.T, session string) string {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		messages := r.loadMessages(t, session)
		if len(messages) == 0 {
			continue
		}
		for _, p := range messages[len(messages)-1].Parts {
			if id, ok := p.Data["sessionId"].(string); ok {
				return id
			}
		}
	}
	t.Fatalf("the session %s has no sub-agent", session)
	return ""
}

func TestAnInterruptedRemoteAgentIsResumed(t *testing.T) {
	t.Parallel()
	here, there := startWithRemote(t)
	c := client.New(client.Config{URL: here.url})
	if _, err := c.Start(t.Context(), &agentv1.StartRequest{SessionId: "s", AgentType: "slow", Message: "slow"}); err != nil {
		t.Fatal(err)
	}
	far := remoteSession(t, here, "s")
	here.do(t, http.MethodPost, "/chat/s/interrupt", "")
	here.waitStatus(t, "s", "interrupted")
	there.waitStatus(t, far, "interrupted")
	if _, err := c.Resume(t.Context(), &agentv1.ResumeRequest{SessionId: "s"}); err != nil {
		t.Fatal(err)
	}
	there.waitStatus(t, far, "active")
	if n := strings.Count(there.do(t, http.MethodGet, "/messages?sessionId="+far, ""), `"role":"user"`); n != 1 {
		t.Errorf("the session there has %d messages of users, want 1", n)
	}
	here.do(t, http.MethodPost, "/chat/s/abort", "")
	there.waitStatus(t, far, "failed")
	here.waitStatus(t, "s", "failed")
}
