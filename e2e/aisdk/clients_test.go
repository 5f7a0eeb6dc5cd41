package aisdk_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// scenarios returns all scenarios. Texts differ by client, because all clients share the model and the notes.
func scenarios(c client) []scenario {
	all := slices.Concat(
		texts(c), clientTools(c), answers(c), approvals(c), paths(c), repetitions(c), resumes(c), stalls(c), stops(c), stopped(), sockets(c),
	)
	return slices.DeleteFunc(all, func(s scenario) bool { return s.from > c.Major || s.Socket && c.Major != 7 })
}

// recording is a recorded stream.
type recording struct {
	Name   string            `json:"name"`
	Major  int               `json:"major"`
	Chunks []json.RawMessage `json:"chunks"`
}

// fewest is the least number of recorded chunks per version; there are many more.
const fewest = 200

func TestTheClientsOfTheChatProtocol(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var recorded []recording

	t.Run("each", func(t *testing.T) {
		for _, c := range clients {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				all := scenarios(c)
				results := w.play(t, c, all)
				for _, s := range all {
					p := results[s.Name]
					t.Run(s.Name, func(t *testing.T) { judge(t, s, p) })
					mu.Lock()
					recorded = append(recorded, p.recordings()...)
					mu.Unlock()
				}
			})
		}
	})

	t.Run("the model is told each call with exactly one result", func(t *testing.T) {
		for _, wrong := range w.brain.blames() {
			t.Error(wrong)
		}
	})
	t.Run("every recorded chunk fits the schemas of the packages", func(t *testing.T) { checkSchemas(t, recorded, fewest) })
}

func judge(t *testing.T, s scenario, p *played) {
	if p == nil {
		t.Fatal("it was not played")
	}
	p.name = s.Name
	defer func() {
		if t.Failed() {
			t.Logf("posts %+v\nanswers %+v\nfinishes %+v\n%s", p.Posts, p.Answers, p.Finishes, p.dump())
		}
	}()
	if p.Failure != "" {
		t.Fatal(p.Failure)
	}
	if len(p.recordings()) == 0 {
		t.Error("no stream was recorded")
	}
	s.check(t, p)
}

// recordings returns the streams with chunks.
func (p *played) recordings() []recording {
	if p == nil {
		return nil
	}
	var recordings []recording
	for _, s := range p.Streams {
		if len(s.Chunks) > 0 {
			major := p.client.Major
			if s.Major != 0 {
				major = s.Major
			}
			recordings = append(recordings, recording{fmt.Sprintf("%s, %s", p.session(), s.Request), major, s.Chunks})
		}
	}
	return recordings
}

// dump prints the streams without deltas.
func (p *played) dump() string {
	var b strings.Builder
	for _, s := range p.Streams {
		fmt.Fprintf(&b, "%s (%d)\n", s.Request, s.Major)
		for _, c := range s.Chunks {
			if !strings.Contains(string(c), "-delta") {
				fmt.Fprintf(&b, "  %s\n", c)
			}
		}
	}
	return b.String()
}

// checkSchemas expects each version to have validated at least fewest chunks and refused none.
func checkSchemas(t *testing.T, recorded []recording, fewest int) {
	t.Helper()
	node(t, "check", map[string]any{"streams": recorded}, func(line []byte) {
		var told struct {
			Result struct {
				Seen    map[string]int
				Refused []string
			}
		}
		if err := json.Unmarshal(line, &told); err != nil {
			t.Fatalf("check printed %q: %v", line, err)
		}
		for _, sdk := range []string{"ai", "ai6", "ai600", "ai5", "ai500"} {
			if got := told.Result.Seen[sdk]; got < fewest {
				t.Errorf("%s has seen %d chunks, want %d at least", sdk, got, fewest)
			}
		}
		for _, wrong := range told.Result.Refused {
			t.Error(wrong)
		}
		t.Logf("chunks seen: %v", told.Result.Seen)
	})
}
