package uistream

import "slices"

// Stopped ends the message of a run that had suspended and whose session was ended then,
// so that nobody is asked any more: the calls that it has left open end with the sentence,
// but for those that were decided, and the message fails with it. A call that was allowed
// is run by the next run, when there is one.
func (t *Translator) Stopped(sentence string) []Part {
	parts := t.Start()
	for _, id := range t.callIDs(func(c call) bool { return !c.ended && (!c.responded || c.denied) }) {
		t.markEnded(id)
		if t.calls[id].denied && t.major.approves() {
			parts = append(parts, toolDenied(id))
		} else {
			parts = append(parts, t.output(id, Answer{Error: orText(sentence, failedText)}))
		}
	}
	return append(slices.Concat(parts, t.end(), t.failMetadata()), Error(sentence))
}

// EndUnanswered ends those calls of the messages that nobody will answer any more. why says, by the
// ids of an assistant message and of a call that it has left open, what became of the call;
// "" where it may still end. A call that was refused has been refused.
func EndUnanswered(messages []UIMessage, why func(message, call string) string) {
	for _, m := range messages {
		for i := range m.Parts {
			p := &m.Parts[i]
			if !p.isOpenCall() {
				continue
			}
			if sentence := why(m.ID, p.ToolCallID); sentence != "" {
				p.endUnanswered(sentence)
			}
		}
	}
}

func (p *UIPart) endUnanswered(sentence string) {
	if p.Approval != nil && p.Approval.Approved != nil && !*p.Approval.Approved {
		p.State, p.deniedError = "output-denied", sentence
		return
	}
	p.setAnswer(Answer{Error: sentence})
}

// Omissions says what a reader of messages does not want.
type Omissions struct {
	Reasoning bool
	Results   bool // of calls: those that have one have null in its place
}

// Apply leaves out of the messages what is not wanted. How a call stands is kept, and why one
// has failed.
func (w Omissions) Apply(messages []UIMessage) {
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
