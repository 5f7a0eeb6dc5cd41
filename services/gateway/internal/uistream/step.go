package uistream

import (
	"cmp"
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// StepChunks returns the chunks of a committed step in the order in which live readers saw them:
// the content of its messages, at the places in its record. Text, reasoning and arguments come as
// one delta each. Each chunk has its time and step. Chunks before step_started carry the previous
// step. step_committed is not included.
//
// The record has the times of its events and of step_started, so an older event precedes
// step_started. If the record does not name the reply, the reply was requested as JSON: readers saw
// its reasoning but not its text.
//
// A step without a record shows its messages in the usual order.
func StepChunks(step int32, messages []*eventv1.Message, record *eventv1.StepRecord) []*eventv1.Chunk {
	if record == nil {
		record = defaultRecord(messages)
	}
	s := newStepReplay(step, messages, record)
	for _, e := range record.GetEvents() {
		if e.GetReply() != nil || e.GetTimestamp() >= record.GetStartedAt() {
			s.start()
		}
		s.addEvent(e)
	}
	s.start()
	return s.chunks
}

type stepReplay struct {
	step       int32
	startedAt  int64 // when the step started
	started    bool
	textHidden bool // the record does not name the reply
	chunks     []*eventv1.Chunk

	reply   *eventv1.Message // the model's reply; nil if the step has none
	calls   map[string]*eventv1.ToolCallPart
	results map[string]*eventv1.ToolResultPart
}

func newStepReplay(step int32, messages []*eventv1.Message, record *eventv1.StepRecord) *stepReplay {
	s := &stepReplay{
		step: step, startedAt: record.GetStartedAt(),
		textHidden: !slices.ContainsFunc(record.GetEvents(), func(e *eventv1.StepEvent) bool { return e.GetReply() != nil }),
		calls:      map[string]*eventv1.ToolCallPart{}, results: map[string]*eventv1.ToolResultPart{},
	}
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
	s.started = s.startedAt == 0 && s.reply == nil // a step that only takes answers calls no model and has no step_started
	return s
}

// add adds a chunk, if not nil.
func (s *stepReplay) add(at int64, c *eventv1.Chunk) {
	if c == nil {
		return
	}
	c.Timestamp, c.Step = at, s.step
	if !s.started {
		c.Step--
	}
	s.chunks = append(s.chunks, c)
}

// start adds step_started, once.
func (s *stepReplay) start() {
	if s.started {
		return
	}
	s.started = true
	s.add(s.startedAt, &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}})
	if !s.textHidden {
		return
	}
	for _, p := range s.reply.GetParts() {
		if p.GetReasoning() != nil {
			s.addPart(s.startedAt, p)
		}
	}
}

func (s *stepReplay) addPart(at int64, p *eventv1.Part) {
	switch p := p.GetPart().(type) {
	case *eventv1.Part_Text:
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: p.Text.GetText()}}})
	case *eventv1.Part_Reasoning:
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: p.Reasoning.GetText(), IsComplete: true}}})
	case *eventv1.Part_ToolCall:
		c := p.ToolCall
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{
			ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), Dynamic: c.GetDynamic(),
		}}})
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{
			ToolCallId: c.GetToolCallId(), Delta: c.GetArguments(),
		}}})
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamEnd{ToolArgStreamEnd: &eventv1.ToolArgStreamEnd{ToolCallId: c.GetToolCallId()}}})
	}
}

// addEvent adds the chunks of a record's event. It ignores events about missing messages, and
// unknown events.
func (s *stepReplay) addEvent(event *eventv1.StepEvent) {
	at := event.GetTimestamp()
	switch e := event.GetEvent().(type) {
	case *eventv1.StepEvent_Reply:
		for _, p := range s.reply.GetParts() {
			s.addPart(at, p)
		}
	case *eventv1.StepEvent_ToolStart:
		s.add(at, toolStart(s.calls[e.ToolStart.GetToolCallId()], e.ToolStart.GetAwaitsClient()))
	case *eventv1.StepEvent_ToolEnd:
		s.add(at, toolEnd(s.results[e.ToolEnd]))
	case *eventv1.StepEvent_ToolApprovalRequest:
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: e.ToolApprovalRequest}})
	case *eventv1.StepEvent_ToolApprovalResponse:
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: e.ToolApprovalResponse}})
	case *eventv1.StepEvent_Custom:
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_Custom{Custom: e.Custom}})
	case *eventv1.StepEvent_StatePatch:
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_StatePatch{StatePatch: e.StatePatch}})
	case *eventv1.StepEvent_Output:
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_Output{Output: e.Output}})
	case *eventv1.StepEvent_SubagentStart:
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_SubagentStart{SubagentStart: e.SubagentStart}})
	case *eventv1.StepEvent_SubagentEnd:
		e.SubagentEnd.Result = s.results[e.SubagentEnd.GetToolCallId()].GetResult()
		s.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_SubagentEnd{SubagentEnd: e.SubagentEnd}})
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
		ToolCallId: r.GetToolCallId(), ToolName: r.GetToolName(), Result: r.GetResult(), Success: r.GetSuccess(), Error: publicError(r),
	}}}
}

// publicError returns why a call failed, for users.
func publicError(r *eventv1.ToolResultPart) string { return cmp.Or(r.GetPublicError(), r.GetError()) }

// defaultRecord returns the record of a step that shows its messages in order: the reply, the
// starts of its calls, their ends. A call without an end awaits a client.
func defaultRecord(messages []*eventv1.Message) *eventv1.StepRecord {
	record := &eventv1.StepRecord{}
	var ends []*eventv1.StepEvent
	ended := map[string]bool{}
	for _, m := range messages {
		for _, p := range m.GetParts() {
			if r := p.GetToolResult(); r != nil {
				ended[r.GetToolCallId()] = true
				ends = append(ends, endEvents(m.GetCreatedAt(), r)...)
			}
		}
	}
	for _, m := range messages {
		if m.GetRole() != eventv1.Role_ROLE_ASSISTANT {
			continue
		}
		record.StartedAt = m.GetCreatedAt()
		record.Events = append(record.Events, &eventv1.StepEvent{Timestamp: record.GetStartedAt(), Event: &eventv1.StepEvent_Reply{Reply: &eventv1.ReplyEvent{}}})
		for _, p := range m.GetParts() {
			if id := p.GetToolCall().GetToolCallId(); id != "" {
				start := &eventv1.ToolStartEvent{ToolCallId: id, AwaitsClient: !ended[id]}
				record.Events = append(record.Events, &eventv1.StepEvent{Timestamp: record.GetStartedAt(), Event: &eventv1.StepEvent_ToolStart{ToolStart: start}})
			}
		}
	}
	record.Events = append(record.Events, ends...)
	return record
}

// endEvents returns the decision on the call's approval, if any, and the call's end.
func endEvents(at int64, r *eventv1.ToolResultPart) []*eventv1.StepEvent {
	end := []*eventv1.StepEvent{{Timestamp: at, Event: &eventv1.StepEvent_ToolEnd{ToolEnd: r.GetToolCallId()}}}
	verdict := r.GetApproval()
	if verdict == nil {
		return end
	}
	response := &eventv1.ToolApprovalResponse{
		ToolCallId: r.GetToolCallId(), Decision: "reject", ApprovalId: verdict.GetApprovalId(), Reason: verdict.GetReason(),
	}
	if verdict.GetApproved() {
		response.Decision = "approve"
	}
	return append([]*eventv1.StepEvent{{Timestamp: at, Event: &eventv1.StepEvent_ToolApprovalResponse{ToolApprovalResponse: response}}}, end...)
}
