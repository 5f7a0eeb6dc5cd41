package step

import (
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Replay returns the chunks of a committed step in the order in which live readers saw them, with their times and
// steps. Chunks before step_started carry the previous step. step_committed is not included.
//
// A step without a record shows its messages in the usual order: the reply, the starts of its calls, their ends. A call
// without an end awaits a client.
func Replay(number int32, messages []*eventv1.Message, record *eventv1.StepRecord) []*eventv1.Chunk {
	step := readStored(messages)
	if record == nil {
		record = step.usualRecord(messages)
	}
	chunks := make([]*eventv1.Chunk, 0, len(record.GetEvents())+len(step.reply.GetParts())+1)
	at, shown := number-1, 0
	stamp := func(timestamp int64) {
		for ; shown < len(chunks); shown++ {
			chunks[shown].Timestamp, chunks[shown].Step = timestamp, at
		}
	}
	start := func() {
		if at == number {
			return
		}
		at = number
		chunks = append(chunks, Started())
		named := slices.ContainsFunc(record.GetEvents(), func(e *eventv1.StepEvent) bool { return e.GetReply() != nil })
		for _, p := range step.reply.GetParts() {
			if !named && p.GetReasoning() != nil { // all that readers saw of the reply
				chunks = AppendReply(chunks, p)
			}
		}
		stamp(record.GetStartedAt())
	}
	if record.GetStartedAt() == 0 && step.reply == nil {
		at = number // a step that only takes answers calls no model and has no step_started
	}
	for _, e := range record.GetEvents() {
		if e.GetReply() != nil || e.GetTimestamp() >= record.GetStartedAt() {
			start()
		}
		chunks = step.appendEvent(chunks, e)
		stamp(e.GetTimestamp())
	}
	start()
	return chunks
}

// stored is the content of a step's messages.
type stored struct {
	reply   *eventv1.Message // the model's reply; nil if the step has none
	calls   map[string]*eventv1.ToolCallPart
	results map[string]*eventv1.ToolResultPart
}

func readStored(messages []*eventv1.Message) stored {
	s := stored{calls: map[string]*eventv1.ToolCallPart{}, results: map[string]*eventv1.ToolResultPart{}}
	for _, m := range messages {
		if m.GetRole() == eventv1.Role_ROLE_ASSISTANT {
			s.reply = m
		}
		for _, p := range m.GetParts() {
			if c := p.GetToolCall(); c != nil {
				s.calls[c.GetToolCallId()] = c
			}
			if r := p.GetToolResult(); r != nil {
				s.results[r.GetToolCallId()] = r
			}
		}
	}
	return s
}

// appendEvent appends the chunks of an event: the reverse of Recorder.Add. Events about missing messages have none, and
// neither have unknown events.
func (s stored) appendEvent(chunks []*eventv1.Chunk, event *eventv1.StepEvent) []*eventv1.Chunk {
	switch e := event.GetEvent().(type) {
	case *eventv1.StepEvent_Reply:
		return AppendReply(chunks, s.reply.GetParts()...)
	case *eventv1.StepEvent_ToolStart:
		if call := s.calls[e.ToolStart.GetToolCallId()]; call != nil {
			return append(chunks, ToolStart(call, e.ToolStart.GetAwaitsClient()))
		}
	case *eventv1.StepEvent_ToolEnd:
		if result := s.results[e.ToolEnd]; result != nil {
			return append(chunks, ToolEnd(result))
		}
	case *eventv1.StepEvent_ToolApprovalRequest:
		return append(chunks, ApprovalRequest(e.ToolApprovalRequest))
	case *eventv1.StepEvent_ToolApprovalResponse:
		return append(chunks, &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: e.ToolApprovalResponse}})
	case *eventv1.StepEvent_Custom:
		return append(chunks, Custom(e.Custom))
	case *eventv1.StepEvent_StatePatch:
		return append(chunks, &eventv1.Chunk{Event: &eventv1.Chunk_StatePatch{StatePatch: e.StatePatch}})
	case *eventv1.StepEvent_Output:
		return append(chunks, &eventv1.Chunk{Event: &eventv1.Chunk_Output{Output: e.Output}})
	case *eventv1.StepEvent_SubagentStart:
		return append(chunks, SubagentStart(e.SubagentStart))
	case *eventv1.StepEvent_SubagentEnd:
		return append(chunks, SubagentEnd(e.SubagentEnd, s.results[e.SubagentEnd.GetToolCallId()]))
	}
	return chunks
}

// usualRecord returns the record of a step with its messages shown in order.
func (s stored) usualRecord(messages []*eventv1.Message) *eventv1.StepRecord {
	record := &eventv1.StepRecord{StartedAt: s.reply.GetCreatedAt()}
	add := func(at int64, event *eventv1.StepEvent) {
		event.Timestamp = at
		record.Events = append(record.Events, event)
	}
	if s.reply != nil {
		add(record.GetStartedAt(), &eventv1.StepEvent{Event: &eventv1.StepEvent_Reply{Reply: &eventv1.ReplyEvent{}}})
	}
	for _, p := range s.reply.GetParts() {
		if c := p.GetToolCall(); c != nil {
			add(record.GetStartedAt(), eventOf(ToolStart(c, s.results[c.GetToolCallId()] == nil)))
		}
	}
	for _, m := range messages {
		for _, p := range m.GetParts() {
			r := p.GetToolResult()
			if v := r.GetApproval(); v != nil {
				add(m.GetCreatedAt(), eventOf(Decision(r.GetToolCallId(), v)))
			}
			if r != nil {
				add(m.GetCreatedAt(), eventOf(ToolEnd(r)))
			}
		}
	}
	return record
}
