package publisher

import (
	"slices"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// maxEventBytes bounds the events of a step's record, so that its commit fits into a
// message of the RPC layer.
const maxEventBytes = 5 << 20

// record gathers what the step in flight shows beside its messages. The zero value is
// empty.
//
// The built record has no place for step_started. Its readers tell it from the times: an
// event that is older than the start of the step was shown before it. The clock alone does
// not guarantee that, since it counts in milliseconds and may be set back, so the record
// corrects the time of an event where it contradicts the order.
type record struct {
	started int64 // when its step_started was shown; 0 for a step without one
	events  []recorded
	bytes   int
	replied bool // the place of the reply is among the events
	spoken  bool // text or arguments of the reply were shown, not its reasoning alone
}

// recorded is an event with the step that its chunk carries: the one before the step in
// flight, or that itself.
type recorded struct {
	step  int32
	event *eventv1.StepEvent
}

// add takes what a chunk says, which is shown while the step is in flight.
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
		return // the other events are small, or one of a kind
	}
	r.bytes += size
	r.events = append(r.events, recorded{step: chunk.GetStep(), event: event})
}

// start notes when the step started. All events so far were shown before that.
func (r *record) start(at int64) {
	r.started = at
	for _, e := range r.events {
		e.event.Timestamp = min(e.event.GetTimestamp(), at-1)
	}
}

// eventOf gives nil for a chunk that the record says nothing of.
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
	}
	return nil
}

// retry forgets the step, but not what was shown before it.
func (r *record) retry(step int32) {
	r.started, r.replied, r.spoken, r.bytes = 0, false, false, 0
	r.events = slices.DeleteFunc(r.events, func(e recorded) bool { return e.step >= step })
	for _, e := range r.events {
		r.bytes += proto.Size(e.event)
	}
}

// build gives the record. It does not name a reply that was asked for as JSON, of which readers
// saw the reasoning and not the text.
func (r *record) build() *eventv1.StepRecord {
	built := &eventv1.StepRecord{StartedAt: r.started, Events: make([]*eventv1.StepEvent, 0, len(r.events))}
	for _, e := range r.events {
		if e.event.GetReply() == nil || r.spoken {
			built.Events = append(built.Events, e.event)
		}
	}
	return built
}
