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

// story is a message that random runs write, with attempts that are lost, calls that
// others answer, and the runs that go on then.
type story struct {
	t        *rapid.T
	log      []record           // what somebody was told who was there all the time
	messages []*eventv1.Message // what the state service stores
	next     int64
	step     int32
	run      int

	id      string // of the message
	runs    map[string]uistream.Run
	records map[uistream.Step]*eventv1.StepRecord
}

// record is one of the log: a chunk, the news that all after `at` is void, or the end of a
// run.
type record struct {
	sequence int64
	chunk    *eventv1.Chunk
	rewound  bool
	at       int64
	end      *runEnd
}

// runEnd is how a run ended, and the calls that wait for an answer then.
type runEnd struct {
	how      uistream.Ending
	fail     *eventv1.Error // nil: the run has not failed
	run      string
	open     []*openCall
	answered int // so many of them have an answer when somebody looks in between
}

// openCall is a call with how it was answered and what that came to.
type openCall struct {
	uistream.Asked
	answeredHere bool // the one that watches has answered it
	decided      bool // of an approval: somebody has said yes or no
	result       *eventv1.ToolResultPart
}

func (s *story) runID() string { return "run-" + strconv.Itoa(s.run) }

func (s *story) emit(step int32, c *eventv1.Chunk) {
	s.next++
	c.AgentId, c.AgentType, c.Step, c.Timestamp = s.runID(), "demo", step, 1+s.next/10 // several in a millisecond
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

// withoutVoid is what the log has when these records were told, without what is void.
func withoutVoid(told []record) []record {
	var out []record
	for _, r := range told {
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

// drawStoryFrom draws the message that the run begins behind the step.
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

// drawAbandonedCalls has the run begin with the ends of calls of the message before, which have been
// given up, or were allowed and are run now.
func (s *story) drawAbandonedCalls() {
	s.step++
	yes := true
	late := openCall{Asked: uistream.Asked{CallID: "strange-2", Approval: uistream.Approval{ID: "approval-strange-2", Approved: &yes}}}
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

// commit tells that the step is committed, and stores its messages. form is true for a step
// whose reply was asked for as JSON.
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

// drawStep makes a step out of some lost attempts and one that commits. Ids of
// calls differ between attempts, as they do when a model is asked again. Calls that
// somebody has to answer end the run; another one goes on.
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
	if !p.isJSON { // a record has no place for reasoning alone: it comes with the begin of the step
		p.chunks = append(drawEvents(s.t, "before the reply"), p.chunks...)
	}
	p.chunks = append(p.chunks, drawEvents(s.t, "behind the reply")...)
	p.results = slices.Concat(p.results, drawEvents(s.t, "behind the tools"))
	for range rapid.IntRange(0, 2).Draw(s.t, "executors lost in tools") { // the next one shows the step again
		s.emitPlan(p, len(p.chunks))
		s.emitAll(p.results[:rapid.IntRange(0, len(p.results)).Draw(s.t, "told of them")])
		s.rewind(begin)
	}
	s.emitPlan(p, len(p.chunks))
	s.emitAll(p.results)
	s.commit(p.isJSON, p.answer, p.tools)
	if len(p.open) > 0 {
		s.drawDrain(p.open)
	}
}

// emitLostAttempts tells some of the chunks and takes them back, some times.
func (s *story) emitLostAttempts(chunks []func() *eventv1.Chunk, what string) {
	begin := s.last()
	for range rapid.IntRange(0, 2).Draw(s.t, what) {
		s.emitAll(chunks[:rapid.IntRange(0, len(chunks)).Draw(s.t, "told of them")])
		s.rewind(begin)
	}
}

// drawDrain suspends the run, has its calls answered, and makes the next run begin with
// their ends, in any order: a step without a model.
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
	if events := drawEvents(s.t, "in the drain"); len(events) > 0 { // which cannot be taken back
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

// plan is what the model says in one attempt, and what comes of its calls in the step.
type plan struct {
	streams                 bool            // arguments are told as they come
	isJSON                  bool            // it was asked for as JSON: its text is shown to nobody
	dynamic                 map[string]bool // the calls of tools that are known at run time only
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
	if calls == 0 || rapid.Bool().Draw(t, "says") { // a reply that has neither is no message
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

// addCall adds a call of the server's, the client's, one that has to be allowed, or one that
// never begins, since nobody can run it.
func (p *plan) addCall(t *rapid.T, id string, step int32) {
	arguments := rapid.SampledFrom([]string{`{"a":1}`, `{"a":[1,{"b":null}],"c":"<é>"}`, `"not { json"`, `{}`}).Draw(t, "arguments")
	kinds := 2
	if p.streams { // else it would stand where its end was told, and not in the order of the calls
		kinds = 3
	}
	kind := rapid.IntRange(0, kinds).Draw(t, "whose")
	p.dynamic[id] = rapid.Bool().Draw(t, "dynamic")
	if kind == 3 {
		p.addUnstartedCall(t, id, arguments)
		return
	}
	told := arguments
	if p.streams && p.streamArguments(t, id, arguments) && rapid.Bool().Draw(t, "too large to be told again") {
		told = ""
	}
	result := &eventv1.ToolResultPart{ToolCallId: id, ToolName: "add", Success: true, Result: `{"sum":2}`}
	if rapid.IntRange(0, 2).Draw(t, "fails") == 0 {
		result.Success, result.Result, result.Error = false, "", "it has failed"
	}
	p.starts = append(p.starts, func() *eventv1.Chunk {
		return &eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: id, ToolName: "add", Arguments: told, AwaitsClient: kind == 1, Dynamic: p.dynamic[id]}}}
	})
	p.storeCall(id, arguments)
	if kind == 0 {
		p.results = append(p.results, func() *eventv1.Chunk { return toolEnd(result) })
		p.tools.Parts = append(p.tools.Parts, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: result}})
		return
	}
	a := &openCall{Asked: uistream.Asked{CallID: id, ToolName: "add", Input: arguments, Step: step}, result: result, answeredHere: rapid.Bool().Draw(t, "here")}
	if kind == 2 {
		a.ID = "approval-" + id
		a.decide(t)
	} else {
		a.Answer = &uistream.Answer{Result: result.GetResult(), Error: result.GetError(), Success: result.GetSuccess()}
	}
	p.open = append(p.open, a)
}

// storeCall stores the call.
func (p *plan) storeCall(id, arguments string) {
	p.answer.Parts = append(p.answer.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{
		ToolCallId: id, ToolName: "add", Arguments: arguments, Dynamic: p.dynamic[id],
	}}})
}

// addUnstartedCall adds a call of which only the end is told behind what came of its arguments.
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

// streamArguments tells the arguments as they come, whole or not the text that they are in the end.
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

// decide allows the call, refuses it, or has nobody decide in time.
func (a *openCall) decide(t *rapid.T) {
	decision := rapid.SampledFrom([]string{"yes", "no", "nobody"}).Draw(t, "decision")
	yes := decision == "yes"
	a.decided, a.answeredHere = decision != "nobody", a.answeredHere && decision != "nobody"
	if !a.decided {
		a.result.Success, a.result.Result, a.result.Error = false, "", "nobody has decided in time"
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

// pending is the call as the state service has it, answered or not.
func (a *openCall) pending(answered bool) uistream.Asked {
	p := a.Asked
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
