package uistream

// Asked is a call that somebody outside of the runtime answers, and whose answer no step
// has taken: a client tool, or, when the approval has an id, a call that waits for a yes.
type Asked struct {
	CallID   string
	ToolName string
	Input    string // a JSON text, as in ToolStart
	Step     int32  // in which the model has made the call; 0 where nobody knows
	Approval
	// Answer is what a client tool gave, or why there is no answer to any call: it was given
	// up, or it came too late. nil while nobody has answered. The answer to an approval stands
	// in Approved.
	Answer *Answer
}

// Answer is the end of a call: its result, a JSON text, or why it has none.
type Answer struct {
	Result, Error string
	Success       bool
}

// ShowPending shows on the calls of the messages that somebody was asked and how it was answered,
// which stored messages do not say before a step has taken the answer.
func ShowPending(messages []UIMessage, asked []Asked) {
	for _, a := range asked {
		for i := range messages {
			if at := messages[i].callIndex(a.CallID); at >= 0 {
				messages[i].Parts[at].showPending(a)
			}
		}
	}
}

func (p *UIPart) showPending(a Asked) {
	if p.State != "input-available" && p.State != "approval-requested" {
		return
	}
	switch {
	case a.Answer != nil:
		p.setAnswer(*a.Answer)
	case a.ID != "":
		p.setApproval(a.Approval)
	}
}

// Pending tells of the calls that a suspended run leaves open what the client was not told
// of them yet: the call, that it waits for a yes, and the answer where there is one. Call
// it after the run's last chunk, before Finish.
func (t *Translator) Pending(asked []Asked) []Part {
	if t.reason == "" && len(asked) > 0 {
		t.reason = "tool-calls"
	}
	var parts []Part
	for _, a := range asked {
		parts = append(parts, t.pendingCall(a)...)
	}
	return parts
}

func (t *Translator) pendingCall(a Asked) []Part {
	c, known := t.calls[a.CallID]
	if c.ended {
		return nil
	}
	var parts []Part
	if !known && t.stepNumber > 0 && a.Step > t.stepNumber {
		parts = t.startStep(t.lastShown, a.Step)
	}
	if a.Answer != nil {
		parts = append(parts, t.sendInputSilently(t.lastShown, a.CallID, tool{name: a.ToolName}, a.Input)...)
		t.markEnded(a.CallID)
		return append(parts, t.output(a.CallID, *a.Answer))
	}
	parts = append(parts, t.sendInput(t.lastShown, a.CallID, tool{name: a.ToolName}, a.Input)...)
	parts = append(parts, t.sendApprovalRequest(a.CallID, a.ID)...)
	if a.Approved != nil && !t.calls[a.CallID].responded {
		parts = append(parts, t.sendDecision(a.CallID, a.ID, *a.Approved, a.Reason)...)
	}
	return parts
}
