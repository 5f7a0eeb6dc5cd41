package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// companionAgents are a boss, who uses all tools for companions, a blocking critic and a non-blocking scout.
const companionAgents = `
models:
  scripted:
    script: |
      models:
        boss:
          delay: 0s
          rules:
            - when: {step: 1}
              reply:
                - call: {name: companion__spawnAgent, arguments: {agent: critic, name: Nora, initialMessage: one}}
                - call: {name: companion__spawnAgent, arguments: {agent: scout, name: Rex, initialMessage: go}}
            - when: {step: 2}
              reply: [{call: {name: companion__sendMessage, arguments: {name: Nora, message: two}}}]
            - when: {step: 3}
              reply: [{call: {name: companion__waitForResult, arguments: {name: Nora}}}]
            - when: {step: 4}
              reply: [{call: {name: companion__terminateChild, arguments: {name: Rex}}}]
            - when: {step: 5}
              reply: [{call: {name: companion__getChildStatus, arguments: {name: Nora}}}]
            - when: {step: 6}
              reply: [{call: {name: companion__listChildren, arguments: {}}}]
            - reply: 'Done.'
        critic: {rules: [{reply: 'I have read {{join .Users " and "}}.'}]}
        scout: {rules: [{reply: [{wait: 1h}, {text: 'Found.'}]}]}
agents:
  - name: boss
    model: scripted/boss
    companions: [{agent: critic}, {agent: scout, mode: non-blocking}]
  - {name: critic, model: scripted/critic}
  - {name: scout, model: scripted/scout}
`

func TestAllToolsForCompanionsWorkInChat(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte(companionAgents), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, "--data", t.TempDir(), "--agents", file)
	stream := streamParts(t, r.do(t, http.MethodPost, "/chat", `{"id":"c","agentType":"boss","messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"Go"}]}]}`))
	messages := r.loadMessages(t, "c")
	for what, parts := range map[string][]uiPart{"the stream": stream, "a reload": messages[len(messages)-1].Parts} {
		got := map[string]bool{}
		for _, p := range parts {
			if len(p.Output) > 0 {
				got[string(p.Output)] = true
			}
		}
		for _, want := range []string{
			`{"name":"Nora","status":"completed","output":"I have read one."}`, `{"name":"Rex","status":"delivered"}`, `{"name":"Nora","status":"delivered"}`,
			`{"name":"Nora","status":"completed","output":"I have read one and two."}`, `{"name":"Rex","status":"terminated"}`,
			`{"name":"Nora","agent":"critic","status":"completed","output":"I have read one and two."}`,
		} {
			if !got[want] {
				t.Errorf("%s has no output %s, but %v", what, want, got)
			}
		}
		if len(got) != 7 {
			t.Errorf("%s has %d outputs, want 7: %v", what, len(got), got)
		}
		if got, want := subAgents(parts), []string{"critic completed false", "critic completed false"}; !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", what, got, want)
		}
	}
}

func TestTheEditorConsultsItsCritic(t *testing.T) {
	t.Parallel()
	r := start(t, "--data", t.TempDir())
	for turn, drafts := range []int{2, 4} {
		body := fmt.Sprintf(`{"id":"e","agentType":"editor","messages":[{"id":"m%d","role":"user","parts":[{"type":"text","text":"It rained."}]}]}`, turn)
		var text string
		for _, p := range streamParts(t, r.do(t, http.MethodPost, "/chat", body)) {
			text += p.Delta
		}
		want := fmt.Sprintf("I will show a draft to my critic.Nora says: “It begins well, but it has no end.” I will change that."+
			"Nora says: “Better. Of the %d drafts that I have read it is the best.” Here it is:\n\nIt rained. And so it ended.", drafts)
		if text != want {
			t.Errorf("the answer is %q, want %q", text, want)
		}
	}
}
