package uistream

import (
	"cmp"
	"maps"
	"slices"
)

// FailStopped fails the message of a suspended run whose session was stopped. The sentence is the error
// of the message and of its open calls. An approved call stays open: the next run, if any, executes
// it.
func (t *Translator) FailStopped(sentence string) []Part {
	parts := t.Start()
	inOrder := func(a, b *call) int { return cmp.Or(cmp.Compare(a.sequence, b.sequence), cmp.Compare(a.id, b.id)) }
	for _, c := range slices.SortedFunc(maps.Values(t.calls), inOrder) {
		switch {
		case c.ended || c.responded && !c.denied:
		case c.denied && t.major.approves():
			c.ended = true
			parts = append(parts, toolDenied(c.id))
		default:
			parts = append(parts, t.output(c, Answer{Error: cmp.Or(sentence, failedText)}))
		}
	}
	return append(slices.Concat(parts, t.end(), t.failMetadata()), Error(sentence))
}

// EndUnanswered ends calls without a possible answer. why returns the
// reason, by the ids of an assistant message and of its open call; "" if the call may still end. A
// rejected call is shown as denied.
func EndUnanswered(messages []UIMessage, why func(message, call string) string) {
	for _, m := range messages {
		for i := range m.Parts {
			p := &m.Parts[i]
			if !p.isOpenCall() {
				continue
			}
			switch sentence := why(m.ID, p.ToolCallID); {
			case sentence == "":
			case p.Approval != nil && p.Approval.Approved != nil && !*p.Approval.Approved:
				p.State, p.deniedError = "output-denied", sentence
			default:
				p.setAnswer(Answer{Error: sentence})
			}
		}
	}
}

// Omissions lists unwanted content of messages.
type Omissions struct {
	Reasoning bool
	Results   bool // of calls: null replaces them
}

// Apply removes the omissions from the messages. Calls keep their states and errors.
func (w Omissions) Apply(messages []UIMessage) {
	for i := range messages {
		m := &messages[i]
		parts := make([]UIPart, 0, len(m.Parts))
		for _, p := range m.Parts {
			if w.Reasoning && p.Type == reasoning {
				continue
			}
			if w.Results && p.Output != nil {
				p.Output = []byte("null")
			}
			parts = append(parts, p)
		}
		m.Parts = parts
	}
}
