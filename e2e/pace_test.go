package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// The run under test: text, two steps with a tool, text. The model waits for its readers after each word, so
// words are never merged or sent before a reader is ready.
const (
	cutWords  = 30
	paceLimit = 2 * time.Minute // for the readers to receive one word
	// minFrames and maxFrames bound its number of frames.
	minFrames = 40
	maxFrames = 64
	// minStored is the least number of frames when it is read from the database.
	minStored = 20
)

// pacer is a model that waits for its readers after each word.
type pacer struct {
	provider *harness.Provider
	follows  func(frames, back int) bool // whether the readers have received that many frames

	mu       sync.Mutex
	changed  chan struct{} // closed at every change
	received string        // text received by the watching reader
	frames   int           // frames received by the watching reader
	back     int           // readers that reconnected after a cut
	late     bool          // the readers fell behind: the model waits no more
}

// newPacer starts the model. follows may be nil: then the model waits for the watching reader only.
func newPacer(t *testing.T, follows func(frames, back int) bool) *pacer {
	t.Helper()
	p := startPacer(t, func(p *pacer, s *harness.Speech) {
		switch results(s) {
		case 0:
			p.say(s, "First I note it down. ")
			s.Call("call-note", "note", `{"text":"one\n\"two\" ✂"}`)
		case 1:
			p.say(s, "Then I calculate. ")
			s.Call("call-calculate", "calculate", `{"expression":"6 * 7"}`)
		default:
			for i := range cutWords {
				p.say(s, fmt.Sprintf("wört%02d ", i))
			}
		}
	})
	if follows != nil {
		p.follows = follows
	}
	return p
}

// startPacer starts a model with the given answer. It waits for the watching reader only.
func startPacer(t *testing.T, answer func(*pacer, *harness.Speech)) *pacer {
	t.Helper()
	p := &pacer{follows: func(int, int) bool { return true }, changed: make(chan struct{})}
	p.provider = harness.StartProvider(t, func(s *harness.Speech) {
		answer(p, s)
		s.End()
	})
	return p
}

// results returns the number of tool results in the model's request.
func results(s *harness.Speech) int {
	return strings.Count(fmt.Sprint(s.Body["messages"]), "role:tool")
}

// agents returns an agents file with the agent "long" on this model.
func (p *pacer) agents() string {
	return fmt.Sprintf(`
models:
  openai: {baseURL: %q}
agents:
  - {name: long, description: Takes its time., model: openai/paced, tools: [note, calculate]}
`, p.provider.URL)
}

func (p *pacer) say(s *harness.Speech, words string) {
	s.Text(words)
	limit := time.After(paceLimit)
	for {
		p.mu.Lock()
		done := p.late || strings.HasSuffix(p.received, words) && p.follows(p.frames, p.back)
		changed := p.changed
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-limit:
			p.change(func() { p.late = true })
		}
	}
}

func (p *pacer) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// readerReturned reports that a cut reader has caught up again.
func (p *pacer) readerReturned() { p.change(func() { p.back++ }) }

// watch reads the session until the test ends, beside all other readers.
func (p *pacer) watch(t *testing.T, s *harness.System, session string) {
	t.Helper()
	stream := s.Native(t, session, 0)
	var watching sync.WaitGroup
	watching.Go(func() {
		for stream.Next() == nil {
			p.change(func() { p.received, p.frames = stream.Text(), len(stream.Chunks) })
		}
	})
	t.Cleanup(func() {
		stream.Close()
		watching.Wait()
	})
}
