package gatewaytest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// mostSteps is the largest page that ListSteps gives, small so that readers have to ask
// again.
const mostSteps = 2

// ListSteps implements the service.
func (s *State) ListSteps(_ context.Context, r *statev1.ListStepsRequest) (*statev1.ListStepsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	s.asked++
	out := &statev1.ListStepsResponse{Session: proto.CloneOf(found.Session), CurrentRun: proto.CloneOf(found.current())}
	out.Session.Version = found.version()
	seen := map[string]bool{}
	for _, step := range found.steps {
		if step.GetStep() <= r.GetAfterStep() {
			out.Stands = step.GetStep()
			continue
		}
		if r.GetRunId() != "" && step.GetRunId() != r.GetRunId() {
			continue
		}
		if out.HasMore = len(out.GetSteps()) == mostSteps; out.GetHasMore() {
			break
		}
		out.Steps = append(out.Steps, proto.CloneOf(step))
		for _, run := range found.runs {
			if run.GetRunId() == step.GetRunId() && !seen[run.GetRunId()] {
				seen[run.GetRunId()] = true
				listed := proto.CloneOf(run)
				listed.Output = ""
				out.Runs = append(out.Runs, listed)
			}
		}
	}
	return out, nil
}

// Asked tells how often steps were asked for.
func (s *State) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// attempt is an attempt at a step that a test plays.
type attempt struct {
	number int32
	chunks []*eventv1.Chunk
	said   int // how many of them stand in the log
	step   int32
}

// last is the sequence of the last chunk that stands in the log.
func (a *attempt) last() int64 {
	return position.Position{Step: a.step, Attempt: a.number, N: int32(a.said)}.Sequence()
}

// claim is what the state service does when an executor takes the run.
func (r *Run) claim() {
	r.world.State.change(r.tenant, r.Run, func(s *session, run *statev1.Run) {
		s.Claims++
		run.Status, run.StartedAt = statev1.RunStatus_RUN_STATUS_RUNNING, cmp.Or(run.GetStartedAt(), 1)
		first, _ := position.Attempts(s.GetClaims())
		r.now = &attempt{number: first - 1, step: s.GetStepCount() + 1}
		r.stands, r.root = s.GetPosition(), s.GetRootSessionId()
	})
}

// begin begins the next attempt at the step in flight.
func (r *Run) begin(reason string, chunks ...*eventv1.Chunk) {
	if r.now == nil {
		r.claim()
	}
	r.now.number++
	r.now.chunks, r.now.said = nil, 0
	r.write(&streamv2.Attempt{Stands: r.stands, RunId: r.GetRunId(), Reason: reason}, chunks)
}

// write appends chunks to the attempt and to the log.
func (r *Run) write(a *streamv2.Attempt, chunks []*eventv1.Chunk) {
	at := position.Position{Step: r.now.step, Attempt: r.now.number, N: int32(r.now.said + 1)}.Sequence()
	r.now.chunks = append(r.now.chunks, chunks...)
	r.now.said += len(chunks)
	r.world.Stream.append(r.tenant, r.root, r.GetSessionId(), &streamv2.Record{Sequence: at, Chunks: chunks, Attempt: a})
}

// Say writes chunks of a step and gives the sequence of the last one. step_committed commits
// the step; the chunk that says how a run ends waits for the end, and so does a step_committed
// before it.
func (r *Run) Say(step int32, events ...*eventv1.Chunk) int64 {
	for i, c := range events {
		c.AgentId, c.AgentType, c.Step = r.GetRunId(), r.GetAgentType(), step
		if s := c.GetRunStarted(); s != nil {
			s.Turn, s.MessageId = r.GetTurn(), r.GetMessageId()
		}
		if r.now != nil && c.GetStepStarted() != nil && slices.ContainsFunc(r.now.chunks, func(c *eventv1.Chunk) bool { return c.GetToolEnd() != nil }) {
			r.commitStep(nil, nil) // the step that answers calls
		}
		switch {
		case c.GetStepCommitted() != nil && i+1 < len(events) && endsRun(events[i+1]): // it is committed with the end
		case c.GetStepCommitted() != nil:
			r.commitStep(nil, nil)
		case endsRun(c):
			r.ending = c
		case r.now == nil || r.now.number == 0 || r.now.said == 0:
			r.begin(r.lost, c)
			r.lost = ""
		default:
			r.write(nil, []*eventv1.Chunk{c})
		}
	}
	if r.now == nil {
		return 0
	}
	if r.now.said == 0 {
		return r.stands
	}
	return r.now.last()
}

func endsRun(c *eventv1.Chunk) bool {
	return c.GetRunCompleted() != nil || c.GetRunInterrupted() != nil || c.GetRunSuspended() != nil
}

