package worker_test

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

// fakeStream is the live log, with readers that ask the fake state service for what they
// cannot follow.
type fakeStream struct {
	publishertest.Log
	state *fakeState
}

// frame is what a reader is given: a chunk, or how a run has ended.
type frame struct {
	chunk *eventv1.Chunk
	end   *streamv2.Terminal
}

func (f frame) GetChunk() *eventv1.Chunk        { return f.chunk }
func (f frame) GetTerminal() *streamv2.Terminal { return f.end }

func framesOf(chunks []*eventv1.Chunk) []frame {
	var frames []frame
	for _, chunk := range chunks {
		frames = append(frames, frame{chunk: chunk})
	}
	return frames
}

// records gives what a reader has that was there all the time: what it saw live, and for
// the rest what is stored.
func (f *fakeStream) records(sessionID string) []frame { return f.read(sessionID, true) }

// stored gives what a reader has that comes when everything is over.
func (f *fakeStream) stored(sessionID string) []frame { return f.read(sessionID, false) }

func (f *fakeStream) read(sessionID string, live bool) []frame {
	reader := &publishertest.Reader{}
	reader.Read(f.History(sessionID)...)
	s := f.state.sessions[sessionID]
	var frames []frame
	after := int64(0)
	part := func(upTo int64, stored []*eventv1.Chunk) {
		if live && reader.Saw(upTo) {
			stored = reader.Between(after, upTo)
		}
		frames = append(frames, framesOf(stored)...)
		after = upTo
	}
	for _, r := range f.state.order {
		if r.session != s {
			continue
		}
		step := position.Of(r.run.GetStartPosition()).Step // the last one that is committed
		if r.run.GetStartPosition() == 0 || position.Of(r.run.GetStartPosition()).Attempt != position.Stored {
			step = max(0, step-1)
		}
		for _, stored := range s.steps {
			if stored.GetRunId() == r.run.GetRunId() {
				part(position.Committed(stored.GetStep()), renderStep(r.run, stored))
				step = stored.GetStep()
			}
		}
		if r.live() {
			continue
		}
		end := []*eventv1.Chunk{renderEnd(r, step)}
		if r.run.GetStepCount() == 0 {
			end = append([]*eventv1.Chunk{renderBegin(r.run, step)}, end...)
		}
		terminal := renderTerminal(r)
		if upTo := r.run.GetEndPosition(); live && reader.Saw(upTo) {
			terminal = reader.Ends[r.run.GetRunId()]
		}
		part(r.run.GetEndPosition(), end)
		frames = append(frames, frame{end: terminal})
	}
	if live {
		frames = append(frames, framesOf(reader.Between(after, math.MaxInt64))...)
	}
	return frames
}

func renderBegin(run *statev1.Run, step int32) *eventv1.Chunk {
	chunk := &eventv1.Chunk{AgentId: run.GetRunId(), Step: step}
	if run.GetEntry() == statev1.RunEntry_RUN_ENTRY_START {
		chunk.Event = &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{Turn: run.GetTurn(), MessageId: run.GetMessageId()}}
		return chunk
	}
	previous := fmt.Sprintf("%s/run %d", run.GetSessionId(), run.GetTurn()-1)
	chunk.Event = &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{PreviousRunId: previous, Turn: run.GetTurn(), MessageId: run.GetMessageId()}}
	return chunk
}

// renderStep gives the chunks of a committed step, from its messages and its record.
func renderStep(run *statev1.Run, s *statev1.StoredStep) []*eventv1.Chunk {
	var chunks []*eventv1.Chunk
	if s.GetBeginsRun() {
		chunks = append(chunks, renderBegin(run, s.GetStep()-1))
	}
	add := func(one *eventv1.Chunk) {
		one.AgentId, one.Step = s.GetRunId(), s.GetStep()
		chunks = append(chunks, one)
	}
	if s.GetRecord().GetStartedAt() > 0 {
		add(&eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}})
	}
	calls, results := map[string]*eventv1.ToolCallPart{}, map[string]*eventv1.ToolResultPart{}
	var reply []*eventv1.Part
	for _, m := range s.GetMessages() {
		if m.GetRole() == eventv1.Role_ROLE_ASSISTANT {
			reply = m.GetParts()
		}
		for _, p := range m.GetParts() {
			if c := p.GetToolCall(); c != nil {
				calls[c.GetToolCallId()] = c
			}
			if r := p.GetToolResult(); r != nil {
				results[r.GetToolCallId()] = r
			}
		}
	}
	for _, e := range s.GetRecord().GetEvents() {
		switch event := e.GetEvent().(type) {
		case *eventv1.StepEvent_Reply:
			for _, p := range reply {
				renderPart(p, add)
			}
		case *eventv1.StepEvent_ToolStart:
			call := calls[event.ToolStart.GetToolCallId()]
			add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{
				ToolCallId: call.GetToolCallId(), ToolName: call.GetToolName(), Arguments: call.GetArguments(),
				AwaitsClient: event.ToolStart.GetAwaitsClient(), Dynamic: call.GetDynamic(),
			}}})
		case *eventv1.StepEvent_ToolEnd:
			r := results[event.ToolEnd]
			add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{
				ToolCallId: r.GetToolCallId(), ToolName: r.GetToolName(), Result: r.GetResult(), Success: r.GetSuccess(), Error: r.GetError(),
			}}})
		case *eventv1.StepEvent_ToolApprovalRequest:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: proto.CloneOf(event.ToolApprovalRequest)}})
		case *eventv1.StepEvent_ToolApprovalResponse:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: proto.CloneOf(event.ToolApprovalResponse)}})
		case *eventv1.StepEvent_Custom:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_Custom{Custom: proto.CloneOf(event.Custom)}})
		case *eventv1.StepEvent_StatePatch:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_StatePatch{StatePatch: proto.CloneOf(event.StatePatch)}})
		case *eventv1.StepEvent_Output:
			add(&eventv1.Chunk{Event: &eventv1.Chunk_Output{Output: proto.CloneOf(event.Output)}})
		}
	}
	add(&eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{CheckpointId: s.GetCheckpointId()}}})
	return chunks
}

