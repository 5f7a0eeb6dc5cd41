package publisher

import (
	"slices"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// maxEventBytes limits the events in a step's record, so its commit fits into an RPC message.
const maxEventBytes = 5 << 20

// record collects what the step in flight streams beside its messages. The zero value is empty.
//
// The built record has no entry for step_started. Readers derive its place from the times: an event older than
// the start of the step was streamed before it. The clock alone does not guarantee this, because it counts
// milliseconds and may be set back, so the record corrects event times that contradict the order.
type record struct {
	started int64 // time of step_started; 0 for a step without one
	events  []recorded
	bytes   int
	replied bool // the events include the place of the reply
	spoken  bool // text or arguments of the reply were streamed, not only its reasoning
}

// recorded is an event with its chunk's step: the step in flight, or the one before it.
type recorded struct {
	step  int32
	event *eventv1.StepEvent
}

// add adds a chunk streamed during the step in flight.
func (r *record) add(step int32, chunk *eventv1.Chunk) {
	if chunk.GetStepStarted() != nil {
		r.start(chunk.GetTimestamp())
	}
	if chunk.GetTextDelta() != nil || chunk.GetToolArgStreamStart() != nil {
		r.spoken = true
	}
	event := r.eventOf(step, chunk)
	if event == nil {
		return
	}
	event.Timestamp = max(chunk.GetTimestamp(), r.started)
	size := proto.Size(event)
	if r.bytes+size > maxEventBytes && (event.GetCustom() != nil || event.GetStatePatch() != nil) {
		return // the other events are small, or unique
	}
	r.bytes += size
	r.events = append(r.events, recorded{step: chunk.GetStep(), event: event})
}

// start records the start of the step. All events so far precede it.
func (r *record) start(at int64) {
	r.started = at
	for _, e := range r.events {
		e.event.Timestamp = min(e.event.GetTimestamp(), at-1)
	}
}

// eventOf returns nil for a chunk that needs no record.
func (r *record) eventOf(step int32, chunk *eventv1.Chunk) *eventv1.StepEvent {
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_TextDelta, *eventv1.Chunk_Thinking, *eventv1.Chunk_ToolArgStreamStart:
		if r.replied || chunk.GetStep() < step {
			return nil
		}
		r.replied = true
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_Reply{Reply: &eventv1.ReplyEvent{}}}
	case *eventv1.Chunk_ToolStart:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_ToolStart{ToolStart: &eventv1.ToolStartEvent{
			ToolCallId: e.ToolStart.GetToolCallId(), AwaitsClient: e.ToolStart.GetAwaitsClient(),
		}}}
	case *eventv1.Chunk_ToolEnd:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_ToolEnd{ToolEnd: e.ToolEnd.GetToolCallId()}}
	case *eventv1.Chunk_ToolApprovalRequest:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_ToolApprovalRequest{ToolApprovalRequest: e.ToolApprovalRequest}}
	case *eventv1.Chunk_ToolApprovalResponse:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_ToolApprovalResponse{ToolApprovalResponse: e.ToolApprovalResponse}}
	case *eventv1.Chunk_Custom:
		if e.Custom.GetTransient() {
			return nil
		}
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_Custom{Custom: e.Custom}}
	case *eventv1.Chunk_StatePatch:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_StatePatch{StatePatch: e.StatePatch}}
	case *eventv1.Chunk_Output:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_Output{Output: e.Output}}
	case *eventv1.Chunk_SubagentStart:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_SubagentStart{SubagentStart: e.SubagentStart}}
	case *eventv1.Chunk_SubagentEnd:
		end := e.SubagentEnd
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_SubagentEnd{SubagentEnd: &eventv1.SubagentEnd{
			SubSessionId: end.GetSubSessionId(), SubAgentType: end.GetSubAgentType(), ToolCallId: end.GetToolCallId(), Success: end.GetSuccess(),
		}}}
	}
	return nil
}

// retry drops the step's events, but not those before it.
func (r *record) retry(step int32) {
	r.started, r.replied, r.spoken, r.bytes = 0, false, false, 0
	r.events = slices.DeleteFunc(r.events, func(e recorded) bool { return e.step >= step })
	for _, e := range r.events {
		r.bytes += proto.Size(e.event)
	}
}

// build returns the record. It omits the place of a reply in the JSON output format: readers saw only its
// reasoning.
func (r *record) build() *eventv1.StepRecord {
	built := &eventv1.StepRecord{StartedAt: r.started, Events: make([]*eventv1.StepEvent, 0, len(r.events))}
	for _, e := range r.events {
		if e.event.GetReply() == nil || r.spoken {
			built.Events = append(built.Events, e.event)
		}
	}
	return built
}
