package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func messageIDs(messages []Message) []string {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	return ids
}

// unique gives Conflict (MESSAGE_EXISTS) for the first message whose id is
// taken, by the session or by an earlier message.
func unique(messages []Message, taken []string) error {
	seen := make(map[string]bool, len(messages))
	for _, m := range messages {
		if seen[m.ID] || slices.Contains(taken, m.ID) {
			return fault.New(fault.Conflict, "MESSAGE_EXISTS", "the session has a message %q already; give the new one another id", m.ID)
		}
		seen[m.ID] = true
	}
	return nil
}

// place returns the messages with their ordinals, the first of which is from.
func place(messages []Message, from int64) []Message {
	placed := slices.Clone(messages)
	for i := range placed {
		placed[i].Ordinal = from + int64(i)
	}
	return placed
}
