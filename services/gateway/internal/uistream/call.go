package uistream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// tool is a tool as clients know it. The part of a dynamic tool has a common type and the name.
// Any other tool has a type of its own.
type tool struct {
	name    string
	dynamic bool
}

// call is what the client knows of a tool call.
type call struct {
	sequence  int64 // the sequence of its first part
	stepCount int   // how many steps the client had then
	tool      tool  // as its first part named it: clients look the call up by that
	available bool  // its input is whole
	ended     bool
	approval  string // the id of the requested approval
	responded bool   // the client knows the decision
	denied    bool   // it was refused, so it ends with tool-output-denied

	// quiet is the input of a call that was sent in deltas only, so that no client runs
	// it; nil for other calls.
	silentInput json.RawMessage
	streamed    *strings.Builder // the deltas of the input; nil once it is whole
}

// input is the whole input. A chunk leaves out arguments that are too large for it: then the
// input is what the deltas had.
func (c *call) input(arguments string) string {
	if arguments == "" && c.streamed != nil {
		return c.streamed.String()
	}
	return arguments
}

// isOfEarlierMessage reports whether the chunk is about a call of an earlier message. Such a call was
// abandoned when the user wrote again, and its end comes before the first step of the run.
func (t *Translator) isOfEarlierMessage(c *eventv1.Chunk) bool {
	id := callID(c)
	if id == "" || t.step.open {
		return false
	}
	_, known := t.calls[id]
	return !known
}

// callID gives the id of the call that the chunk starts, decides on or ends; "" for other chunks.
func callID(c *eventv1.Chunk) string {
	return cmp.Or(c.GetToolStart().GetToolCallId(), c.GetToolEnd().GetToolCallId(),
		c.GetToolApprovalRequest().GetToolCallId(), c.GetToolApprovalResponse().GetToolCallId())
}

// Answered keeps clients from running client tools again that were answered: the translator
// sends their input as a text, followed by their output. It calls answered when an input is
// whole. answered reports false for calls that are open or new. nil is for streams that
// no client has read before.
func (t *Translator) Answered(answered func(callID string) bool) { t.answered = answered }

func (t *Translator) startCall(sequence int64, id string, of tool) []Part {
	if _, known := t.calls[id]; known {
		return nil
	}
	t.calls[id] = call{sequence: sequence, stepCount: t.stepCount, tool: of, streamed: &strings.Builder{}}
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
	if c.available { // another executor runs it again
		return parts
	}
	arguments = c.input(arguments)
	c.available, c.streamed = true, nil
	t.calls[id] = c
	return append(parts, toolInputAvailable(id, c.tool, arguments))
}

// sendInputSilently sends the whole input in a form that no client runs a tool for.
func (t *Translator) sendInputSilently(sequence int64, id string, of tool, arguments string) []Part {
	parts := t.startCall(sequence, id, of)
	c := t.calls[id]
	if c.available {
		return parts
	}
	streamed := c.input("")
	c.available, c.streamed, c.silentInput = true, nil, jsonValue(c.input(arguments), "{}")
	t.calls[id] = c
	if sameJSON([]byte(streamed), c.silentInput) {
		return parts
	}
	if streamed != "" { // it begins anew
		parts = append(parts, toolInputStart(id, c.tool))
	}
	return append(parts, toolInputDelta(id, string(c.silentInput)))
}

// sameJSON reports whether two texts are the same JSON apart from white space.
func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

func (t *Translator) startTool(sequence int64, e *eventv1.ToolStart) []Part {
	of := tool{e.GetToolName(), e.GetDynamic()}
	if e.GetAwaitsClient() && t.answered != nil && t.answered(e.GetToolCallId()) {
		return t.sendInputSilently(sequence, e.GetToolCallId(), of, e.GetArguments())
	}
	return t.sendInput(sequence, e.GetToolCallId(), of, e.GetArguments())
}