// Rewind begins a new attempt, as an executor does that takes over: it says again what stands
// of the attempt before, up to the sequence.
func (r *Run) Rewind(at int64) {
	kept := int(position.Of(at).N)
	if position.Of(at).Step != r.now.step || at <= r.stands {
		kept = 0
	}
	chunks := r.now.chunks[:min(kept, len(r.now.chunks))]
	if len(chunks) == 0 {
		r.lost, r.now.chunks, r.now.said = "executor_lost", nil, 0 // the attempt begins with its first chunk
		return
	}
	r.begin("executor_lost", chunks...)
}

// commitStep makes the step in flight durable with the messages, and the end of the run with it
// where that is given.
func (r *Run) commitStep(end *ending, messages []*eventv1.Message) {
	if r.now == nil {
		r.claim()
	}
	now, last := r.now, r.now.last()
	if now.said == 0 {
		last = 0
	}
	r.stored = true
	r.store(storedOf(now.chunks), append(r.messages, messages...), end)
	r.messages = nil
	r.bound(now.step, last, end)
}

// storeMessages makes a step durable that was not shown and has no record.
func (r *Run) storeMessages(messages []*eventv1.Message) {
	step := r.now.step
	r.store(&statev1.StoredStep{Messages: messages}, nil, nil)
	r.bound(step, 0, nil)
}

// bound tells the log that the step is durable.
func (r *Run) bound(step int32, last int64, end *ending) {
	at := position.Committed(step)
	b := &streamv2.Boundary{Last: last, StepCommitted: r.stamped(step, &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{CheckpointId: fmt.Sprintf("cp-%d", step)}}})}
	if end != nil {
		at = position.Ended(step)
		b.RunEnded, b.End = r.stamped(step, end.chunk), end.terminal
	}
	if !r.silent {
		r.world.Stream.append(r.tenant, r.root, r.GetSessionId(), &streamv2.Record{Sequence: at, Boundary: b})
	}
	r.now, r.stands = &attempt{step: step + 1}, at
}

func (r *Run) stamped(step int32, c *eventv1.Chunk) *eventv1.Chunk {
	c.AgentId, c.AgentType, c.Step = r.GetRunId(), r.GetAgentType(), step
	return c
}

// store stores a step as the state service does.
func (r *Run) store(step *statev1.StoredStep, messages []*eventv1.Message, end *ending) {
	r.world.State.change(r.tenant, r.Run, func(s *session, run *statev1.Run) {
		step.Step, step.RunId = s.GetStepCount()+1, run.GetRunId()
		step.CheckpointId = fmt.Sprintf("cp-%d", step.GetStep())
		if len(s.steps) > 0 {
			step.Follows = s.steps[len(s.steps)-1].GetStep()
		}
		step.BeginsRun = !slices.ContainsFunc(s.steps, func(t *statev1.StoredStep) bool { return t.GetRunId() == run.GetRunId() })
		s.steps = append(s.steps, proto.CloneOf(step))
		s.StepCount, s.Claims, s.Position, s.CheckpointId = step.GetStep(), 0, position.Committed(step.GetStep()), step.GetCheckpointId()
		run.StepCount++
		s.commit(run, messages)
		if end != nil {
			run.FinishStep = step.GetStep()
			s.finish(run, end, position.Ended(step.GetStep()))
		}
	})
}

// endOutside ends the run outside of a step.
func (r *Run) endOutside(end *ending) {
	var at int64
	r.world.State.change(r.tenant, r.Run, func(s *session, run *statev1.Run) {
		s.Claims++
		at = position.OutsideStep(s.GetStepCount()+1, s.GetClaims())
		s.finish(run, end, at)
	})
	last := r.now.last()
	if r.now.said == 0 {
		last = r.stands
	}
	if !r.silent {
		b := &streamv2.Boundary{Last: last, RunEnded: r.stamped(r.now.step-1, end.chunk), End: end.terminal}
		r.world.Stream.append(r.tenant, r.root, r.GetSessionId(), &streamv2.Record{Sequence: at, Boundary: b})
	}
	r.now, r.stands = nil, at
}

// stepsOf splits messages by their steps.
func stepsOf(messages []*eventv1.Message) [][]*eventv1.Message {
	var steps [][]*eventv1.Message
	for i, m := range messages {
		if i == 0 || m.GetStep() != messages[i-1].GetStep() {
			steps = append(steps, nil)
		}
		steps[len(steps)-1] = append(steps[len(steps)-1], m)
	}
	return steps
}

// storedOf is the step that was shown as the chunks.
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

// stepBuilder makes a stored step out of what was shown of it.
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

// part adds a part of the reply, and the reply's place in the record.
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

// Record replaces what a stored step showed beside its messages.
func (r *Run) Record(step int32, record *eventv1.StepRecord) {
	r.world.State.change(r.tenant, r.Run, func(s *session, _ *statev1.Run) {
		for _, stored := range s.steps {
			if stored.GetStep() == step {
				stored.Record = record
			}
		}
	})
}
