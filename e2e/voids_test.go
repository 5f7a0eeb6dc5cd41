package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestTheTextOfAFailedAttemptIsTakenBackWhenTheRunIsStoppedBeforeTheNextAttempt(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	p := harness.StartProvider(t, func(s *harness.Speech) {
		s.Text("These words are void. ") // the reply breaks off here and is retried a second later
		s.Await(seen)
	})
	s := harness.Start(t, harness.Options{Agents: fmt.Sprintf(`
models:
  openai: {baseURL: %q}
agents:
  - {name: breaking, description: Breaks off., model: openai/breaking}
`, p.URL)})
	const session = "void"
	asking := s.Chat(t, session, "breaking", "go")
	reader := s.Native(t, session, 0)
	reader.Until("the void words", func(n *harness.NativeStream) bool { return strings.Contains(n.Text(), "void") })
	close(seen)
	if answer := s.Do(t, "POST", "/chat/"+session+"/interrupt?wait=30000", nil); answer.Code != 200 {
		t.Fatalf("interrupt: %d %s", answer.Code, answer.Body)
	}
	reader.ReadAll()
	if reader.Text() != "" || reader.Rewinds == 0 {
		t.Errorf("the reader holds %q after %d rewinds, want that the words are taken back\n%s", reader.Text(), reader.Rewinds, reader.Dump())
	}
	checkContent(t, "who had asked", s.Follow(t, asking, session), "")
	checkTranscript(t, s.Client, session, "user:", textContent("go"))
}

func TestAFailedRunsPartialAnswerAndItsErrorAreThereAfterAReload(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: `
models:
  scripted:
    script: |
      models:
        failing:
          rules:
            - when: {lastUser: '^silently'}
              reply: [{error: {code: provider_denied, message: 'secret detail'}}]
            - when: {lastUser: '^again'}
              reply: 'You said: {{.LastUser}}'
            - reply: [{text: 'It goes well until ', chunk: whole}, {error: {code: provider_denied, message: 'secret detail'}}]
agents:
  - {name: failing, description: Fails., model: scripted/failing}
`})
	for name, c := range map[string]struct{ asked, partial string }{
		"in the middle of its answer": {"loudly", "It goes well until "},
		"before it said a word":       {"silently", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asking := s.Chat(t, c.asked, "failing", c.asked)
			_ = asking.Rest() // ends with an error, as the test expects
			s.WaitStatus(t, c.asked, "failed")
			messages := s.Messages(t, c.asked)
			if len(messages) != 2 || messages[1].Role != "assistant" || messages[1].Text() != c.partial {
				t.Fatalf("the conversation is\n%swant the question and an answer with the text %q", harness.Transcript(messages), c.partial)
			}
			last := messages[1].Parts[len(messages[1].Parts)-1]
			if last.Type != "data-error" || !strings.Contains(string(last.Data), "provider_denied") || strings.Contains(string(last.Data), "secret") {
				t.Errorf("the answer ends with %+v, want the error of the run for users", last)
			}
			checkContent(t, "the next answer", s.Chat(t, c.asked, "failing", "again").ReadAll(), textContent("You said: again"))
		})
	}
}
