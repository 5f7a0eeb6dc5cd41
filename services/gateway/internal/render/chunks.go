package render

import (
	"strings"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// arguments are the chunks of a call's arguments.
func arguments(c *eventv1.ToolCallPart) []*eventv1.Chunk {
	return []*eventv1.Chunk{
		{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{
			ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), Dynamic: c.GetDynamic(),
		}}},
		{Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: c.GetToolCallId(), Delta: c.GetArguments()}}},
		{Event: &eventv1.Chunk_ToolArgStreamEnd{ToolArgStreamEnd: &eventv1.ToolArgStreamEnd{ToolCallId: c.GetToolCallId()}}},
	}
}

func toolStart(c *eventv1.ToolCallPart, awaitsClient bool) *eventv1.Chunk {
	if c == nil {
		return nil
	}
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{
		ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), Arguments: c.GetArguments(), AwaitsClient: awaitsClient, Dynamic: c.GetDynamic(),
	}}}
}

func toolEnd(r *eventv1.ToolResultPart) *eventv1.Chunk {
	if r == nil {
		return nil
	}
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{
		ToolCallId: r.GetToolCallId(), ToolName: r.GetToolName(), Result: r.GetResult(), Success: r.GetSuccess(), Error: r.GetError(),
	}}}
}

// decided is how a human has decided about the call; nil where nobody has.
func decided(r *eventv1.ToolResultPart) *eventv1.Chunk {
	verdict := r.GetApproval()
	if verdict == nil {
		return nil
	}
	decision := "reject"
	if verdict.GetApproved() {
		decision = "approve"
	}
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: &eventv1.ToolApprovalResponse{
		ToolCallId: r.GetToolCallId(), Decision: decision, ApprovalId: verdict.GetApprovalId(), Reason: verdict.GetReason(),
	}}}
}

// The errors of calls that could not be made, as the executor of an older release wrote them.
const (
	errNotOneFinish = "not executed: exactly one call that finishes the run is wanted, and nothing else"
	errNoTool       = "there is no tool "
	errArguments    = "the arguments "
	cutShort        = "interrupted" // the metadata key of a message that was cut short
)

// refused reports whether the call was never made, so that it did not start either.
func refused(reply *eventv1.Message, r *eventv1.ToolResultPart) bool {
	if r == nil || r.GetSuccess() || !r.GetSynthetic() {
		return false
	}
	return reply.GetMetadata()[cutShort] != "" || r.GetError() == errNotOneFinish ||
		strings.HasPrefix(r.GetError(), errNoTool) || strings.HasPrefix(r.GetError(), errArguments)
}
