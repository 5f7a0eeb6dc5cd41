package uistream_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// story is a message that random runs write, with lost attempts, calls that clients or humans
// answer, and the runs that continue then.
type story struct {
	t        *rapid.T
	log      []record           // what a client receives that never disconnects
	messages []*eventv1.Message // the stored messages
	next     int64
	step     int32
	run      int

	id      string // of the message
	runs    map[string]uistream.Run
	records map[uistream.Step]*eventv1.StepRecord
}

// record is a record of the log: a chunk, a rewind to `at`, or the end of a run.
type record struct {
	sequence int64
	chunk    *eventv1.Chunk
	rewound  bool
	at       int64
	end      *runEnd
}

// runEnd is how a run ended, and its open calls.
type runEnd struct {
	how      uistream.Ending
	fail     *eventv1.Error // nil unless the run failed
	run      string
	open     []*openCall
	answered int // how many open calls loadPartlyAnswered finds answered
}

// openCall is a call with its answer and result.
type openCall struct {
	uistream.PendingCall
	answeredHere bool // the watching client answers it
	decided      bool // of an approval: it was approved or rejected
	result       *eventv1.ToolResultPart
}

func (s *story) runID() string { return "run-" + strconv.Itoa(s.run) }

func (s *story) emit(step int32, c *eventv1.Chunk) {
	s.next++
	c.AgentId, c.AgentType, c.Step, c.Timestamp = s.runID(), "demo", step, 1+s.next/10 // several per millisecond
	s.log = append(s.log, record{sequence: s.next, chunk: c})
}

func (s *story) rewind(at int64) {
	s.next++
	s.log = append(s.log, record{sequence: s.next, rewound: true, at: at})
}

func (s *story) endRun(e runEnd) {
	s.next++
	e.run = s.runID()
	known := uistream.Run{ID: e.run, MessageID: s.id, AgentType: "demo", CreatedAt: int64(s.run), Failure: e.fail, Interrupted: e.how == uistream.Interrupted}
	if c := s.log[len(s.log)-1].chunk.GetRunCompleted(); c != nil {
		known.Usage = c.GetUsage()
	}
	s.runs[e.run] = known
	s.log = append(s.log, record{sequence: s.next, end: &e})
}

// withoutVoid is the log's content after these records, without void chunks.
func withoutVoid(log []record) []record {
	var out []record
	for _, r := range log {
		if !r.rewound {
			out = append(out, r)
			continue
		}
		for len(out) > 0 && out[len(out)-1].sequence > r.at && out[len(out)-1].end == nil {
			out = out[:len(out)-1]
		}
	}
	return out
}

func (s *story) last() int64 {
	stands := withoutVoid(s.log)
	if len(stands) == 0 {
		return 0
	}
	return stands[len(stands)-1].sequence
}

func drawStory(t *rapid.T) *story { return drawStoryFrom(t, "msg", 1, 0) }

// drawStoryFrom draws a message whose first run begins behind the step.
func drawStoryFrom(t *rapid.T, id string, run int, step int32) *story {
	s := &story{t: t, run: run, step: step, id: id, runs: map[string]uistream.Run{}, records: map[uistream.Step]*eventv1.StepRecord{}}
	s.emit(step, &eventv1.Chunk{Event: &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{MessageId: id}}})
	if rapid.IntRange(0, 3).Draw(t, "instead of an answer") == 0 {
		s.drawAbandonedCalls()
	}
	for range rapid.IntRange(1, 3).Draw(t, "steps") {
		s.drawStep()
	}
	switch rapid.IntRange(0, 4).Draw(t, "ending") {
	case 0:
		s.messages[len(s.messages)-1].Metadata = map[string]string{"interrupted": "interrupt"}
		s.emit(s.step, &eventv1.Chunk{Event: &eventv1.Chunk_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{}}})
		s.endRun(runEnd{how: uistream.Interrupted})
		return s
	case 1:
		s.messages[len(s.messages)-1].Metadata = map[string]string{"interrupted": "abort"}
		e := &eventv1.Error{Error: rapid.SampledFrom([]string{"It broke.", ""}).Draw(t, "why"), Code: "tool_failed"}
		s.emit(s.step, &eventv1.Chunk{Event: &eventv1.Chunk_Error{Error: e}})
		s.endRun(runEnd{fail: e})
		return s
	}
	s.emit(s.step, &eventv1.Chunk{Event: &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{
		FinishReason: rapid.SampledFrom([]string{"stop", "length", "tool-calls", "end_turn", ""}).Draw(t, "reason"),
		Usage:        &eventv1.Usage{PromptTokens: rapid.Int64Range(0, 2).Draw(t, "tokens"), CompletionTokens: 1, TotalTokens: 3},
	}}})
	s.endRun(runEnd{how: uistream.Completed})
	return s
}