// endCall ends a call. It may be of an earlier step: clients look for it in the whole message.
func (t *Translator) endCall(sequence int64, e *eventv1.ToolEnd) []Part {
	id, answer := e.GetToolCallId(), Answer{Result: e.GetResult(), Error: e.GetError(), Success: e.GetSuccess()}
	if !t.calls[id].available {
		return t.endUnstartedCall(sequence, id, e.GetToolName(), answer)
	}
	t.markEnded(id)
	if t.calls[id].denied && t.major.approves() {
		return []Part{toolDenied(id)}
	}
	return []Part{t.output(id, answer)}
}

// endUnstartedCall ends a call that never started, because the tool does not exist or refuses the input.
// No client may run it.
func (t *Translator) endUnstartedCall(sequence int64, id, name string, a Answer) []Part {
	parts := t.startCall(sequence, id, tool{name: name})
	c := t.calls[id]
	if a.Success || !t.major.inputErrors() || c.stepCount != t.stepCount {
		parts = append(parts, t.sendInputSilently(sequence, id, c.tool, "")...)
		t.markEnded(id)
		return append(parts, t.output(id, a))
	}
	input := jsonValue(c.input(""), "{}")
	c.available, c.streamed, c.ended = true, nil, true
	t.calls[id] = c
	return append(parts, toolInputError(id, c.tool, input, a.Error))
}

func (t *Translator) markEnded(id string) {
	c := t.calls[id]
	c.ended = true
	t.calls[id] = c
}

// output gives the part that ends the call. If a quiet call fails, version 7 would keep the text
// of its input beside the input. tool-input-error makes it drop the text, but only for a call
// of its last step.
func (t *Translator) output(id string, a Answer) Part {
	c := t.calls[id]
	if !a.Success && c.silentInput != nil && c.stepCount == t.stepCount && t.major.resets() {
		return toolInputError(id, c.tool, c.silentInput, a.Error)
	}
	return toolOutput(id, c.tool.dynamic, a)
}

// requestApproval requests an approval, once, from clients that know approvals. Other clients see
// a call that goes on.
func (t *Translator) requestApproval(sequence int64, e *eventv1.ToolApprovalRequest) []Part {
	parts := t.sendInput(sequence, e.GetToolCallId(), tool{name: e.GetToolName()}, e.GetInput())
	return append(parts, t.sendApprovalRequest(e.GetToolCallId(), e.GetApprovalId())...)
}

func (t *Translator) sendApprovalRequest(id, approval string) []Part {
	c := t.calls[id]
	if approval == "" || c.approval == approval {
		return nil
	}
	c.approval, c.responded = approval, false
	t.calls[id] = c
	if !t.major.approves() {
		return nil
	}
	return []Part{approvalRequest(id, approval)}
}

func (t *Translator) answerApproval(e *eventv1.ToolApprovalResponse) []Part {
	c, known := t.calls[e.GetToolCallId()]
	if !known {
		return nil
	}
	return t.sendDecision(e.GetToolCallId(), orText(e.GetApprovalId(), c.approval), e.GetDecision() != "reject", e.GetReason())
}

// sendDecision sends the decision about a call. The request goes first where the client does not have
// it: it would fail on a decision without one.
func (t *Translator) sendDecision(id, approval string, approved bool, reason string) []Part {
	var parts []Part
	if t.major.responds() {
		parts = t.sendApprovalRequest(id, approval)
	}
	c := t.calls[id]
	c.denied, c.responded = !approved, true
	t.calls[id] = c
	if c.approval == "" || !t.major.responds() {
		return parts
	}
	return append(parts, approvalResponse(c.approval, approved, reason))
}

// callIDs gives the ids of the calls for which the condition holds, in the order of their
// first parts.
func (t *Translator) callIDs(holds func(call) bool) []string {
	var ids []string
	for id, c := range t.calls {
		if holds(c) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(t.calls[a].sequence, t.calls[b].sequence), cmp.Compare(a, b))
	})
	return ids
}

func (t *Translator) forgetCalls(after int64) {
	for id, c := range t.calls {
		if c.sequence > after {
			delete(t.calls, id)
		}
	}
}
