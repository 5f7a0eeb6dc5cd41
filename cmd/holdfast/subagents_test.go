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
)

// treeAgents are a boss, whose manager has a worker, whose sums need an approval.
const treeAgents = `
models:
  scripted:
    script: |
      models:
        boss:
          rules:
            - when: {toolResult: subagent__manager}
              reply: 'The boss says: {{field .LastResult}}{{field .LastResult "error"}}'
            - reply: [{call: {name: subagent__manager, arguments: {message: 'Have a sum done.'}}}]
        manager:
          rules:
            - when: {toolResult: subagent__worker}
              reply: 'The manager says: {{field .LastResult}}'
            - reply: [{call: {name: subagent__worker, arguments: {message: 'Do a sum.'}}}]
        slow:
          rules:
            - when: {toolResult: calculate}
              reply: [{text: 'I begin.'}, {wait: 1h}, {text: 'I end.'}]
            - reply: [{call: {name: calculate, arguments: {expression: '6 * 7'}}}]
        worker:
          rules:
            - when: {toolFailed: calculate}
              reply: 'They refuse.'
            - when: {toolResult: calculate}
              reply: 'It is {{field .LastResult "value"}}.'
            - reply: [{call: {name: calculate, arguments: {expression: '6 * 7'}}}]
agents:
  - name: boss
    model: scripted/boss
    tools: [{subAgent: manager, description: Has things done.}]
  - name: manager
    model: scripted/manager
    tools: [{subAgent: worker, description: Does sums.}]
  - {name: slow, model: scripted/slow, tools: [calculate]}
  - name: worker
    model: scripted/worker
    tools: [{use: calculate, approval: always}]
`

// startTree starts Holdfast with the agents of the tree.
func startTree(t *testing.T) *running {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte(treeAgents), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, "--data", t.TempDir(), "--agents", file)
}