// drawAbandonedCalls begins the run with ends of calls of the previous message. One was abandoned;
// the other was approved and runs now.
func (s *story) drawAbandonedCalls() {
	s.step++
	yes := true
	late := openCall{PendingCall: uistream.PendingCall{CallID: "strange-2", Approval: uistream.Approval{ID: "approval-strange-2", Approved: &yes}}}
	results := []*eventv1.ToolResultPart{
		{ToolCallId: "strange-1", ToolName: "add", Error: "client_tool_abandoned"},
		{ToolCallId: "strange-2", ToolName: "add", Success: true, Result: "3", Approval: &eventv1.ApprovalVerdict{ApprovalId: late.ID, Approved: true}},
	}
	chunks := []func() *eventv1.Chunk{
		func() *eventv1.Chunk { return toolEnd(results[0]) },
		late.response,
		func() *eventv1.Chunk {
			return &eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: "strange-2", ToolName: "add", Arguments: "{}"}}}
		},
		func() *eventv1.Chunk { return toolEnd(results[1]) },
	}
	tools := &eventv1.Message{Role: eventv1.Role_ROLE_TOOL}
	for _, r := range results {
		tools.Parts = append(tools.Parts, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: r}})
	}
	s.emitLostAttempts(chunks, "executors lost with strange calls")
	s.emitAll(chunks)
	s.commit(false, tools)
}

// commit emits the commit of the step, and stores its messages. isJSON: the reply was requested as
// JSON.
func (s *story) commit(form bool, messages ...*eventv1.Message) {
	s.recordStep(form)
	s.emit(s.step, &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{}}})
	for _, m := range messages {
		if len(m.GetParts()) > 0 || m.GetRole() == eventv1.Role_ROLE_ASSISTANT {
			m.RunId, m.Step = s.runID(), s.step
			s.messages = append(s.messages, m)
		}
	}
}

// drawStep draws a step with lost attempts and one that commits. Attempts have different call ids,
// like repeated calls of a model. Calls with a pending answer end the run, and another run
// continues.
func (s *story) drawStep() {
	s.emitAll(drawEvents(s.t, "before the step"))
	s.step++
	begin := s.last()
	for attempt := range rapid.IntRange(0, 2).Draw(s.t, "lost attempts") {
		p := s.drawPlan(fmt.Sprintf("%d-%d", s.step, attempt))
		s.emitPlan(p, rapid.IntRange(0, len(p.chunks)).Draw(s.t, "chunks of the attempt"))
		s.rewind(begin)
	}
	p := s.drawPlan(fmt.Sprintf("%d-last", s.step))
	if !p.isJSON { // a record has no place for reasoning alone: it comes when the step begins
		p.chunks = append(drawEvents(s.t, "before the reply"), p.chunks...)
	}
	p.chunks = append(p.chunks, drawEvents(s.t, "behind the reply")...)
	p.results = slices.Concat(p.results, drawEvents(s.t, "behind the tools"))
	for range rapid.IntRange(0, 2).Draw(s.t, "executors lost in tools") { // the next executor repeats the step
		s.emitPlan(p, len(p.chunks))
		s.emitAll(p.results[:rapid.IntRange(0, len(p.results)).Draw(s.t, "how many of them")])
		s.rewind(begin)
	}
	s.emitPlan(p, len(p.chunks))
	s.emitAll(p.results)
	s.commit(p.isJSON, p.answer, p.tools)
	if len(p.open) > 0 {
		s.drawDrain(p.open)
	}
}

// emitLostAttempts emits some of the chunks and rewinds them, several times.
func (s *story) emitLostAttempts(chunks []func() *eventv1.Chunk, what string) {
	begin := s.last()
	for range rapid.IntRange(0, 2).Draw(s.t, what) {
		s.emitAll(chunks[:rapid.IntRange(0, len(chunks)).Draw(s.t, "how many of them")])
		s.rewind(begin)
	}
}

