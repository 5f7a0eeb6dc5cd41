package model

import (
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// OmitUnsupportedFiles returns a copy of messages with a note in place of each file refused by check. Otherwise
// an old file would fail every later request of the session. The last visible user message keeps its files and
// fails with an invalid request.
func OmitUnsupportedFiles(messages []agent.Message, check func(agent.File) error) []agent.Message {
	last := LastQuestion(messages)
	out := slices.Clone(messages)
	for i := range out[:max(last, 0)] {
		out[i].Parts = replaceFiles(out[i].Parts, check)
	}
	return out
}

// replaceFiles returns parts unchanged if check accepts every file.
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
		parts[i] = FileNote(f)
	}
	return parts
}

// LastQuestion returns the index of the last visible user message; -1 for none.
func LastQuestion(messages []agent.Message) int {
	last := -1
	for i, m := range messages {
		if m.Role == agent.RoleUser && !m.Hidden {
			last = i
		}
	}
	return last
}

// FileNote stands in place of a file that a model does not get.
func FileNote(f agent.File) agent.Text {
	return agent.Text{Text: fmt.Sprintf("[Here was the file %q of type %q, which cannot be shown.]", f.Filename, f.MediaType)}
}
