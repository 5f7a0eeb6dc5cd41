package uistream

import "slices"

// Stopped ends the message of a run that had suspended and whose session was ended then,
// so that nobody is asked any more: the calls that it has left open end with the sentence,
// but for those that were decided, and the message fails with it. A call that was allowed
// is run by the next run, when there is one.
func (t *Translator) Stopped(sentence string) []Part {
	parts := t.Start()
	for _, id := range t.callsThat(func(c call) bool { return !c.ended && (!c.responded || c.denied) }) {
		t.ended(id)
		if t.calls[id].denied && t.major.approves() {
			parts = append(parts, toolDenied(id))
		} else {
			parts = append(parts, t.output(id, Answer{Error: orText(sentence, failedText)}))
		}
	}
	return append(slices.Concat(parts, t.end(), t.concluded()), Error(sentence))
}

// Close ends those calls of the messages that nobody will answer any more. why says, by the
// ids of an assistant message and of a call that it has left open, what became of the call;
// "" where it may still end. A call that was refused has been refused.
func Close(messages []UIMessage, why func(message, call string) string) {
	for _, m := range messages {
		for i := range m.Parts {
			p := &m.Parts[i]
			if !p.open() {
				continue
			}
			if sentence := why(m.ID, p.ToolCallID); sentence != "" {
				p.close(sentence)
			}
		}
	}
}

func (p *UIPart) close(sentence string) {
	if p.Approval != nil && p.Approval.Approved != nil && !*p.Approval.Approved {
		p.State, p.refusal = "output-denied", sentence
		return
	}
	p.end(Answer{Error: sentence})
}

// Without says what a reader of messages does not want.
type Without struct {
	Reasoning bool
	Results   bool // of calls: those that have one have null in its place
}

// Leave leaves out of the messages what is not wanted. How a call stands is kept, and why one
// has failed.
func (w Without) Leave(messages []UIMessage) {
	for i := range messages {
		m := &messages[i]
		kept := make([]UIPart, 0, len(m.Parts))
		for _, p := range m.Parts {
			if w.Reasoning && p.Type == reasoning {
				continue
			}
			if w.Results && p.Output != nil {
				p.Output = []byte("null")
			}
			kept = append(kept, p)
		}
		m.Parts = kept
	}
}
