package gatewaytest

import (
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// StepStarted is a chunk.
func StepStarted() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}}
}

// StepCommitted is a chunk.
func StepCommitted() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{}}}
}

// Started is the first chunk of a run.
func Started() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{}}}
}

// Completed is the last chunk of a run.
func Completed() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{FinishReason: "stop"}}}
}

// Text is a chunk of text.
func Text(delta string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: delta}}}
}

// Call is the start of a tool call.
func Call(id, arguments string) *eventv1.Chunk {
	return &eventv1.Chunk{
		Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: id, ToolName: "add", Arguments: arguments}},
	}
}

// Result is the successful end of a tool call.
func Result(id, result string) *eventv1.Chunk {
	return &eventv1.Chunk{
		Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: id, ToolName: "add", Success: true, Result: result}},
	}
}

// AssistantMessage is a stored assistant message with the text and the calls.
func AssistantMessage(step int32, text string, calls ...string) *eventv1.Message {
	m := &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT, Step: step}
	if text != "" {
		m.Parts = append(m.Parts, &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}})
	}
	for _, id := range calls {
		m.Parts = append(
			m.Parts,
			&eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id, ToolName: "add", Arguments: `{"a":1}`}}},
		)
	}
	return m
}

// ToolMessage is a stored tool message with a result.
func ToolMessage(step int32, id, result string) *eventv1.Message {
	return &eventv1.Message{Role: eventv1.Role_ROLE_TOOL, Step: step, Parts: []*eventv1.Part{{
		Part: &eventv1.Part_ToolResult{ToolResult: &eventv1.ToolResultPart{ToolCallId: id, ToolName: "add", Success: true, Result: result}}}}}
}

// Resumed is the first chunk of a continuation.
func Resumed() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{}}}
}

// Suspended is the last chunk of a suspended run.
func Suspended() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "client_tool"}}}
}

// Interrupted is the last chunk of an interrupted run.
func Interrupted() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{Reason: "enough"}}}
}

// ClientCall is the start of a call for the client.
func ClientCall(id, arguments string) *eventv1.Chunk {
	c := Call(id, arguments)
	c.GetToolStart().AwaitsClient = true
	return c
}

// ApprovalRequest requests the approval of a call, with the call's id after "a-" as its own.
func ApprovalRequest(id, arguments string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: &eventv1.ToolApprovalRequest{
		ToolCallId: id, ToolName: "add", ApprovalId: "a-" + id, Input: arguments,
	}}}
}

// ApprovalResponse is the answer to an approval request.
func ApprovalResponse(id, decision string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: &eventv1.ToolApprovalResponse{
		ToolCallId: id, Decision: decision, ApprovalId: "a-" + id,
	}}}
}
