package console_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// longSteps is the number of steps of the long run. A busy machine takes minutes for 10,000.
var longSteps = flag.Int("console.steps", 2000, "how many steps the long run has")

// agents returns the agents file of these tests.
func agents() string {
	return strings.ReplaceAll(`
models:
  scripted:
    script: |
      models:
        demo:
          rules:
            - when: {toolResult: calculate}
              reply: 'That makes {{field .LastResult "value"}}.'
            - when: {lastUser: '(?P<sum>\d+ \* \d+)'}
              reply:
                - reasoning: 'A sum.'
                - text: 'Let me work that out.'
                - call: {name: calculate, arguments: {expression: '{{.Group.sum}}'}}
            - when: {lastUser: '^wait$'}
              reply: [{text: 'Wait'}, {wait: 1h}]
            - when: {lastUser: '^fail', attempts: 1}
              reply: [{text: 'Now'}, {error: {code: provider_invalid_request, message: 'no'}}]
            - when: {toolFailed: note}
              reply: 'It stays unwritten.'
            - when: {toolResult: note}
              reply: 'It is written.'
            - when: {lastUser: '^write'}
              reply: [{call: {name: note, arguments: {text: it}}}]
            - when: {toolResult: ask_user}
              reply: 'You answered {{.LastResult}}.'
            - when: {lastUser: '^ask me$'}
              reply: [{call: {name: ask_user, arguments: {question: 'Where are you?'}}}]
            - when: {toolResult: subagent__helper}
              reply: 'Helped: {{.LastResult}}'
            - when: {lastUser: '^help$'}
              reply: [{call: {name: subagent__helper, arguments: {message: 'say something'}}}]
            - reply: 'You said: {{join .Users " · "}}'
        long:
          rules:
            - reply: [{call: {name: calculate, arguments: {expression: '6 * 7'}}}]
agents:
  - name: demo
    description: Does sums and repeats what you say.
    model: scripted/demo
    tools:
      - calculate
      - {use: note, approval: always}
      - {subAgent: helper, description: Helps.}
      - name: ask_user
        description: Asks the user.
        client: true
        inputSchema: {type: object, properties: {question: {type: string}}}
    maxSteps: 5
  - {name: helper, description: Helps., model: scripted/demo}
  - {name: long, description: Takes many steps., model: scripted/long, tools: [calculate], maxSteps: STEPS}
`, "STEPS", strconv.Itoa(*longSteps))
}

// start starts a run in a new session.
func start(t *testing.T, c harness.Client, session, agent, message string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"sessionId": session, "agentType": agent, "message": message, "userId": "ann", "tags": []string{"blue"}})
	if err != nil {
		t.Fatal(err)
	}
	if a := c.Do(t, http.MethodPost, "/start", body); a.Code != http.StatusOK {
		t.Fatalf("start %s: got %d %s", session, a.Code, a.Body)
	}
}

// finish starts a run in a new session and waits for the session's status.
func finish(t *testing.T, c harness.Client, session, agent, message, status string) {
	t.Helper()
	start(t, c, session, agent, message)
	c.WaitStatus(t, session, status)
}
