package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// tellerHolds is the word at which a teller pauses, after more than half of the story.
const tellerHolds = 3 * storyWords / 4

// teller is a model that tells part of the story and continues on request. A test can thus act in the middle of
// the story on any machine.
type teller struct {
	provider *harness.Provider

	mu    sync.Mutex
	gates map[string]*gate
}

// gate is closed until the story for a user's text may continue.
type gate struct {
	once sync.Once
	open chan struct{}
}

// newTeller starts the model. It ends with the test.
func newTeller(t *testing.T) *teller {
	t.Helper()
	m := &teller{gates: map[string]*gate{}}
	m.provider = harness.StartProvider(t, m.say)
	return m
}

// agents adds the agent "teller" to the agents file of these tests. It tells a story if the text begins with
// "tell me a story" or is "note and tell", and otherwise repeats the user's text.
func (m *teller) agents() string {
	file := strings.Replace(agents(), "models:\n", fmt.Sprintf("models:\n  openai: {baseURL: %q}\n", m.provider.URL), 1)
	return file + "  - {name: teller, description: Tells a story., model: openai/teller, tools: [note]}\n"
}

// release lets all stories for the text continue, present and future.
func (m *teller) release(text string) {
	g := m.gate(text)
	g.once.Do(func() { close(g.open) })
}

func (m *teller) gate(text string) *gate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gates[text] == nil {
		m.gates[text] = &gate{open: make(chan struct{})}
	}
	return m.gates[text]
}

func (m *teller) say(s *harness.Speech) {
	text := s.LastUser()
	noting := text == "note and tell"
	switch {
	case noting && results(s) == 0:
		s.Text("Let me see. ")
		s.Call("call-note", "note", `{"text":"it"}`)
	case noting, strings.HasPrefix(text, "tell me a story"):
		for i, word := range strings.SplitAfter(story(), " ") {
			if i == tellerHolds && !s.Await(m.gate(text).open) {
				return
			}
			s.Text(word)
		}
	default:
		s.Text("You said: " + strings.Join(s.Users(), ", "))
	}
	s.End()
}
