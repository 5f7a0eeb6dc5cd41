package aisdk_test

import (
	"fmt"
	"testing"
)

// The least number of stream events in the helper's answer to a note, and in the narrator's story.
const (
	noteEvents  = 7
	storyEvents = 100
	storyStride = 12
)

// stalls are scenarios with a silently stalled network: the page reads nothing more and the connection stays
// open. The page then resumes the stream.
func stalls(c client) []scenario {
	var all []scenario
	for events := range noteEvents {
		all = append(all, scenario{
			Name: fmt.Sprintf("a finished answer that stalled behind %d events", events), Agent: "narrator",
			Steps: []step{do("stallNext", "events", events), begin("hello there"), do("stalled"), status("completed"), do("stop"), resume()},
			check: whole("user:", said("hello there"), "assistant:", said("You said: hello there")),
		})
	}
	for events := 0; events < storyEvents; events += storyStride {
		all = append(all, scenario{
			Name: fmt.Sprintf("a live answer that stalled behind %d events", events), Agent: "narrator",
			Steps: []step{do("stallNext", "events", events), begin("tell me a story"), do("stalled"), do("stop"), resume()},
			check: whole("user:", said("tell me a story"), "assistant:", said(story())),
		})
	}
	return all
}

// whole checks that the chat holds the stored conversation exactly once.
func whole(want ...string) func(*testing.T, *played) {
	return func(t *testing.T, p *played) {
		t.Helper()
		p.heldOnly(t, want...)
		p.stored(t)
		p.posted(t, 1)
	}
}
