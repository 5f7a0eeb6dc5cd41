package crashmatrix_test

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast/e2e/harness"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// effect is the state of a call with an effect on the ledger, according to the conversation.
type effect struct {
	tool, label string
	hasResult   bool // the call has a result
	known       bool // the result confirms the effect
	uncertain   bool // the result says that the outcome is unknown
}

// keyed reports whether the tool runs again after a crash, with the same key.
func (e effect) keyed() bool { return e.tool == "record_safe" || e.looksUp() }

// looksUp reports whether the tool is read-only. The ledger counts its executions.
func (e effect) looksUp() bool { return e.tool == "look_up" }

// recorded returns the calls with effects, in the order of the conversation.
func recorded(messages []*eventv1.Message) []*effect {
	byID := map[string]*effect{}
	var all []*effect
	for _, m := range messages {
		for _, part := range m.GetParts() {
			if c := part.GetToolCall(); c != nil {
				var input struct{ Label string }
				if json.Unmarshal([]byte(c.GetArguments()), &input) != nil || input.Label == "" {
					continue // no such tool
				}
				byID[c.GetToolCallId()] = &effect{tool: c.GetToolName(), label: input.Label}
				all = append(all, byID[c.GetToolCallId()])
			}
			if r := part.GetToolResult(); r != nil && byID[r.GetToolCallId()] != nil {
				e := byID[r.GetToolCallId()]
				e.hasResult, e.known, e.uncertain = true, r.GetSuccess(), unknown(r.GetError())
			}
		}
	}
	return all
}

// problem compares the call with the ledger's entry and describes a contradiction, or returns "". stops means
// that a stop may interrupt calls.
func (e effect) problem(there harness.Entry, stops bool) string {
	switch {
	case !e.hasResult:
		return "the conversation has no result of it"
	case len(there.Keys) > 1:
		return fmt.Sprintf("it came under several keys: %v", there.Keys)
	case !e.keyed() && there.Posts > 1:
		return fmt.Sprintf("it was done %d times, and must never be done again", there.Posts)
	case e.known && there.Posts == 0:
		return "the conversation says that it was done, and it was not"
	case !e.known && !e.uncertain && !e.looksUp() && there.Posts > 0:
		return "it was done, and the conversation says that it was not"
	case e.keyed() && e.uncertain && !stops:
		return "it may be done again, and its outcome was left open"
	}
	return ""
}