func renderPart(p *eventv1.Part, add func(*eventv1.Chunk)) {
	if p.GetText() != nil {
		add(&eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: p.GetText().GetText()}}})
	}
	if p.GetReasoning() != nil {
		add(&eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: p.GetReasoning().GetText(), IsComplete: true}}})
	}
	if c := p.GetToolCall(); c != nil {
		id := c.GetToolCallId()
		add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{ToolCallId: id, ToolName: c.GetToolName(), Dynamic: c.GetDynamic()}}})
		add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: id, Delta: c.GetArguments()}}})
		add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamEnd{ToolArgStreamEnd: &eventv1.ToolArgStreamEnd{ToolCallId: id}}})
	}
}

func renderEnd(r *fakeRun, step int32) *eventv1.Chunk {
	chunk := &eventv1.Chunk{AgentId: r.run.GetRunId(), Step: step}
	switch o := r.outcome; o.GetStatus() {
	case statev1.RunStatus_RUN_STATUS_FAILED:
		chunk.Event = &eventv1.Chunk_Error{Error: &eventv1.Error{Error: o.GetFailure().GetError(), Code: o.GetFailure().GetCode()}}
	case statev1.RunStatus_RUN_STATUS_INTERRUPTED:
		chunk.Event = &eventv1.Chunk_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{Reason: r.run.GetStop().GetReason()}}
	case statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL:
		chunk.Event = &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "client_tool"}}
	case statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL:
		chunk.Event = &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "step_partial"}}
	default:
		chunk.Event = &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{Output: o.GetOutput(), FinishReason: o.GetFinishReason(), Usage: o.GetUsage()}}
	}
	return chunk
}

func renderTerminal(r *fakeRun) *streamv2.Terminal {
	t := &streamv2.Terminal{RunId: r.run.GetRunId()}
	if f := r.outcome.GetFailure(); f != nil {
		t.Outcome = &streamv2.Terminal_Fail{Fail: &streamv2.Fail{Error: f.GetError(), Code: f.GetCode()}}
		return t
	}
	end := &streamv2.End{Status: streamv2.EndStatus_END_STATUS_COMPLETED, Output: r.outcome.GetOutput(), Usage: r.outcome.GetUsage()}
	switch {
	case r.outcome.GetStatus() == statev1.RunStatus_RUN_STATUS_INTERRUPTED:
		end.Status = streamv2.EndStatus_END_STATUS_INTERRUPTED
	case suspended[r.outcome.GetStatus()]:
		end.Status = streamv2.EndStatus_END_STATUS_PAUSED
	}
	t.Outcome = &streamv2.Terminal_End{End: end}
	return t
}

// texts joins the text deltas of the frames.
func texts(frames []frame) string {
	var all strings.Builder
	for _, f := range frames {
		all.WriteString(f.chunk.GetTextDelta().GetDelta())
	}
	return all.String()
}

// types gives what the frames are, deltas that stand together as one.
func types(frames []frame) []string {
	var list []string
	for _, f := range frames {
		name := f.chunk.Type()
		if f.end != nil {
			name = "end"
			if f.end.GetFail() != nil {
				name = "fail"
			}
		}
		if len(list) > 0 && list[len(list)-1] == name && isDelta(f.chunk) {
			continue
		}
		list = append(list, name)
	}
	return list
}

func isDelta(chunk *eventv1.Chunk) bool {
	return chunk.GetTextDelta() != nil || chunk.GetThinking() != nil || chunk.GetToolArgStreamDelta() != nil
}
