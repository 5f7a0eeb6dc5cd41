package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// tellerHolds is the word of the story at which a teller holds: more than half of the
// story is told before it.
const tellerHolds = 3 * storyWords / 4

// teller is a model that tells the story so far and goes on when the test says so. What
// a test does in the middle of the story, it does there on any machine.
type teller struct {
	provider *harness.Provider

	mu    sync.Mutex
	gates map[string]*gate
}

// gate is closed until the story goes on that a user's text has asked for.
type gate struct {
	once sync.Once
	open chan struct{}
}

// newTeller starts the model, which ends with the test.
func newTeller(t *testing.T) *teller {
	t.Helper()
	m := &teller{gates: map[string]*gate{}}
	m.provider = harness.StartProvider(t, m.say)
	return m
}

// agents is the agents file of these tests with one more agent, the "teller": it tells a
// story to "tell me a story", whatever stands behind that, and to "note and tell", and
// repeats what else the user has said.
func (m *teller) agents() string {
	file := strings.Replace(agents(), "models:\n", fmt.Sprintf("models:\n  openai: {baseURL: %q}\n", m.provider.URL), 1)
	return file + "  - {name: teller, description: Tells a story., model: openai/teller, tools: [note]}\n"
}

// goOn has the stories go on, now and from now on, that were asked for with the text.
func (m *teller) goOn(text string) {
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
