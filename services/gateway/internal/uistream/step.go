package uistream

import (
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// StepChunks gives the chunks of a committed step in the order in which readers saw them:
// what its messages say, at the places that its record names. Text comes as one delta for
// each part. An event that is older than the begin of the step stands before step_started.
//
// What the record does not name comes as well: a reply before everything else, results
// and open calls at the end. A name that the messages do not know is left out.
func StepChunks(messages []*eventv1.Message, record *eventv1.StepRecord) []*eventv1.Chunk {
	s := newStepReplay(messages)
	if !slices.ContainsFunc(record.GetEvents(), func(e *eventv1.StepEvent) bool { return e.GetReply() != nil }) {
		s.started = len(s.reply) == 0 // a step without a model: it has no begin
		s.speak()
	}
	for _, e := range record.GetEvents() {
		if e.GetReply() != nil || e.GetTimestamp() >= record.GetStartedAt() {
			s.start()
		}
		s.take(e)
	}
	s.complete()
	s.add(&eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{}}})
	return s.chunks
}

// stepReplay makes chunks of a step.
type stepReplay struct {
	run     string
	number  int32
	chunks  []*eventv1.Chunk
	started bool

	reply   []*eventv1.Message // the model's
	calls   []*eventv1.ToolCallPart
	results []*eventv1.ToolResultPart
	named   map[string]bool // calls of which a start or an end was given
	ended   map[string]bool // calls of which an end was given
}

func newStepReplay(messages []*eventv1.Message) *stepReplay {
	s := &stepReplay{named: map[string]bool{}, ended: map[string]bool{}}
	for _, m := range messages {
		s.run, s.number = m.GetRunId(), m.GetStep()
		if m.GetRole() == eventv1.Role_ROLE_ASSISTANT {
			s.reply = append(s.reply, m)
		}
		for _, p := range m.GetParts() {
			if c := p.GetToolCall(); c != nil {
				s.calls = append(s.calls, c)
			}
			if r := p.GetToolResult(); r != nil {
				s.results = append(s.results, r)
			}
		}
	}
	return s
}

func (s *stepReplay) add(c *eventv1.Chunk) {
	c.AgentId, c.Step = s.run, s.number
	s.chunks = append(s.chunks, c)
}

// start begins the step, once.
func (s *stepReplay) start() {
	if !s.started {
		s.started = true
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}})
	}
}

// speak gives the model's reply.
func (s *stepReplay) speak() {
	for _, m := range s.reply {
		s.start()
		for _, p := range m.GetParts() {
			s.part(p)
		}
	}
	s.reply = nil
}

func (s *stepReplay) part(p *eventv1.Part) {
	switch p := p.GetPart().(type) {
	case *eventv1.Part_Text:
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: p.Text.GetText()}}})
	case *eventv1.Part_Reasoning:
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: p.Reasoning.GetText(), IsComplete: true}}})
	case *eventv1.Part_ToolCall:
		c := p.ToolCall
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{
			ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), Dynamic: c.GetDynamic(),
		}}})
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{
			ToolCallId: c.GetToolCallId(), Delta: c.GetArguments(),
		}}})
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamEnd{ToolArgStreamEnd: &eventv1.ToolArgStreamEnd{ToolCallId: c.GetToolCallId()}}})
	}
}

func (s *stepReplay) take(e *eventv1.StepEvent) {
	switch e := e.GetEvent().(type) {
	case *eventv1.StepEvent_Reply:
		s.speak()
	case *eventv1.StepEvent_ToolStart:
		for _, c := range s.calls {
			if c.GetToolCallId() == e.ToolStart.GetToolCallId() {
				s.toolStart(c, e.ToolStart.GetAwaitsClient())
			}
		}
	case *eventv1.StepEvent_ToolEnd:
		for _, r := range s.results {
			if r.GetToolCallId() == e.ToolEnd {
				s.toolEnd(r)
			}
		}
	case *eventv1.StepEvent_ToolApprovalRequest:
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: e.ToolApprovalRequest}})
	case *eventv1.StepEvent_ToolApprovalResponse:
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: e.ToolApprovalResponse}})
	case *eventv1.StepEvent_Custom:
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_Custom{Custom: e.Custom}})
	case *eventv1.StepEvent_StatePatch:
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_StatePatch{StatePatch: e.StatePatch}})
	case *eventv1.StepEvent_Output:
		s.add(&eventv1.Chunk{Event: &eventv1.Chunk_Output{Output: e.Output}})
	}
}

func (s *stepReplay) toolStart(c *eventv1.ToolCallPart, awaitsClient bool) {
	s.named[c.GetToolCallId()] = true
	s.add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{
		ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), Arguments: c.GetArguments(), Dynamic: c.GetDynamic(), AwaitsClient: awaitsClient,
	}}})
}

// toolEnd ends a call. One that has succeeded has started, whether the record names that or
// not.
func (s *stepReplay) toolEnd(r *eventv1.ToolResultPart) {
	for _, c := range s.calls {
		if r.GetSuccess() && c.GetToolCallId() == r.GetToolCallId() && !s.named[c.GetToolCallId()] {
			s.toolStart(c, false)
		}
	}
	s.named[r.GetToolCallId()], s.ended[r.GetToolCallId()] = true, true
	s.add(&eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{
		ToolCallId: r.GetToolCallId(), ToolName: r.GetToolName(), Result: r.GetResult(), Success: r.GetSuccess(), Error: r.GetError(),
	}}})
}

// complete gives what the record has not named.
func (s *stepReplay) complete() {
	for _, r := range s.results {
		if !s.ended[r.GetToolCallId()] {
			s.toolEnd(r)
		}
	}
	for _, c := range s.calls {
		if !s.named[c.GetToolCallId()] {
			s.toolStart(c, false)
		}
	}
}
