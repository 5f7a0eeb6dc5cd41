package render

import (
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
)

// Step gives the frames of a stored step of the run. previous is the run that this one
// goes on from; it is only read for a run that does, with the step that begins it.
func Step(run *statev1.Run, previous string, step *statev1.StoredStep) []*frame.Frame {
	r := &rendering{run: run, step: step, calls: map[string]*eventv1.ToolCallPart{}, results: map[string]*eventv1.ToolResultPart{}}
	r.index()
	if step.GetBeginsRun() {
		r.begin(previous)
	}
	if step.GetRecord() != nil {
		r.recorded(step.GetRecord())
	} else {
		r.usual()
	}
	return r.end()
}

// rendering is a step that is being rendered.
type rendering struct {
	run     *statev1.Run
	step    *statev1.StoredStep
	reply   *eventv1.Message // the assistant message; nil for a step that only answers calls
	calls   map[string]*eventv1.ToolCallPart
	results map[string]*eventv1.ToolResultPart
	frames  []*frame.Frame
}

func (r *rendering) index() {
	for _, m := range r.step.GetMessages() {
		if m.GetRole() == eventv1.Role_ROLE_ASSISTANT {
			r.reply = m
		}
		for _, p := range m.GetParts() {
			if c := p.GetToolCall(); c != nil {
				r.calls[c.GetToolCallId()] = c
			}
			if result := p.GetToolResult(); result != nil {
				r.results[result.GetToolCallId()] = result
			}
		}
	}
}

// add adds an event of the step; nil is none.
func (r *rendering) add(at int64, event *eventv1.Chunk) { r.addOf(r.step.GetStep(), at, event) }

// between adds an event that stands before the step.
func (r *rendering) between(at int64, event *eventv1.Chunk) { r.addOf(r.step.GetStep()-1, at, event) }

func (r *rendering) addOf(step int32, at int64, event *eventv1.Chunk) {
	if event == nil || len(r.frames) >= position.MaxChunks {
		return
	}
	sequence := position.Position{Step: r.step.GetStep(), Attempt: position.Stored, N: int32(len(r.frames) + 1)}.Sequence() //nolint:gosec // see MaxChunks
	r.frames = append(r.frames, frame.Chunk("", sequence, stamp(r.run, step, at, event)))
}

// stamp gives an event its base.
func stamp(run *statev1.Run, step int32, at int64, c *eventv1.Chunk) *eventv1.Chunk {
	c.AgentId, c.AgentType, c.Timestamp, c.Step = run.GetRunId(), run.GetAgentType(), at, step
	return c
}

// startedAt is when the step began, as far as that is known.
func (r *rendering) startedAt() int64 {
	switch {
	case r.step.GetRecord().GetStartedAt() > 0:
		return r.step.GetRecord().GetStartedAt()
	case r.reply.GetCreatedAt() > 0:
		return r.reply.GetCreatedAt()
	default:
		return r.step.GetCommittedAt()
	}
}

// begin adds the first chunk of the run.
func (r *rendering) begin(previous string) {
	at := r.startedAt()
	if events := r.step.GetRecord().GetEvents(); len(events) > 0 && events[0].GetTimestamp() > 0 {
		at = min(at, events[0].GetTimestamp())
	}
	r.between(at, firstChunk(r.run, previous))
}

// Resumes reports whether the run goes on from an earlier one.
func Resumes(run *statev1.Run) bool {
	e := run.GetEntry()
	return e == statev1.RunEntry_RUN_ENTRY_RESUME || e == statev1.RunEntry_RUN_ENTRY_CONTINUATION
}

// recorded adds the step in the order of its record.
func (r *rendering) recorded(record *eventv1.StepRecord) {
	begun := r.reply == nil // a step that only answers calls shows no begin
	start := func() {
		if !begun {
			begun = true
			r.add(r.startedAt(), &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}})
		}
	}
	for _, e := range record.GetEvents() {
		if e.GetReply() != nil || e.GetTimestamp() >= record.GetStartedAt() {
			start()
		}
		if e.GetReply() != nil {
			r.replied(e.GetTimestamp())
			continue
		}
		if begun {
			r.add(e.GetTimestamp(), r.event(e))
		} else {
			r.between(e.GetTimestamp(), r.event(e))
		}
	}
	start()
}

// event gives the chunk of an entry; nil for one that this release does not know.
func (r *rendering) event(entry *eventv1.StepEvent) *eventv1.Chunk {
	switch e := entry.GetEvent().(type) {
	case *eventv1.StepEvent_ToolStart:
		return toolStart(r.calls[e.ToolStart.GetToolCallId()], e.ToolStart.GetAwaitsClient())
	case *eventv1.StepEvent_ToolEnd:
		return toolEnd(r.results[e.ToolEnd])
	case *eventv1.StepEvent_ToolApprovalRequest:
		return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: e.ToolApprovalRequest}}
	case *eventv1.StepEvent_ToolApprovalResponse:
		return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: e.ToolApprovalResponse}}
	case *eventv1.StepEvent_Custom:
		return &eventv1.Chunk{Event: &eventv1.Chunk_Custom{Custom: e.Custom}}
	case *eventv1.StepEvent_StatePatch:
		return &eventv1.Chunk{Event: &eventv1.Chunk_StatePatch{StatePatch: e.StatePatch}}
	case *eventv1.StepEvent_Output:
		return &eventv1.Chunk{Event: &eventv1.Chunk_Output{Output: e.Output}}
	default:
		return nil
	}
}

// replied adds the reply of the model.
func (r *rendering) replied(at int64) {
	for _, p := range r.reply.GetParts() {
		switch part := p.GetPart().(type) {
		case *eventv1.Part_Text:
			r.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: part.Text.GetText()}}})
		case *eventv1.Part_Reasoning:
			r.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: part.Reasoning.GetText(), IsComplete: true}}})
		case *eventv1.Part_ToolCall:
			for _, c := range arguments(part.ToolCall) {
				r.add(at, c)
			}
		}
	}
}

// usual adds a step without a record, in the order in which most runs show it.
func (r *rendering) usual() {
	at := r.startedAt()
	if r.reply != nil {
		r.add(at, &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}})
		r.replied(at)
	}
	for _, p := range r.reply.GetParts() {
		call := p.GetToolCall()
		result := r.results[call.GetToolCallId()]
		if call != nil && !refused(r.reply, result) {
			r.add(at, toolStart(call, result == nil))
		}
	}
	for _, m := range r.step.GetMessages() {
		for _, p := range m.GetParts() {
			if result := p.GetToolResult(); result != nil {
				r.add(m.GetCreatedAt(), decided(result))
				r.add(m.GetCreatedAt(), toolEnd(result))
			}
		}
	}
}

// end adds the commit of the step, and of the run's end where it ended with the step.
func (r *rendering) end() []*frame.Frame {
	number, at := r.step.GetStep(), r.step.GetCommittedAt()
	committed := &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{CheckpointId: r.step.GetCheckpointId()}}}
	r.frames = append(r.frames, frame.Chunk("", position.Committed(number), stamp(r.run, number, at, committed)))
	if r.run.GetFinishStep() != number {
		return r.frames
	}
	return append(r.frames, End(r.run, position.Ended(number), number)...)
}
