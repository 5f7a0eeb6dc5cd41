package snapshot_test

import (
	"fmt"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

func started() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{}}}
}

func stepStarted() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}}
}

func stepCommitted(number int32) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{CheckpointId: fmt.Sprintf("cp-%d", number)}}}
}

func delta(text string) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: text}}}
}

func thought(text string, complete bool) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: text, IsComplete: complete}}}
}

func callChunks(id, name, arguments string) []*eventv1.Chunk {
	return []*eventv1.Chunk{
		{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{ToolCallId: id, ToolName: name}}},
		{Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: id, Delta: arguments[:3]}}},
		{Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: id, Delta: arguments[3:]}}},
		{Event: &eventv1.Chunk_ToolArgStreamEnd{ToolArgStreamEnd: &eventv1.ToolArgStreamEnd{ToolCallId: id}}},
		{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: id, ToolName: name, Arguments: arguments}}},
	}
}

func ended(r *eventv1.ToolResultPart) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{
		ToolCallId: r.GetToolCallId(), ToolName: r.GetToolName(), Success: r.GetSuccess(), Result: r.GetResult(), Error: r.GetError()}}}
}

// judged tells how the approval of the call was decided, where it was asked for.
func judged(r *eventv1.ToolResultPart) []*eventv1.Chunk {
	if r.GetApproval() == nil {
		return nil
	}
	decision := "reject"
	if r.GetApproval().GetApproved() {
		decision = "approve"
	}
	return []*eventv1.Chunk{{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: &eventv1.ToolApprovalResponse{
		ToolCallId: r.GetToolCallId(), Decision: decision, ApprovalId: r.GetApproval().GetApprovalId(), Reason: r.GetApproval().GetReason(),
	}}}}
}

func says(text string) []*eventv1.Part {
	return []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}}
}

// chunksOf tells a stored message.
func chunksOf(m *eventv1.Message) []*eventv1.Chunk {
	var chunks []*eventv1.Chunk
	for _, p := range m.GetParts() {
		switch p := p.GetPart().(type) {
		case *eventv1.Part_Text:
			chunks = append(chunks, delta(p.Text.GetText()))
		case *eventv1.Part_Reasoning:
			chunks = append(chunks, thought(p.Reasoning.GetText(), true))
		case *eventv1.Part_ToolCall:
			chunks = append(chunks, callChunks(p.ToolCall.GetToolCallId(), p.ToolCall.GetToolName(), p.ToolCall.GetArguments())...)
		case *eventv1.Part_ToolResult:
			chunks = append(chunks, judged(p.ToolResult)...)
			chunks = append(chunks, ended(p.ToolResult))
		}
	}
	return chunks
}

// plan is what the model says in one attempt, how its calls end, and what is stored.
type plan struct {
	chunks, results []*eventv1.Chunk
	messages        []*eventv1.Message
}

func (s *story) plan(number int32, name string) plan {
	answer := &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT}
	p := plan{chunks: []*eventv1.Chunk{stepStarted()}, messages: []*eventv1.Message{answer}}
	if s.choose("thinks", 2) == 1 {
		p.chunks = append(p.chunks, thought("hm ", false), thought(name, false), thought("", true))
		answer.Parts = append(answer.Parts, &eventv1.Part{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{Text: "hm " + name}}})
	}
	p.chunks = append(p.chunks, delta(fmt.Sprintf("%s of ", name)), delta("step "), delta(fmt.Sprint(number)))
	answer.Parts = append(answer.Parts, says(fmt.Sprintf("%s of step %d", name, number))...)
	calls := s.choose("calls", 3)
	tools := &eventv1.Message{Role: eventv1.Role_ROLE_TOOL}
	for i := range calls {
		s.calls++
		id := fmt.Sprintf("call-%d", s.calls)
		tells := callChunks(id, "add", `{"a":1}`)
		if i == 1 && s.choose("never begins", 2) == 1 {
			tells = tells[:len(tells)-1]
		}
		p.chunks = append(p.chunks, tells...)
		answer.Parts = append(answer.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id, ToolName: "add", Arguments: `{"a":1}`}}})
		result := &eventv1.ToolResultPart{ToolCallId: id, ToolName: "add", Success: true, Result: "2"}
		if i == 1 {
			result.Success, result.Result, result.Error = false, "", "no"
		}
		p.results = append(p.results, ended(result))
		tools.Parts = append(tools.Parts, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: result}})
	}
	if calls > 0 {
		p.messages = append(p.messages, tools)
	}
	return p
}
