package gatewaytest

import (
	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// storedOf returns the step of the chunks.
func storedOf(chunks []*eventv1.Chunk) *statev1.StoredStep {
	step := &statev1.StoredStep{Record: &eventv1.StepRecord{}}
	b := &stepBuilder{record: step.Record, calls: map[string]*eventv1.ToolCallPart{}}
	for _, c := range chunks {
		b.add(c)
	}
	if b.reply != nil {
		step.Messages = append(step.Messages, b.reply)
	}
	step.Messages = append(step.Messages, b.results...)
	return step
}

// stepBuilder builds a stored step from its chunks.
type stepBuilder struct {
	record  *eventv1.StepRecord
	reply   *eventv1.Message
	replied bool
	calls   map[string]*eventv1.ToolCallPart
	results []*eventv1.Message
}

func (b *stepBuilder) add(c *eventv1.Chunk) {
	c = proto.CloneOf(c)
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_StepStarted:
		b.reply = &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT, Step: c.GetStep()}
		b.record.StartedAt = c.GetTimestamp()
	case *eventv1.Chunk_TextDelta:
		b.text(e.TextDelta.GetDelta())
	case *eventv1.Chunk_Thinking:
		b.part(&eventv1.Part{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{Text: e.Thinking.GetContent()}}})
	case *eventv1.Chunk_ToolArgStreamStart:
		b.call(e.ToolArgStreamStart.GetToolCallId(), e.ToolArgStreamStart.GetToolName()).Dynamic = e.ToolArgStreamStart.GetDynamic()
	case *eventv1.Chunk_ToolArgStreamDelta:
		b.call(e.ToolArgStreamDelta.GetToolCallId(), "").Arguments += e.ToolArgStreamDelta.GetDelta()
	case *eventv1.Chunk_ToolStart:
		call := b.call(e.ToolStart.GetToolCallId(), e.ToolStart.GetToolName())
		call.Arguments, call.Dynamic = e.ToolStart.GetArguments(), e.ToolStart.GetDynamic()
		b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_ToolStart{ToolStart: &eventv1.ToolStartEvent{ToolCallId: e.ToolStart.GetToolCallId(), AwaitsClient: e.ToolStart.GetAwaitsClient()}}})
	case *eventv1.Chunk_ToolEnd:
		r := e.ToolEnd
		b.results = append(b.results, &eventv1.Message{Role: eventv1.Role_ROLE_TOOL, Step: c.GetStep(), Parts: []*eventv1.Part{{Part: &eventv1.Part_ToolResult{ToolResult: &eventv1.ToolResultPart{
			ToolCallId: r.GetToolCallId(), ToolName: r.GetToolName(), Result: r.GetResult(), Success: r.GetSuccess(), Error: r.GetError(),
		}}}}})
		b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_ToolEnd{ToolEnd: r.GetToolCallId()}})
	case *eventv1.Chunk_ToolApprovalRequest:
		b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_ToolApprovalRequest{ToolApprovalRequest: e.ToolApprovalRequest}})
	case *eventv1.Chunk_ToolApprovalResponse:
		b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_ToolApprovalResponse{ToolApprovalResponse: e.ToolApprovalResponse}})
	case *eventv1.Chunk_SubagentStart:
		b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_SubagentStart{SubagentStart: e.SubagentStart}})
	case *eventv1.Chunk_SubagentEnd:
		b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_SubagentEnd{SubagentEnd: e.SubagentEnd}})
	case *eventv1.Chunk_Custom:
		if !e.Custom.GetTransient() {
			b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_Custom{Custom: e.Custom}})
		}
	case *eventv1.Chunk_StatePatch:
		b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_StatePatch{StatePatch: e.StatePatch}})
	case *eventv1.Chunk_Output:
		b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_Output{Output: e.Output}})
	}
}

func (b *stepBuilder) event(e *eventv1.StepEvent) { b.record.Events = append(b.record.Events, e) }

// part adds a part of the reply, and the position of the reply in the record.
func (b *stepBuilder) part(p *eventv1.Part) {
	if !b.replied {
		b.replied = true
		b.event(&eventv1.StepEvent{Event: &eventv1.StepEvent_Reply{Reply: &eventv1.ReplyEvent{}}})
	}
	if b.reply == nil {
		b.reply = &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT}
	}
	b.reply.Parts = append(b.reply.Parts, p)
}

func (b *stepBuilder) text(delta string) {
	if n := len(b.reply.GetParts()); n > 0 && b.reply.GetParts()[n-1].GetText() != nil {
		b.reply.GetParts()[n-1].GetText().Text += delta
		return
	}
	b.part(&eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: delta}}})
}

func (b *stepBuilder) call(id, name string) *eventv1.ToolCallPart {
	if b.calls[id] == nil {
		b.calls[id] = &eventv1.ToolCallPart{ToolCallId: id, ToolName: name}
		b.part(&eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: b.calls[id]}})
	}
	return b.calls[id]
}