// drawDrain suspends the run and answers its calls. The next run begins with the calls' ends in any
// order: a step without a model.
func (s *story) drawDrain(open []*openCall) {
	how, last := uistream.Paused, &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "client_tool"}}}
	if rapid.IntRange(0, 4).Draw(s.t, "interrupted while it waits") == 0 {
		how, last = uistream.Interrupted, &eventv1.Chunk{Event: &eventv1.Chunk_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{}}}
	}
	s.emit(s.step, last)
	s.endRun(runEnd{how: how, open: open, answered: rapid.IntRange(0, len(open)).Draw(s.t, "answered in between")})
	s.run++
	s.emit(s.step, &eventv1.Chunk{Event: &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{}}})
	s.step++
	var chunks []func() *eventv1.Chunk
	tools := &eventv1.Message{Role: eventv1.Role_ROLE_TOOL}
	for _, a := range rapid.Permutation(open).Draw(s.t, "order") {
		if a.decided {
			chunks = append(chunks, a.response)
		}
		chunks = append(chunks, func() *eventv1.Chunk { return toolEnd(a.result) })
		tools.Parts = append(tools.Parts, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: a.result}})
	}
	if events := drawEvents(s.t, "in the drain"); len(events) > 0 { // these cannot be withdrawn
		chunks = append(chunks, events...)
	} else {
		s.emitLostAttempts(chunks, "executors lost in drains")
	}
	s.emitAll(chunks)
	s.commit(false, tools)
}

func (s *story) emitPlan(p plan, count int) {
	s.emit(s.step, &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}})
	s.emitAll(p.chunks[:count])
}

func (s *story) emitAll(chunks []func() *eventv1.Chunk) {
	for _, c := range chunks {
		s.emit(s.step, c())
	}
}

// plan is the model's output in one attempt, and the results of its calls in the step.
type plan struct {
	streams                 bool            // arguments come in deltas
	isJSON                  bool            // requested as JSON: readers do not see the text
	dynamic                 map[string]bool // calls of dynamic tools
	chunks, starts, results []func() *eventv1.Chunk
	open                    []*openCall
	answer, tools           *eventv1.Message
}

func (s *story) drawPlan(name string) plan {
	t := s.t
	p := plan{answer: &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT}, tools: &eventv1.Message{Role: eventv1.Role_ROLE_TOOL}, dynamic: map[string]bool{}}
	if rapid.Bool().Draw(t, "thinks") {
		p.addThought(rapid.StringN(1, 9, -1).Draw(t, "thought"))
	}
	if p.isJSON = rapid.IntRange(0, 4).Draw(t, "asked for as JSON") == 0; p.isJSON {
		p.answer.Parts = append(p.answer.Parts, textPart(`{"completion":`))
		return p
	}
	calls := rapid.IntRange(0, 3).Draw(t, "calls")
	if calls == 0 || rapid.Bool().Draw(t, "says") { // a reply with neither is no message
		p.addText(rapid.StringN(1, 9, -1).Draw(t, "text"))
	}
	p.streams = rapid.Bool().Draw(t, "arguments come in pieces")
	for i := range calls {
		p.addCall(t, fmt.Sprintf("call-%s-%d", name, i), s.step)
	}
	p.chunks = append(p.chunks, p.starts...)
	for _, a := range p.open {
		if a.ID != "" {
			p.results = append(p.results, a.request)
		}
	}
	return p
}

func (p *plan) addThought(thought string) {
	p.chunks = append(p.chunks,
		func() *eventv1.Chunk {
			return &eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: thought}}}
		},
		func() *eventv1.Chunk {
			return &eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{IsComplete: true}}}
		})
	p.answer.Parts = append(p.answer.Parts, &eventv1.Part{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{Text: thought}}})
}

func (p *plan) addText(text string) {
	for _, r := range text {
		p.chunks = append(p.chunks, func() *eventv1.Chunk {
			return &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: string(r)}}}
		})
	}
	p.answer.Parts = append(p.answer.Parts, textPart(text))
}

func textPart(text string) *eventv1.Part {
	return &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}
}

// addCall adds a call of a server tool, a client tool, a call with an approval, or a call that
// never starts.
func (p *plan) addCall(t *rapid.T, id string, step int32) {
	arguments := rapid.SampledFrom([]string{`{"a":1}`, `{"a":[1,{"b":null}],"c":"<é>"}`, `"not { json"`, `{}`}).Draw(t, "arguments")
	kinds := 2
	if p.streams { // else its place would be that of its end, not that in the order of calls
		kinds = 3
	}
	kind := rapid.IntRange(0, kinds).Draw(t, "whose")
	p.dynamic[id] = rapid.Bool().Draw(t, "dynamic")
	if kind == 3 {
		p.addUnstartedCall(t, id, arguments)
		return
	}
	sent := arguments
	if p.streams && p.streamArguments(t, id, arguments) && rapid.Bool().Draw(t, "too large to be repeated") {
		sent = ""
	}
	result := &eventv1.ToolResultPart{ToolCallId: id, ToolName: "add", Success: true, Result: `{"sum":2}`}
	if rapid.IntRange(0, 2).Draw(t, "fails") == 0 {
		result.Success, result.Result, result.Error = false, "", "it has failed"
	}
	p.starts = append(p.starts, func() *eventv1.Chunk {
		return &eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: id, ToolName: "add", Arguments: sent, AwaitsClient: kind == 1, Dynamic: p.dynamic[id]}}}
	})
	p.storeCall(id, arguments)
	if kind == 0 {
		p.results = append(p.results, func() *eventv1.Chunk { return toolEnd(result) })
		p.tools.Parts = append(p.tools.Parts, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: result}})
		return
	}
	a := &openCall{PendingCall: uistream.PendingCall{CallID: id, ToolName: "add", Input: arguments, Step: step}, result: result, answeredHere: rapid.Bool().Draw(t, "here")}
	if kind == 2 {
		a.ID = "approval-" + id
		a.decide(t)
	} else {
		a.Answer = &uistream.Answer{Result: result.GetResult(), Error: result.GetError(), Success: result.GetSuccess()}
	}
	p.open = append(p.open, a)
}

