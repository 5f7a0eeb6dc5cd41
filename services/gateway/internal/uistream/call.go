package uistream

import eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"

func (t *Translator) callStart(sequence int64, id, name string) []Part {
	if _, known := t.calls[id]; known {
		return nil
	}
	t.calls[id] = call{at: sequence}
	return append(t.closeBlock(), toolInputStart(id, name))
}

func (t *Translator) callDelta(e *eventv1.ToolArgStreamDelta) []Part {
	c, known := t.calls[e.GetToolCallId()]
	if !known || c.available || e.GetDelta() == "" {
		return nil
	}
	return []Part{toolInputDelta(e.GetToolCallId(), e.GetDelta())}
}

func (t *Translator) callAvailable(sequence int64, id, name, arguments string) []Part {
	parts := t.callStart(sequence, id, name)
	c := t.calls[id]
	if c.available { // run again by another executor: the client knows the call
		return parts
	}
	c.available = true
	t.calls[id] = c
	return append(parts, toolInputAvailable(id, name, arguments))
}

// callEnd ends a call, which may be of an earlier step: the client finds it anywhere
// in the message.
func (t *Translator) callEnd(sequence int64, e *eventv1.ToolEnd) []Part {
	id := e.GetToolCallId()
	// A client fails on the result of a call that it has never seen.
	parts := t.callAvailable(sequence, id, e.GetToolName(), "")
	if t.calls[id].denied && t.major.approves() {
		return append(parts, toolDenied(id))
	}
	return append(parts, toolOutput(id, e.GetSuccess(), e.GetResult(), e.GetError()))
}

// approvalAsked tells a client that knows approvals that it may answer the call.
// Others see a call that goes on.
func (t *Translator) approvalAsked(sequence int64, e *eventv1.ToolApprovalRequest) []Part {
	id := e.GetToolCallId()
	parts := t.callAvailable(sequence, id, e.GetToolName(), e.GetInput())
	c := t.calls[id]
	c.approval = e.GetApprovalId()
	t.calls[id] = c
	if t.major.approves() {
		parts = append(parts, approvalRequest(id, c.approval))
	}
	return parts
}

func (t *Translator) approvalAnswered(e *eventv1.ToolApprovalResponse) []Part {
	c, known := t.calls[e.GetToolCallId()]
	if !known {
		return nil
	}
	c.denied = e.GetDecision() == "reject"
	t.calls[e.GetToolCallId()] = c
	if c.approval == "" || !t.major.responds() { // a client fails on the answer to what it was not asked
		return nil
	}
	return []Part{approvalResponse(c.approval, !c.denied)}
}
