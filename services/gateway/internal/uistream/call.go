package uistream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// tool is a tool as clients know it: by a type of its own, or, when it is dynamic, by its
// name alone.
type tool struct {
	name    string
	dynamic bool
}

// call is what the client knows of a tool call.
type call struct {
	at        int64 // the sequence that showed it first
	step      int   // how many steps the client had then
	tool      tool  // as it was told first: the client looks for the call under that
	available bool  // its input is whole
	ended     bool
	approval  string // the id of the approval that was asked for
	responded bool   // it was told how that was answered
	denied    bool   // it was refused; the end of the call is to be told so

	// quiet is the input of a call that was told by deltas alone, so that no client runs
	// it; nil of others.
	quiet    json.RawMessage
	streamed *strings.Builder // what the log told of the input; nil once that is whole
}

// input is the whole input. What was too large to be told again is what the log told of
// it as it came.
func (c *call) input(arguments string) string {
	if arguments == "" && c.streamed != nil {
		return c.streamed.String()
	}
	return arguments
}

// foreign reports whether the chunk is about a call of another message: one that a run
// before has left open, and that was given up when the user wrote again. Its end is told
// outside of steps, before the first.
func (t *Translator) foreign(c *eventv1.Chunk) bool {
	id := callOf(c)
	if id == "" || t.step.open {
		return false
	}
	_, known := t.calls[id]
	return !known
}

// callOf names the call that the chunk begins, decides on or ends; "" for other chunks.
func callOf(c *eventv1.Chunk) string {
	return cmp.Or(c.GetToolStart().GetToolCallId(), c.GetToolEnd().GetToolCallId(),
		c.GetToolApprovalRequest().GetToolCallId(), c.GetToolApprovalResponse().GetToolCallId())
}

// Answered makes the translator tell client tools that were answered so that no client
// runs them again: by their input as text, and their output. answered is asked when the
// input is whole; it has to say no of calls that are open, or that are made only now. nil
// is for streams that nobody has seen.
func (t *Translator) Answered(answered func(callID string) bool) { t.answered = answered }

func (t *Translator) callStart(sequence int64, id string, of tool) []Part {
	if _, known := t.calls[id]; known {
		return nil
	}
	t.calls[id] = call{at: sequence, step: t.steps, tool: of, streamed: &strings.Builder{}}
	return append(t.closeBlock(), toolInputStart(id, of))
}

func (t *Translator) callDelta(e *eventv1.ToolArgStreamDelta) []Part {
	c, known := t.calls[e.GetToolCallId()]
	if !known || c.available || e.GetDelta() == "" {
		return nil
	}
	if c.streamed != nil {
		c.streamed.WriteString(e.GetDelta())
	}
	return []Part{toolInputDelta(e.GetToolCallId(), e.GetDelta())}
}

// callAvailable tells the whole input, from which on clients run the tools that are
// theirs.
func (t *Translator) callAvailable(sequence int64, id string, of tool, arguments string) []Part {
	parts := t.callStart(sequence, id, of)
	c := t.calls[id]
	if c.available { // run again by another executor: the client knows the call
		return parts
	}
	arguments = c.input(arguments)
	c.available, c.streamed = true, nil
	t.calls[id] = c
	return append(parts, toolInputAvailable(id, c.tool, arguments))
}

// callQuiet tells the whole input so that no client runs the tool.
func (t *Translator) callQuiet(sequence int64, id string, of tool, arguments string) []Part {
	parts := t.callStart(sequence, id, of)
	c := t.calls[id]
	if c.available {
		return parts
	}
	streamed := c.input("")
	c.available, c.streamed, c.quiet = true, nil, value(c.input(arguments), "{}")
	t.calls[id] = c
	if sameJSON([]byte(streamed), c.quiet) {
		return parts
	}
	if streamed != "" { // it begins anew
		parts = append(parts, toolInputStart(id, c.tool))
	}
	return append(parts, toolInputDelta(id, string(c.quiet)))
}

// sameJSON reports whether two texts are the same JSON but for white space.
func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

