package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// OmitUnsupportedFiles returns a copy of messages with a note in place of each file refused by check. Otherwise
// an old file would fail every later request of the session. A refused file in the last visible user message, or behind
// it, is an error: an *Error whose Refusal names all such files.
func OmitUnsupportedFiles(messages []agent.Message, check func(agent.File) error) ([]agent.Message, error) {
	last := max(LastQuestion(messages), 0)
	if err := checkFiles(messages[last:], check); err != nil {
		return nil, err
	}
	out := slices.Clone(messages)
	for i := range out[:last] {
		out[i].Parts = replaceFiles(out[i].Parts, check)
	}
	return out, nil
}

// checkFiles returns the error of the first file refused by check. Its Refusal names all of them.
func checkFiles(messages []agent.Message, check func(agent.File) error) error {
	var refused *Error
	for _, m := range messages {
		for i, p := range m.Parts {
			f, ok := p.(agent.File)
			if !ok {
				continue
			}
			e, ok := errors.AsType[*Error](check(f))
			if !ok {
				continue
			}
			if refused == nil {
				refused = e
				refused.Refusal = &Refusal{Part: RefusedFile, Reason: FileUnsupported}
			}
			refused.Refusal.Files = append(refused.Refusal.Files, FileRef{MessageID: m.ID, Part: i})
		}
	}
	if refused == nil {
		return nil
	}
	return refused
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
			parts = slices.Clone(parts)
			cloned = true
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

// FileNote replaces a file that a model does not get.
func FileNote(f agent.File) agent.Text {
	return agent.Text{Text: fmt.Sprintf("[Here was the file %q of type %q, which cannot be shown.]", f.Filename, f.MediaType)}
}
