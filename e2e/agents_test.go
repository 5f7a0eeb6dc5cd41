package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// The answers of the agents. The words of the story are all different, so a lost, repeated or swapped word
// shows.
const (
	storyWords = 120
	// wordDelay makes the story last about two seconds.
	wordDelay = "18ms"
)

func story() string {
	words := make([]string, storyWords)
	for i := range words {
		words[i] = fmt.Sprintf("word%03d", i)
	}
	return strings.Join(words, " ")
}

// agents returns the agents file of these tests: a talker, and a worker whose tools leave effects.
func agents() string {
	return strings.NewReplacer("STORY", story(), "DELAY", wordDelay).Replace(`
models:
  scripted:
    script: |
      models:
        talker:
          rules:
            - when: {lastUser: '^tell me a story$'}
              reply: [{text: 'STORY', chunk: 1 word, delay: DELAY}]
            - when: {lastUser: '^recite$'}
              reply: 'You said: {{join .Users ", "}}'
            - when: {lastUser: '^fail$'}
              reply: [{text: 'This goes ', chunk: whole}, {error: {code: provider_denied, message: 'secret detail of the provider'}}]
            - reply: 'You said: {{.LastUser}}'
        worker:
          rules:
            - when: {toolResult: note, lastUser: '^note (it|slowly)$'}
              reply: 'It is noted.'
            - when: {toolResult: note, lastUser: '^note both$'}
              reply: 'Both are noted.'
            - when: {step: 2, lastUser: '^three notes$'}
              reply: 'Three notes are made.'
            - when: {step: 2, lastUser: '^note and tell$'}
              reply: [{text: 'STORY', chunk: 1 word, delay: DELAY}]
            - when: {lastUser: '^note (it|and tell)$'}
              reply:
                - text: 'Let me see. '
                - call: {name: note, arguments: {text: it}}
            - when: {toolResult: note, lastUser: '^note chaos'}
              reply: 'It is noted.'
            - when: {lastUser: '^note (?P<word>chaos\d+)$'}
              reply: [{call: {name: note, arguments: {text: '{{.Group.word}}', beforeMs: 200, afterMs: 200}}}]
            - when: {lastUser: '^note slowly$'}
              reply: [{call: {name: note, arguments: {text: slowly, afterMs: 1500}}}]
            - when: {lastUser: '^note both$'}
              reply: [{calls: [{name: note, arguments: {text: left, beforeMs: 100}}, {name: note, arguments: {text: right}}]}]
            - when: {lastUser: '^three notes$'}
              reply:
                - calls:
                    - {name: note, arguments: {text: quick}}
                    - {name: note, arguments: {text: slow-never, afterMs: 20000}}
                    - {name: note_once, arguments: {text: slow-safe, afterMs: 8000}}
            - reply: 'I only take notes.'
agents:
  - {name: talker, description: Talks., model: scripted/talker}
  - {name: worker, description: Takes notes., model: scripted/worker, tools: [note, note_once, wait]}
`)
}

// textContent is the content of an assistant message with only this text.
func textContent(text string) string { return fmt.Sprintf("text %q\n", text) }

// noteContent is the content of a call of a note tool in an assistant message.
func noteContent(tool, input, output string) string {
	return fmt.Sprintf("%s%s output-available %s\n", tool, input, output)
}

// checkContent compares a reader's message with the expected content.
func checkContent(t *testing.T, where string, got harness.UIMessage, want string) {
	t.Helper()
	if got.Content() != want {
		t.Errorf("%s: got\n%swant\n%s", where, got.Content(), want)
	}
}