// uiPart is a part of a UI message.
type uiPart struct {
	Type       string          `json:"type"`
	ID         string          `json:"id,omitempty"`
	Text       string          `json:"text,omitempty"`
	Delta      string          `json:"delta,omitempty"`
	State      string          `json:"state,omitempty"`
	ToolCallID string          `json:"toolCallId,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	Output     json.RawMessage `json:"output,omitempty"`
	Approval   map[string]any  `json:"approval,omitempty"`
	Data       map[string]any  `json:"data,omitempty"`
}

type uiMessage struct {
	ID    string   `json:"id"`
	Role  string   `json:"role"`
	Parts []uiPart `json:"parts"`
}

// loadMessages loads the conversation like a page.
func (r *running) loadMessages(t *testing.T, session string) []uiMessage {
	t.Helper()
	var page struct{ Messages []uiMessage }
	if err := json.Unmarshal([]byte(r.do(t, http.MethodGet, "/messages?sessionId="+session, "")), &page); err != nil {
		t.Fatal(err)
	}
	return page.Messages
}

// subAgents describes the sub-agents in the parts of a stream or a message.
func subAgents(parts []uiPart) []string {
	last := map[any]string{}
	for _, p := range parts {
		if p.Type == "data-subagent" {
			last[p.ID] = fmt.Sprint(p.Data["agentType"], " ", p.Data["status"], " ", p.Data["parentSessionId"] != nil)
		}
	}
	var list []string
	for _, one := range last {
		list = append(list, one)
	}
	slices.Sort(list)
	return list
}

// streamParts returns the parts of an event stream.
func streamParts(t *testing.T, stream string) []uiPart {
	t.Helper()
	var parts []uiPart
	for line := range strings.Lines(stream) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "data: {")
		if !ok {
			continue
		}
		var p uiPart
		if err := json.Unmarshal([]byte("{"+text), &p); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	if n := len(parts); n == 0 || parts[n-1].Type != "finish" {
		t.Fatalf("the stream does not end: %s", stream)
	}
	return parts
}

func TestAnApprovalTwoLevelsDownIsAnsweredInTheMessageOfTheRoot(t *testing.T) {
	t.Parallel()
	r := startTree(t)
	for session, c := range map[string]struct {
		approved bool
		want     string
	}{
		"approved": {true, "The boss says: The manager says: It is 42."},
		"refused":  {false, "The boss says: The manager says: They refuse."},
	} {
		parts := streamParts(t, r.do(t, http.MethodPost, "/chat", fmt.Sprintf(`{"id":%q,"agentType":"boss","messages":[{"id":%q,"role":"user","parts":[{"type":"text","text":"Go"}]}]}`, session, session)))
		if got, want := subAgents(parts), []string{"manager running false", "worker running true"}; !slices.Equal(got, want) {
			t.Errorf("the stream shows %q, want %q", got, want)
		}
		messages := r.loadMessages(t, session)
		last := &messages[len(messages)-1]
		at := slices.IndexFunc(last.Parts, func(p uiPart) bool { return p.State == "approval-requested" })
		if at < 0 {
			t.Fatalf("a page that reloads shows no question: %v", last.Parts)
		}
		last.Parts[at].State = "approval-responded"
		last.Parts[at].Approval["approved"] = c.approved
		body, err := json.Marshal(map[string]any{"id": session, "agentType": "boss", "messages": messages})
		if err != nil {
			t.Fatal(err)
		}
		stream := r.do(t, http.MethodPost, "/chat", string(body))
		streamParts(t, stream)
		// A client whose connection has broken sends its answer again, when the root has continued.
		again := streamParts(t, r.do(t, http.MethodPost, "/chat", string(body)))
		if !slices.ContainsFunc(again, func(p uiPart) bool { return p.Type == "tool-output-available" && p.ToolCallID != "" }) || deltas(again) != c.want {
			t.Errorf("the answer that is sent again continues with %q, %v; want the output of the sub-agent and %q", deltas(again), again, c.want)
		}
		messages = r.loadMessages(t, session)
		last = &messages[len(messages)-1]
		if got := last.Parts[len(last.Parts)-1].Text; got != c.want {
			t.Errorf("the answer is %q, want %q; the stream was %s", got, c.want, stream)
		}
	}
}

func TestAStopOfTheRootEndsTheTree(t *testing.T) {
	t.Parallel()
	r := startTree(t)
	for kind, want := range map[string]string{"abort": "failed", "interrupt": "interrupted"} {
		parts := streamParts(t, r.do(t, http.MethodPost, "/chat", fmt.Sprintf(`{"id":%q,"agentType":"boss","messages":[{"id":%q,"role":"user","parts":[{"type":"text","text":"Go"}]}]}`, kind, kind)))
		r.do(t, http.MethodPost, "/chat/"+kind+"/"+kind+"?wait=10000", "")
		sessions := []any{kind}
		for _, p := range parts {
			if p.Type == "data-subagent" && !slices.Contains(sessions, p.Data["sessionId"]) {
				sessions = append(sessions, p.Data["sessionId"])
			}
		}
		if len(sessions) != 3 {
			t.Fatalf("the tree has the sessions %v, want 3", sessions)
		}
		for _, session := range sessions {
			if got := r.do(t, http.MethodGet, fmt.Sprint("/status?sessionId=", session), ""); !strings.Contains(got, `"`+want+`"`) {
				t.Errorf("after the %s, session %v is %s, want it %s", kind, session, got, want)
			}
		}
		messages := r.loadMessages(t, kind)
		if last := messages[len(messages)-1]; slices.ContainsFunc(last.Parts, func(p uiPart) bool { return p.State == "approval-requested" }) {
			t.Errorf("after the %s, the page still asks: %v", kind, last.Parts)
		}
	}
}

// deltas returns the text of a stream.
func deltas(parts []uiPart) string {
	var text strings.Builder
	for _, p := range parts {
		text.WriteString(p.Delta)
	}
	return text.String()
}
