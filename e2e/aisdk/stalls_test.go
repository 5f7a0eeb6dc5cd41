package aisdk_test

import (
	"fmt"
	"testing"
)

// What the helper's answer to a note and the narrator's story have at least, in events
// of their streams.
const (
	noteEvents  = 7
	storyEvents = 100
	storyStride = 12
)

// stalls are scenarios of a network that stalls without a word: the page reads nothing
// more, and nobody closes the connection. The page then takes up the stream.
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

// whole checks that the chat holds the conversation whole and once, as it is stored.
func whole(want ...string) func(*testing.T, *played) {
	return func(t *testing.T, p *played) {
		t.Helper()
		p.heldOnly(t, want...)
		p.stored(t)
		p.posted(t, 1)
	}
}
