package uistream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"strings"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// tool identifies a tool to clients. Calls of dynamic tools share one part type and carry the name.
// Other tools have a part type each.
type tool struct {
	name    string
	dynamic bool
}

// call is the client's state of a tool call.
type call struct {
	id        string
	sequence  int64 // of its first part
	stepCount int   // Translator.stepCount at its first part
	tool      tool  // as in its first part: clients find the call by it
	available bool  // its whole input is sent
	ended     bool
	approval  string // id of the requested approval
	responded bool   // the decision is sent
	denied    bool   // the approval was rejected, so the call ends with tool-output-denied

	// silentInput is the input of a call sent only in deltas, so that no client runs it; else nil.
	silentInput json.RawMessage
	streamed    *strings.Builder // the input's deltas; nil once the input is whole
}

// input returns the whole input. A chunk omits too large arguments; then the deltas are the input.
func (c *call) input(arguments string) string {
	if arguments == "" && c.streamed != nil {
		return c.streamed.String()
	}
	return arguments
}

// isOfEarlierMessage reports whether the chunk belongs to a call of an earlier message. Such a call
// was abandoned when the user wrote a new message. Its end precedes the run's first step, also in an attempt that repeats
// what comes before the step. The start-step of a void step at the client is no step then.
func (t *Translator) isOfEarlierMessage(c *eventv1.Chunk) bool {
	id := callID(c)
	if id == "" || t.step.open && !t.step.void {
		return false
	}
	if _, shown := t.subAgents[id]; shown && c.GetSubagentEnd() != nil {
		return false
	}
	_, known := t.calls[id]
	return !known
}

// callID returns the id of the call in a start, decision or end, also of its sub-agent; "" for other chunks.
func callID(c *eventv1.Chunk) string {
	return cmp.Or(c.GetToolStart().GetToolCallId(), c.GetToolEnd().GetToolCallId(),
		c.GetToolApprovalRequest().GetToolCallId(), c.GetToolApprovalResponse().GetToolCallId(),
		c.GetSubagentEnd().GetToolCallId())
}

// SetAnswered keeps clients from repeating answered client tools: their input is sent as text,
// followed by their output. The translator calls answered when an input is whole. answered reports
// false for open and new calls. nil is for streams that no client has read before.
func (t *Translator) SetAnswered(answered func(callID string) bool) { t.answered = answered }

func (t *Translator) startCall(sequence int64, id string, of tool) []Part {
	if _, known := t.calls[id]; known {
		return nil
	}
	t.calls[id] = &call{id: id, sequence: sequence, stepCount: t.stepCount, tool: of, streamed: &strings.Builder{}}
	return append(t.closeBlock(), toolInputStart(id, of))
}

func (t *Translator) growInput(e *eventv1.ToolArgStreamDelta) []Part {
	c, known := t.calls[e.GetToolCallId()]
	if !known || c.available || e.GetDelta() == "" {
		return nil
	}
	if c.streamed != nil {
		c.streamed.WriteString(e.GetDelta())
	}
	return []Part{toolInputDelta(e.GetToolCallId(), e.GetDelta())}
}

// sendInput sends the whole input. Clients run their own tools when they receive it.
func (t *Translator) sendInput(sequence int64, id string, of tool, arguments string) []Part {
	parts := t.startCall(sequence, id, of)
	c := t.calls[id]
	if c.available { // another executor repeats the call
		return parts
	}
	arguments = c.input(arguments)
	c.available = true
	c.streamed = nil
	return append(parts, toolInputAvailable(id, c.tool, arguments))
}

// sendInputSilently sends the whole input as deltas, so that no client runs the tool.
func (t *Translator) sendInputSilently(sequence int64, id string, of tool, arguments string) []Part {
	parts := t.startCall(sequence, id, of)
	c := t.calls[id]
	if c.available {
		return parts
	}
	streamed := c.input("")
	c.silentInput = jsonValue(c.input(arguments), "{}")
	c.available = true
	c.streamed = nil
	if sameJSON([]byte(streamed), c.silentInput) {
		return parts
	}
	if streamed != "" { // replace the deltas so far
		parts = append(parts, toolInputStart(id, c.tool))
	}
	return append(parts, toolInputDelta(id, string(c.silentInput)))
}

// sameJSON reports whether two JSON texts are equal except for white space.
func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// endCall ends a call, possibly of an earlier step. Clients search the whole message for it.
func (t *Translator) endCall(sequence int64, e *eventv1.ToolEnd) []Part {
	id, answer := e.GetToolCallId(), Answer{Result: e.GetResult(), Error: e.GetError(), Success: e.GetSuccess()}
	c := t.calls[id]
	if c == nil || !c.available {
		return t.endUnstartedCall(sequence, id, e.GetToolName(), answer)
	}
	if c.denied && t.major.approves() {
		c.ended = true
		return []Part{toolDenied(id)}
	}
	return []Part{t.output(c, answer)}
}

// endUnstartedCall ends a call that never started: the tool does not exist or rejects the input. No
// client may run it.
func (t *Translator) endUnstartedCall(sequence int64, id, name string, a Answer) []Part {
	parts := t.startCall(sequence, id, tool{name: name})
	c := t.calls[id]
	if a.Success || !t.major.inputErrors() || c.stepCount != t.stepCount {
		parts = append(parts, t.sendInputSilently(sequence, id, c.tool, "")...)
		return append(parts, t.output(c, a))
	}
	input := jsonValue(c.input(""), "{}")
	c.available, c.ended = true, true
	c.streamed = nil
	return append(parts, toolInputError(id, c.tool, input, a.Error))
}

// output ends the call, and returns its last part. When a call sent in deltas fails, version 7 would
// keep the input's text beside the input. tool-input-error drops the text, but only for a call of
// the last step.
func (t *Translator) output(c *call, a Answer) Part {
	c.ended = true
	if !a.Success && c.silentInput != nil && c.stepCount == t.stepCount && t.major.resets() {
		return toolInputError(c.id, c.tool, c.silentInput, a.Error)
	}
	return toolOutput(c.id, c.tool.dynamic, a)
}

// sendApprovalRequest requests an approval once, from clients with approvals. Other clients see a call in progress.
func (t *Translator) sendApprovalRequest(id, approval string) []Part {
	c := t.calls[id]
	if approval == "" || c.approval == approval {
		return nil
	}
	c.approval = approval
	c.responded = false
	if !t.major.approves() {
		return nil
	}
	return []Part{approvalRequest(id, approval)}
}

// sendDecision sends the decision about a call, after the request if the client lacks it: clients
// fail on a decision without a request.
func (t *Translator) sendDecision(id, approval string, approved bool, reason string) []Part {
	var parts []Part
	if t.major.responds() {
		parts = t.sendApprovalRequest(id, approval)
	}
	c := t.calls[id]
	c.denied = !approved
	c.responded = true
	if c.approval == "" || !t.major.responds() {
		return parts
	}
	return append(parts, approvalResponse(c.approval, approved, reason))
}

// forgetCalls forgets calls whose first part is void, and their sub-agents.
func (t *Translator) forgetCalls(after int64) {
	maps.DeleteFunc(t.calls, func(_ string, c *call) bool { return c.sequence > after })
	maps.DeleteFunc(t.subAgents, func(_ string, shown int64) bool { return shown > after })
}
