package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// The run that is cut: text, two steps with a tool, text. Its words come at the pace
// of its readers, one by one: no machine is so busy that they are merged, or said
// before a reader is there.
const (
	cutWords  = 30
	paceLimit = 2 * time.Minute // for the readers to follow one word
	// minFrames and maxFrames is how many frames it has.
	minFrames = 40
	maxFrames = 64
	// minStored is how many frames it has at least when it is read from the database.
	minStored = 20
)

// pacer is a model that goes on when its readers have what it said.
type pacer struct {
	provider *harness.Provider
	follows  func(frames, back int) bool // whether the readers have followed that many frames

	mu      sync.Mutex
	changed chan struct{} // closed at every change
	heard   string        // by the watching reader
	frames  int           // that it has
	back    int           // how many readers have come back after a cut
	late    bool          // the readers do not follow: the model waits for none any more
}

// newPacer starts the model, which answers with the run that is cut. Follows may be nil:
// then it only waits for the watching reader.
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

// startPacer starts a model that answers as it is told, and only waits for the watching
// reader.
func startPacer(t *testing.T, answer func(*pacer, *harness.Speech)) *pacer {
	t.Helper()
	p := &pacer{follows: func(int, int) bool { return true }, changed: make(chan struct{})}
	p.provider = harness.StartProvider(t, func(s *harness.Speech) {
		answer(p, s)
		s.End()
	})
	return p
}

// results is how many results of tools the model is asked with.
func results(s *harness.Speech) int {
	return strings.Count(fmt.Sprint(s.Body["messages"]), "role:tool")
}

// agents is an agents file with the agent "long", which the model speaks for.
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
		done := p.late || strings.HasSuffix(p.heard, words) && p.follows(p.frames, p.back)
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

// cameBack says that a reader that was cut has caught up again.
func (p *pacer) cameBack() { p.change(func() { p.back++ }) }

// watch listens to the session beside all others, until the test ends.
func (p *pacer) watch(t *testing.T, s *harness.System, session string) {
	t.Helper()
	stream := s.Native(t, session, 0)
	var watching sync.WaitGroup
	watching.Go(func() {
		for stream.Next() == nil {
			p.change(func() { p.heard, p.frames = stream.Text(), len(stream.Chunks) })
		}
	})
	t.Cleanup(func() {
		stream.Close()
		watching.Wait()
	})
}
