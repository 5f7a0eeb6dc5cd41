package worker

import (
	"cmp"
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// The chunks of a run, without the fields set by view.stamp.

func runStarted(turn int32, messageID string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{Turn: turn, MessageId: messageID}}}
}

func runCompleted(o loop.Outcome, usage *eventv1.Usage) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{
		Output: clean(string(o.Output)), FinishReason: string(o.FinishReason), Usage: usage, CompletionReason: o.CompletionReason,
	}}}
}

func runError(f loop.Failure) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_Error{Error: &eventv1.Error{Error: clean(f.Error), Code: f.Code}}}
}

func stepStarted() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}}
}

func stepCommitted(checkpointID string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{CheckpointId: checkpointID}}}
}

func textReply(delta string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: clean(delta)}}}
}

func thinking(delta string, complete bool) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: clean(delta), IsComplete: complete}}}
}

func argumentsStart(id, name string, dynamic bool) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{
		ToolCallId: id, ToolName: clean(name), Dynamic: dynamic,
	}}}
}

func argumentsDelta(id, delta string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: id, Delta: clean(delta)}}}
}

func argumentsEnd(id string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamEnd{ToolArgStreamEnd: &eventv1.ToolArgStreamEnd{ToolCallId: id}}}
}

func toolStart(call agent.ToolCall, awaitsClient bool) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{
		ToolCallId: call.ID, ToolName: clean(call.Name), Arguments: clean(string(call.Arguments)), AwaitsClient: awaitsClient, Dynamic: call.Dynamic,
	}}}
}

func toolEnd(r agent.ToolResult) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{
		ToolCallId: r.CallID, ToolName: clean(r.Name), Result: clean(string(r.Result)), Success: r.Success, Error: clean(cmp.Or(r.PublicError, r.Error)),
	}}}
}

func subagentStart(c loop.OpenCall) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_SubagentStart{SubagentStart: &eventv1.SubagentStart{
		SubSessionId: c.SessionID, SubAgentType: c.SubAgent, ToolCallId: c.ID,
	}}}
}

func subagentEnd(call *statev1.Call, r agent.ToolResult) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_SubagentEnd{SubagentEnd: &eventv1.SubagentEnd{
		SubSessionId: cmp.Or(call.GetAnswer().GetChild().GetSessionId(), call.GetSubSessionId()), SubAgentType: subAgentType(call), ToolCallId: r.CallID,
		Result: clean(string(r.Result)), Success: r.Success,
	}}}
}

// replyChunk returns the chunk of an event of the reply; nil for events without one.
func replyChunk(event model.Event, reply *loop.Reply) *eventv1.Chunk {
	switch e := event.(type) {
	case model.TextDelta:
		return textReply(e.Text)
	case model.ReasoningDelta:
		return thinking(e.Text, false)
	case model.ReasoningEnd:
		return thinking("", true)
	case model.CallStart:
		return argumentsStart(e.ID, e.Name, reply.Dynamic(e.Index))
	case model.CallDelta:
		return argumentsDelta(reply.CallID(e.Index), e.Text)
	case model.CallEnd:
		return argumentsEnd(reply.CallID(e.Index))
	}
	return nil
}

// planChunks returns the chunks of a step up to its plan.
func planChunks(plan agent.Message, fates callFates) []*eventv1.Chunk {
	chunks := []*eventv1.Chunk{stepStarted()}
	for _, n := range fates.Notices() {
		chunks = append(chunks, notice(n))
	}
	for _, p := range plan.Parts {
		switch part := p.(type) {
		case agent.Text:
			chunks = append(chunks, textReply(part.Text))
		case agent.Reasoning:
			chunks = append(chunks, thinking(part.Text, true))
		case agent.ToolCall:
			chunks = append(chunks, argumentsStart(part.ID, part.Name, part.Dynamic), argumentsDelta(part.ID, string(part.Arguments)), argumentsEnd(part.ID))
		}
	}
	for _, call := range plan.Calls() {
		if !fates.IsRefused(call.ID) {
			chunks = append(chunks, toolStart(call, fates.AwaitsClient(call.ID)))
		}
	}
	return chunks
}

// terminal returns the end of the run for its readers.
func terminal(runID string, o loop.Outcome, usage *eventv1.Usage) *streamv2.Terminal {
	if f := o.Failure; f != nil {
		return &streamv2.Terminal{RunId: runID, Outcome: &streamv2.Terminal_Fail{Fail: &streamv2.Fail{Error: clean(f.Error), Code: f.Code}}}
	}
	status := streamv2.EndStatus_END_STATUS_COMPLETED
	switch {
	case o.Status == loop.StatusInterrupted:
		status = streamv2.EndStatus_END_STATUS_INTERRUPTED
	case isSuspended(o):
		status = streamv2.EndStatus_END_STATUS_PAUSED
	}
	return &streamv2.Terminal{RunId: runID, Outcome: &streamv2.Terminal_End{End: &streamv2.End{
		Status: status, Output: clean(string(o.Output)), Usage: usage, CompletionReason: o.CompletionReason,
	}}}
}

// lastChunk returns the last chunk of the run.
func lastChunk(o loop.Outcome, usage *eventv1.Usage) *eventv1.Chunk {
	switch {
	case o.Failure != nil:
		return runError(*o.Failure)
	case o.Status == loop.StatusInterrupted:
		return &eventv1.Chunk{Event: &eventv1.Chunk_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{Reason: clean(o.Reason)}}}
	case isSuspended(o):
		return &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: suspensionReasons[o.Status]}}}
	}
	return runCompleted(o, usage)
}

// suspensionReasons has the reason of a suspension, for readers.
var suspensionReasons = map[loop.Status]string{
	loop.StatusSuspendedClientTool: "client_tool",
	loop.StatusSuspendedChildren:   "awaiting_children",
	loop.StatusSuspendedPartial:    "step_partial",
}

// isSuspended reports whether the run waits for a client, a human or a sub-agent.
func isSuspended(o loop.Outcome) bool { return suspensionReasons[o.Status] != "" }

func runResumed(previous string, turn int32, messageID string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{
		PreviousRunId: previous, Turn: turn, MessageId: messageID,
	}}}
}

func output(o loop.Outcome) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_Output{Output: &eventv1.Output{Output: clean(string(o.Output))}}}
}

func custom(e tool.Event) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_Custom{Custom: &eventv1.Custom{
		EventName: clean(e.Name), Data: clean(string(e.Data)), Id: e.ID, Transient: e.Transient,
	}}}
}

// noticeEvent is the name of the custom event about the refusals of a model.
const noticeEvent = "notice"

func notice(n loop.Notice) *eventv1.Chunk {
	data, _ := json.Marshal(map[string]string{"kind": "refusal", "text": n.Text}) // texts always marshal
	return custom(tool.Event{Name: noticeEvent, ID: n.ID, Data: data})
}

func statePatch(patch []byte) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StatePatch{StatePatch: &eventv1.StatePatch{Patches: clean(string(patch))}}}
}

func approvalRequest(c loop.OpenCall) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: &eventv1.ToolApprovalRequest{
		ToolCallId: c.ID, ToolName: clean(c.Name), ApprovalId: c.ApprovalID, Input: clean(string(c.Arguments)),
	}}}
}

// approvalResponse returns the chunk of a human's decision about a call.
func approvalResponse(callID string, d loop.Decision) *eventv1.Chunk {
	decision := "reject"
	if d.Approved {
		decision = "approve"
	}
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: &eventv1.ToolApprovalResponse{
		ToolCallId: callID, Decision: decision, ApprovalId: d.ApprovalID, Reason: clean(d.Reason),
	}}}
}
