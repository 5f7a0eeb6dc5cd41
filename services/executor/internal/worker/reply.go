package worker

import (
	"hash/maphash"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// shownReply is the shown part of the reply in the step in flight.
type shownReply struct {
	begun    bool // readers have seen step_started
	form     bool // the reply is JSON; readers do not see its text
	content  bool // readers have seen a part of the reply, or a notice
	text     maphash.Hash
	thinking maphash.Hash
	calls    int
}

// add adds a chunk shown to readers.
func (s *shownReply) add(chunk *eventv1.Chunk) {
	s.content = s.content || chunk.GetStepStarted() == nil
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_StepStarted:
		s.begun = true
	case *eventv1.Chunk_TextDelta:
		_, _ = s.text.WriteString(e.TextDelta.GetDelta()) // never fails
	case *eventv1.Chunk_Thinking:
		_, _ = s.thinking.WriteString(e.Thinking.GetContent())
	case *eventv1.Chunk_ToolArgStreamStart:
		s.calls++
	}
}

// matches reports whether readers have seen the reply as the message has it. The message has less if the reply
// was cut within the arguments of a call.
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
