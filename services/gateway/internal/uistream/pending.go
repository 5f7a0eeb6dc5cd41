package uistream

import eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"

// PendingCall is a call that a client or a human answers, and no step has taken the answer yet. It is an
// approval if Approval.ID is set, else a call of a client tool.
type PendingCall struct {
	CallID   string
	ToolName string
	Input    string // JSON text, as in ToolStart
	Step     int32  // of the model's call; 0 if unknown
	Message  string // the message that shows a call of a session below the root; else empty
	Approval
	// Answer is the result of a client tool, or for both kinds the error of an abandoned or late
	// call. nil while there is none. The decision on an approval is in Approved.
	Answer *Answer
}

// Answer is the end of a call: its result as JSON text, or its error.
type Answer struct {
	Result, Error string
	Success       bool
}

// ShowPending adds pending calls and their answers to the messages. Stored messages lack them until
// a step takes the answer.
//
// The calls of sessions below the root form a step of their own: apps continue by themselves when all calls of
// the last step are answered.
func ShowPending(messages []UIMessage, calls []PendingCall) {
	below := false
	for _, a := range calls {
		for i := range messages {
			m := &messages[i]
			at := m.callIndex(a.CallID)
			if at < 0 && a.Message != "" && a.Message == m.ID {
				if !below {
					m.Parts = append(m.Parts, UIPart{Type: "step-start"})
				}
				below = true
				at = len(m.Parts)
				part := callPart(a.CallID, tool{name: a.ToolName})
				part.State, part.Input = "input-available", jsonValue(a.Input, "{}")
				m.Parts = append(m.Parts, part)
			}
			switch {
			case at < 0 || m.Parts[at].State != "input-available" && m.Parts[at].State != "approval-requested":
			case a.Answer != nil:
				m.Parts[at].setAnswer(*a.Answer)
			case a.ID != "":
				m.Parts[at].setApproval(a.Approval)
			}
		}
	}
}

// Pending sends what the client lacks of a suspended run's open calls: the call, its approval
// request, and the answer if there is one. Call it after the run's last chunk, before Finish.
func (t *Translator) Pending(calls []PendingCall) []Part {
	if len(calls) > 0 && (t.reason == "" || t.reason == other) { // a root that awaits its sub-agents waits for their calls
		t.reason = toolCalls
	}
	var parts []Part
	for _, a := range calls {
		parts = append(parts, t.pendingCall(a)...)
	}
	return parts
}

// EndPending ends a call of a session below the root that Pending has sent.
func (t *Translator) EndPending(e *eventv1.ToolEnd) []Part {
	if c, known := t.calls[e.GetToolCallId()]; !known || c.ended {
		return nil
	}
	return t.endCall(t.lastShown, e)
}

func (t *Translator) pendingCall(a PendingCall) []Part {
	c, known := t.calls[a.CallID]
	if known && c.ended {
		return nil
	}
	var parts []Part
	switch {
	case known:
	case a.Message != "" && !t.below:
		parts, t.below = t.startStep(t.lastShown, t.stepNumber), true
	case t.stepNumber > 0 && a.Step > t.stepNumber:
		parts = t.startStep(t.lastShown, a.Step)
	}
	if a.Answer != nil {
		parts = append(parts, t.sendInputSilently(t.lastShown, a.CallID, tool{name: a.ToolName}, a.Input)...)
		return append(parts, t.output(t.calls[a.CallID], *a.Answer))
	}
	parts = append(parts, t.sendInput(t.lastShown, a.CallID, tool{name: a.ToolName}, a.Input)...)
	parts = append(parts, t.sendApprovalRequest(a.CallID, a.ID)...)
	if a.Approved != nil && !t.calls[a.CallID].responded {
		parts = append(parts, t.sendDecision(a.CallID, a.ID, *a.Approved, a.Reason)...)
	}
	return parts
}
