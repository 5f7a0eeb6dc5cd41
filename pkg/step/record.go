package step

import (
	"slices"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// maxEventBytes limits the events of a record, so that the commit of the step fits into an RPC message.
const maxEventBytes = 5 << 20

// Recorder records what the step in flight streams beside its messages. The zero value with a step is empty.
//
// A record has no entry for step_started. Readers derive its place from the times: an event older than the start of the
// step was streamed before it. The clock alone does not guarantee this, because it counts milliseconds and may be set
// back, so the recorder corrects times that contradict the order.
type Recorder struct {
	Step int32 // the step in flight

	startedAt int64 // time of step_started; 0 for a step without one
	events    []recordedEvent
	bytes     int  // of the events
	replied   bool // the events include the place of the reply
	spoken    bool // text or input of the reply was streamed, not only its reasoning
}

// recordedEvent is an event with its chunk's step: the step in flight, or the one before it.
type recordedEvent struct {
	step  int32
	event *eventv1.StepEvent
}

// Add records a live chunk. It keeps parts of the chunk.
func (r *Recorder) Add(chunk *eventv1.Chunk) {
	var event *eventv1.StepEvent
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_StepStarted:
		r.startedAt = chunk.GetTimestamp()
		for _, earlier := range r.events { // all events so far precede the step
			earlier.event.Timestamp = min(earlier.event.GetTimestamp(), r.startedAt-1)
		}
		return
	case *eventv1.Chunk_TextDelta, *eventv1.Chunk_Thinking, *eventv1.Chunk_ToolArgStreamStart:
		r.spoken = r.spoken || chunk.GetThinking() == nil
		if r.replied || chunk.GetStep() < r.Step {
			return
		}
		r.replied = true
		event = &eventv1.StepEvent{Event: &eventv1.StepEvent_Reply{Reply: &eventv1.ReplyEvent{}}}
	case *eventv1.Chunk_Custom:
		if e.Custom.GetTransient() {
			return
		}
		event = &eventv1.StepEvent{Event: &eventv1.StepEvent_Custom{Custom: e.Custom}}
	default:
		if event = eventOf(chunk); event == nil {
			return
		}
	}
	event.Timestamp = max(chunk.GetTimestamp(), r.startedAt)
	size := proto.Size(event)
	if r.bytes+size > maxEventBytes && (event.GetCustom() != nil || event.GetStatePatch() != nil) {
		return // the other events are small, or unique
	}
	r.bytes += size
	r.events = append(r.events, recordedEvent{step: chunk.GetStep(), event: event})
}

// eventOf returns the event that stands for one chunk; nil for a chunk without one.
func eventOf(chunk *eventv1.Chunk) *eventv1.StepEvent {
	switch e := chunk.GetEvent().(type) {
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
	case *eventv1.Chunk_StatePatch:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_StatePatch{StatePatch: e.StatePatch}}
	case *eventv1.Chunk_Output:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_Output{Output: e.Output}}
	case *eventv1.Chunk_SubagentStart:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_SubagentStart{SubagentStart: e.SubagentStart}}
	case *eventv1.Chunk_SubagentEnd:
		return &eventv1.StepEvent{Event: &eventv1.StepEvent_SubagentEnd{SubagentEnd: SubagentEnd(e.SubagentEnd, nil).GetSubagentEnd()}}
	}
	return nil
}

// Retry drops what the step itself has streamed. Events from before it remain.
func (r *Recorder) Retry() {
	before := slices.DeleteFunc(r.events, func(e recordedEvent) bool { return e.step >= r.Step })
	*r = Recorder{Step: r.Step, events: before}
	for _, e := range before {
		r.bytes += proto.Size(e.event)
	}
}

// Record returns the record so far. It omits the place of a reply of which readers saw only the reasoning.
func (r *Recorder) Record() *eventv1.StepRecord {
	record := &eventv1.StepRecord{StartedAt: r.startedAt, Events: make([]*eventv1.StepEvent, 0, len(r.events))}
	for _, e := range r.events {
		if e.event.GetReply() == nil || r.spoken {
			record.Events = append(record.Events, e.event)
		}
	}
	return record
}
