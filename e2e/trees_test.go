package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// treeAgents has an agent whose sub-agent writes for a while.
const treeAgents = `
models:
  scripted:
    script: |
      models:
        boss:
          delay: 0s
          rules:
            - when: {lastUser: '^more$'}
              reply: 'More.'
            - when: {toolResult: subagent__helper}
              reply: 'It says: {{field .LastResult}}{{field .LastResult "error"}}'
            - reply: [{text: 'Let me see.'}, {call: {name: subagent__helper, arguments: {message: Go}}}]
        helper:
          chunk: 1 word
          delay: 100ms
          rules:
            - reply: 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty'
agents:
  - name: boss
    model: scripted/boss
    tools: [{subAgent: helper, description: Helps.}]
  - {name: helper, model: scripted/helper}
`

const helped = "It says: one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"

// helperOf reads the stream until the sub-agent works, and returns its session.
func helperOf(t *testing.T, s *harness.System, stream *harness.UIStream) (id string) {
	t.Helper()
	stream.Until("the sub-agent works", func(m harness.UIMessage) bool {
		for _, p := range m.Parts {
			var data struct{ SessionID, Status string }
			if p.Type == "data-subagent" && json.Unmarshal(p.Data, &data) == nil {
				id = data.SessionID
			}
		}
		return id != ""
	})
	s.WaitStatus(t, id, "active") // it begins with the commit of the step that readers see before
	return id
}

func TestAMessageToARootFollowsItsPolicyWhileASubAgentWorks(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: treeAgents})
	for _, policy := range []string{"reject", "enqueue", "interrupt", "rollback"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			first := s.Chat(t, policy, "boss", "go")
			below := helperOf(t, s, first)
			asked := []harness.UIMessage{harness.UserMessage("more", "more")}
			second, err := s.Post(t.Context(), harness.ChatPost{Session: policy, Agent: "boss", Messages: asked, OnBusy: policy})
			if policy == "reject" {
				if code := harness.RefusalCode(err); code != "SESSION_BUSY" {
					t.Errorf("the message was answered with %v, want SESSION_BUSY", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			err = first.Rest() // a rollback removes the answer
			ended := first.Message.Text()
			if err != nil && policy != "rollback" {
				t.Errorf("the first answer: %v", err)
			}
			if works := policy == "reject" || policy == "enqueue"; strings.HasSuffix(ended, helped) != works {
				t.Errorf("the first answer is %q, want the end of the work: %t", ended, works)
			}
			if second != nil {
				defer second.Close()
				if err := cmp.Or(second.Rest(), second.Complete()); err != nil || second.Message.Text() != "More." {
					t.Errorf("the second answer is %q, %v", second.Message.Text(), err)
				}
			}
			s.WaitStatus(t, policy, "completed")
			if policy == "interrupt" {
				messages := s.Messages(t, below)
				if text := messages[len(messages)-1].Text(); strings.HasSuffix(text, "twenty") {
					t.Errorf("the sub-agent has kept %q, want what it had written", text)
				}
			}
			answers := 0
			for _, m := range s.Messages(t, policy) {
				if m.Role == "assistant" {
					answers++
				}
			}
			if want := map[string]int{"reject": 1, "enqueue": 2, "interrupt": 2, "rollback": 1}[policy]; answers != want {
				t.Errorf("%d answers are stored, want %d", answers, want)
			}
		})
	}
}

func TestARootEndsWithItsInterruptedSubAgentAndResumesIt(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: treeAgents})
	stream := s.Chat(t, "root", "boss", "go")
	below := helperOf(t, s, stream)
	if answer := s.Do(t, "POST", "/interrupt", fmt.Appendf(nil, `{"sessionId": %q}`, below)); answer.Code != 202 {
		t.Fatalf("the interrupt was answered with %d %s", answer.Code, answer.Body)
	}
	stream.ReadAll()
	s.WaitStatus(t, "root", "interrupted")
	checkSubAgent(t, "live", []harness.UIMessage{stream.Message}, "interrupted")
	checkSubAgent(t, "stored", s.Messages(t, "root"), "interrupted")
	if answer := s.Do(t, "POST", "/resume", []byte(`{"sessionId": "root"}`)); answer.Code != 200 {
		t.Fatalf("the resume was answered with %d %s", answer.Code, answer.Body)
	}
	s.WaitStatus(t, "root", "completed")
	messages := s.Messages(t, "root")
	if got := messages[len(messages)-1].Text(); !strings.Contains(got, "It says: ") {
		t.Errorf("the answer is %q, want what the sub-agent says", got)
	}
	checkSubAgent(t, "resumed", messages, "completed")
}

// checkSubAgent verifies the status of the only sub-agent in the messages.
func checkSubAgent(t *testing.T, what string, messages []harness.UIMessage, want string) {
	t.Helper()
	for _, m := range messages {
		for _, p := range m.Parts {
			var data struct{ Status string }
			if p.Type != "data-subagent" {
				continue
			}
			if err := json.Unmarshal(p.Data, &data); err != nil || data.Status != want {
				t.Errorf("%s: the sub-agent is shown as %s, want %s", what, p.Data, want)
			}
			return
		}
	}
	t.Errorf("%s: no sub-agent is shown", what)
}
