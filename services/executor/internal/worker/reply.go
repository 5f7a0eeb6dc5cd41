package worker

import (
	"hash/maphash"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// shownReply is what readers have seen of the reply of the step in flight. The zero value
// is nothing.
type shownReply struct {
	begun    bool // its step_started was shown
	form     bool // it was asked for as JSON, and its text is not shown
	text     maphash.Hash
	thinking maphash.Hash
	calls    int
}

// add takes a chunk that is shown.
func (s *shownReply) add(chunk *eventv1.Chunk) {
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_StepStarted:
		s.begun = true
	case *eventv1.Chunk_TextDelta:
		_, _ = s.text.WriteString(e.TextDelta.GetDelta()) // it never fails
	case *eventv1.Chunk_Thinking:
		_, _ = s.thinking.WriteString(e.Thinking.GetContent())
	case *eventv1.Chunk_ToolArgStreamStart:
		s.calls++
	}
}

// matches reports whether the message has what was shown. A message has less where the reply was
// cut in the middle of a call's arguments.
func (s *shownReply) matches(message agent.Message) bool {
	var text, thinking maphash.Hash
	text.SetSeed(s.text.Seed())
	thinking.SetSeed(s.thinking.Seed())
	for _, p := range message.Parts {
		switch part := p.(type) {
		case agent.Text:
			_, _ = text.WriteString(clean(part.Text))
		case agent.Reasoning:
			_, _ = thinking.WriteString(clean(part.Text))
		}
	}
	return (s.form || text.Sum64() == s.text.Sum64()) && thinking.Sum64() == s.thinking.Sum64() && s.calls == len(message.Calls())
}
