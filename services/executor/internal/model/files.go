package model

import (
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// OmitUnsupportedFiles gives a conversation in which a note stands in the place of each file that check refuses,
// but for those of the user's last message: that fails with a request that cannot be sent, and
// what was said before must not make every later request of the session fail with it. The
// messages stay as they are.
func OmitUnsupportedFiles(messages []agent.Message, check func(agent.File) error) []agent.Message {
	last := -1
	for i, m := range messages {
		if m.Role == agent.RoleUser && !m.Hidden {
			last = i
		}
	}
	out := slices.Clone(messages)
	for i := range out[:max(last, 0)] {
		out[i].Parts = replaceFiles(out[i].Parts, check)
	}
	return out
}

// replaceFiles gives parts with notes, and the same where none is needed.
func replaceFiles(parts []agent.Part, check func(agent.File) error) []agent.Part {
	cloned := false
	for i, p := range parts {
		f, ok := p.(agent.File)
		if !ok || check(f) == nil {
			continue
		}
		if !cloned {
			parts, cloned = slices.Clone(parts), true
		}
		parts[i] = agent.Text{Text: fmt.Sprintf("[Here was the file %q of type %q, which cannot be shown.]", f.Filename, f.MediaType)}
	}
	return parts
}