// storeCall adds the call to the stored reply.
func (p *plan) storeCall(id, arguments string) {
	p.answer.Parts = append(p.answer.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{
		ToolCallId: id, ToolName: "add", Arguments: arguments, Dynamic: p.dynamic[id],
	}}})
}

// addUnstartedCall adds a call without a start: only its arguments and its end are emitted.
func (p *plan) addUnstartedCall(t *rapid.T, id, arguments string) {
	if rapid.Bool().Draw(t, "not JSON") {
		p.addPieces(id, "not ", "{ json")
		p.storeCall(id, `"not { json"`)
	} else {
		p.addPieces(id, arguments)
		p.storeCall(id, arguments)
	}
	result := &eventv1.ToolResultPart{ToolCallId: id, ToolName: "add", Error: "arguments_invalid"}
	p.results = append(p.results, func() *eventv1.Chunk { return toolEnd(result) })
	p.tools.Parts = append(p.tools.Parts, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: result}})
}

// streamArguments emits the arguments in deltas. whole: the deltas equal the final arguments.
func (p *plan) streamArguments(t *rapid.T, id, arguments string) (whole bool) {
	pieces := rapid.SampledFrom([][]string{{}, {arguments[:1], arguments[1:]}, {" ", arguments, "\n"}, {arguments, ` and more`}}).Draw(t, "pieces")
	p.addPieces(id, pieces...)
	return strings.TrimSpace(strings.Join(pieces, "")) == arguments
}

func (p *plan) addPieces(id string, pieces ...string) {
	p.chunks = append(p.chunks, func() *eventv1.Chunk {
		return &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{ToolCallId: id, ToolName: "add", Dynamic: p.dynamic[id]}}}
	})
	for _, piece := range pieces {
		p.chunks = append(p.chunks, func() *eventv1.Chunk {
			return &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: id, Delta: piece}}}
		})
	}
}

// decide approves or rejects the call, or lets it time out.
func (a *openCall) decide(t *rapid.T) {
	decision := rapid.SampledFrom([]string{"yes", "no", "none"}).Draw(t, "decision")
	yes := decision == "yes"
	a.decided, a.answeredHere = decision != "none", a.answeredHere && decision != "none"
	if !a.decided {
		a.result.Success, a.result.Result, a.result.Error = false, "", "the approval timed out"
		return
	}
	a.Approved, a.Reason = &yes, rapid.SampledFrom([]string{"", "because"}).Draw(t, "why")
	a.result.Approval = &eventv1.ApprovalVerdict{ApprovalId: a.ID, Approved: yes, Reason: a.Reason}
	if !yes {
		a.result.Success, a.result.Result, a.result.Error = false, "", "refused: "+a.Reason
	}
}

func (a *openCall) request() *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalRequest{ToolApprovalRequest: &eventv1.ToolApprovalRequest{
		ToolCallId: a.CallID, ToolName: a.ToolName, ApprovalId: a.ID, Input: a.Input,
	}}}
}

func (a *openCall) response() *eventv1.Chunk {
	decision := "reject"
	if *a.Approved {
		decision = "approve"
	}
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolApprovalResponse{ToolApprovalResponse: &eventv1.ToolApprovalResponse{
		ToolCallId: a.CallID, Decision: decision, ApprovalId: a.ID, Reason: a.Reason,
	}}}
}

// pending is the call in the state service, with or without its answer.
func (a *openCall) pending(answered bool) uistream.PendingCall {
	p := a.PendingCall
	if !answered {
		p.Answer, p.Approved, p.Reason = nil, nil, ""
	}
	return p
}

func toolEnd(r *eventv1.ToolResultPart) *eventv1.Chunk {
	return &eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{
		ToolCallId: r.GetToolCallId(), ToolName: r.GetToolName(), Success: r.GetSuccess(), Result: r.GetResult(), Error: r.GetError(),
	}}}
}