func (t *Translator) toolStarted(sequence int64, e *eventv1.ToolStart) []Part {
	of := tool{e.GetToolName(), e.GetDynamic()}
	if e.GetAwaitsClient() && t.answered != nil && t.answered(e.GetToolCallId()) {
		return t.callQuiet(sequence, e.GetToolCallId(), of, e.GetArguments())
	}
	return t.callAvailable(sequence, e.GetToolCallId(), of, e.GetArguments())
}

// callEnd ends a call, which may be of an earlier step: the client finds it anywhere
// in the message.
func (t *Translator) callEnd(sequence int64, e *eventv1.ToolEnd) []Part {
	id, answer := e.GetToolCallId(), Answer{Result: e.GetResult(), Error: e.GetError(), Success: e.GetSuccess()}
	if !t.calls[id].available {
		return t.neverBegun(sequence, id, e.GetToolName(), answer)
	}
	t.ended(id)
	if t.calls[id].denied && t.major.approves() {
		return []Part{toolDenied(id)}
	}
	return []Part{t.output(id, answer)}
}

// neverBegun ends a call whose input was never told to be whole: there is no such tool, or
// the input is not what it takes. The client is not to run it.
func (t *Translator) neverBegun(sequence int64, id, name string, a Answer) []Part {
	parts := t.callStart(sequence, id, tool{name: name})
	c := t.calls[id]
	if a.Success || !t.major.inputErrors() || c.step != t.steps {
		parts = append(parts, t.callQuiet(sequence, id, c.tool, "")...)
		t.ended(id)
		return append(parts, t.output(id, a))
	}
	input := value(c.input(""), "{}")
	c.available, c.streamed, c.ended = true, nil, true
	t.calls[id] = c
	return append(parts, toolInputError(id, c.tool, input, a.Error))
}

func (t *Translator) ended(id string) {
	c := t.calls[id]
	c.ended = true
	t.calls[id] = c
}

// output gives the part that ends the call. A client of version 7 keeps the text of an
// input that it knows by deltas with a call that fails; the error of an input, which it
// looks for in its last step, makes it drop that.
func (t *Translator) output(id string, a Answer) Part {
	c := t.calls[id]
	if !a.Success && c.quiet != nil && c.step == t.steps && t.major.resets() {
		return toolInputError(id, c.tool, c.quiet, a.Error)
	}
	return toolOutput(id, c.tool.dynamic, a)
}

// approvalAsked tells a client that knows approvals that it may answer the call, once.
// Others see a call that goes on.
func (t *Translator) approvalAsked(sequence int64, e *eventv1.ToolApprovalRequest) []Part {
	parts := t.callAvailable(sequence, e.GetToolCallId(), tool{name: e.GetToolName()}, e.GetInput())
	return append(parts, t.ask(e.GetToolCallId(), e.GetApprovalId())...)
}

func (t *Translator) ask(id, approval string) []Part {
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

func (t *Translator) approvalAnswered(e *eventv1.ToolApprovalResponse) []Part {
	c, known := t.calls[e.GetToolCallId()]
	if !known {
		return nil
	}
	return t.respond(e.GetToolCallId(), orText(e.GetApprovalId(), c.approval), e.GetDecision() != "reject", e.GetReason())
}

// respond tells how an approval was answered. A client fails on the answer to what it was
// not asked, so that comes first.
func (t *Translator) respond(id, approval string, approved bool, reason string) []Part {
	var parts []Part
	if t.major.responds() {
		parts = t.ask(id, approval)
	}
	c := t.calls[id]
	c.denied, c.responded = !approved, true
	t.calls[id] = c
	if c.approval == "" || !t.major.responds() {
		return parts
	}
	return append(parts, approvalResponse(c.approval, approved, reason))
}

// callsThat gives the calls for which the condition holds, in the order in which they were
// shown.
func (t *Translator) callsThat(holds func(call) bool) []string {
	var ids []string
	for id, c := range t.calls {
		if holds(c) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(t.calls[a].at, t.calls[b].at), cmp.Compare(a, b)) })
	return ids
}

func (t *Translator) forgetCalls(after int64) {
	for id, c := range t.calls {
		if c.at > after {
			delete(t.calls, id)
		}
	}
}
