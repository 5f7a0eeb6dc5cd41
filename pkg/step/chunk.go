package step

import (
	"cmp"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// The constructors set neither the run nor the agent, the time or the number of the step. They keep the messages that
// they are given, except parts of a stored message.

// Started returns the first chunk of a step with a model call.
func Started() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}}
}

// Committed returns the last chunk of a step.
func Committed(checkpointID string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{CheckpointId: checkpointID}}}
}

// Text returns a piece of the reply's text. Deltas are most of a stream, so each is one allocation.
func Text(delta string) *eventv1.Chunk {
	var c struct {
		chunk eventv1.Chunk
		event eventv1.Chunk_TextDelta
		text  eventv1.TextDelta
	}
	c.text.Delta = delta
	c.event.TextDelta = &c.text
	c.chunk.Event = &c.event
	return &c.chunk
}

// Thinking returns a piece of the reply's reasoning. complete ends the block.
func Thinking(delta string, complete bool) *eventv1.Chunk {
	var c struct {
		chunk    eventv1.Chunk
		event    eventv1.Chunk_Thinking
		thinking eventv1.Thinking
	}
	c.thinking.Content, c.thinking.IsComplete = delta, complete
	c.event.Thinking = &c.thinking
	c.chunk.Event = &c.event
	return &c.chunk
}

// InputStart returns the begin of a call's input. dynamic is as in ToolCallPart.
func InputStart(callID, tool string, dynamic bool) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{
		ToolCallId: callID, ToolName: tool, Dynamic: dynamic,
	}}}
}

// InputDelta returns a piece of a call's input.
func InputDelta(callID, delta string) *eventv1.Chunk {
	var c struct {
		chunk eventv1.Chunk
		event eventv1.Chunk_ToolArgStreamDelta
		input eventv1.ToolArgStreamDelta
	}
	c.input.ToolCallId, c.input.Delta = callID, delta
	c.event.ToolArgStreamDelta = &c.input
	c.chunk.Event = &c.event
	return &c.chunk
}

// InputEnd returns the end of a call's input.
func InputEnd(callID string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamEnd{ToolArgStreamEnd: &eventv1.ToolArgStreamEnd{ToolCallId: callID}}}
}

// AppendReply appends the chunks of the parts of a reply, with one delta each. Other parts have none.
func AppendReply(chunks []*eventv1.Chunk, parts ...*eventv1.Part) []*eventv1.Chunk {
	for _, part := range parts {
		switch p := part.GetPart().(type) {
		case *eventv1.Part_Text:
			chunks = append(chunks, Text(p.Text.GetText()))
		case *eventv1.Part_Reasoning:
			chunks = append(chunks, Thinking(p.Reasoning.GetText(), true))
		case *eventv1.Part_ToolCall:
			c := p.ToolCall
			chunks = append(chunks, InputStart(c.GetToolCallId(), c.GetToolName(), c.GetDynamic()),
				InputDelta(c.GetToolCallId(), c.GetArguments()), InputEnd(c.GetToolCallId()))
		}
	}
	return chunks
}

// ToolStart returns the start of a call. awaitsClient: a client has to answer it.
func ToolStart(c *eventv1.ToolCallPart, awaitsClient bool) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{
		ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), Arguments: c.GetArguments(),
		AwaitsClient: awaitsClient, Dynamic: c.GetDynamic(),
	}}}
}

// ToolEnd returns the end of a call.
func ToolEnd(r *eventv1.ToolResultPart) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{
		ToolCallId: r.GetToolCallId(), ToolName: r.GetToolName(), Result: r.GetResult(), Success: r.GetSuccess(), Error: PublicError(r),
	}}}
}

// PublicError returns why a call failed, for users.
func PublicError(r *eventv1.ToolResultPart) string { return cmp.Or(r.GetPublicError(), r.GetError()) }

// ApprovalRequest returns the question to a human about a call.
func ApprovalRequest(e *eventv1.ToolApprovalRequest) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: e}}
}

// Decision returns a human's decision about a call.
func Decision(callID string, v *eventv1.ApprovalVerdict) *eventv1.Chunk {
	decision := "reject"
	if v.GetApproved() {
		decision = "approve"
	}
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: &eventv1.ToolApprovalResponse{
		ToolCallId: callID, Decision: decision, ApprovalId: v.GetApprovalId(), Reason: v.GetReason(),
	}}}
}

// Custom returns an event of a tool or hook.
func Custom(e *eventv1.Custom) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_Custom{Custom: e}}
}

// StatePatch returns a change to the custom state, an RFC 6902 patch.
func StatePatch(patch string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StatePatch{StatePatch: &eventv1.StatePatch{Patches: patch}}}
}

// Output returns the structured output of a run, as JSON text.
func Output(output string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_Output{Output: &eventv1.Output{Output: output}}}
}

// SubagentStart returns the begin of a sub-agent.
func SubagentStart(e *eventv1.SubagentStart) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_SubagentStart{SubagentStart: e}}
}

// SubagentEnd returns the end of the sub-agent of a call. r is the call's result; nil if it is unknown.
func SubagentEnd(e *eventv1.SubagentEnd, r *eventv1.ToolResultPart) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_SubagentEnd{SubagentEnd: &eventv1.SubagentEnd{
		SubSessionId: e.GetSubSessionId(), SubAgentType: e.GetSubAgentType(), ToolCallId: e.GetToolCallId(),
		Success: e.GetSuccess(), Result: r.GetResult(),
	}}}
}
