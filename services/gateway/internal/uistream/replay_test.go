package uistream_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// run is a run of random steps with attempts that are lost, as its log was told
// to somebody who was there all the time, and as it stands in the end.
type run struct {
	told    []record
	stands  []*eventv1.Message // what the state service stores
	records []record           // what the log holds in the end
	next    int64
	step    int32
}

// record is a chunk, or, without one, the news that all after `at` is void.
type record struct {
	sequence int64
	chunk    *eventv1.Chunk
	at       int64
}

func (r *run) say(step int32, c *eventv1.Chunk) {
	r.next++
	c.AgentId, c.Step = "run-1", step
	rec := record{sequence: r.next, chunk: c}
	r.told, r.records = append(r.told, rec), append(r.records, rec)
}

func (r *run) rewind(at int64) {
	r.next++
	r.told = append(r.told, record{sequence: r.next, at: at})
	for len(r.records) > 0 && r.records[len(r.records)-1].sequence > at {
		r.records = r.records[:len(r.records)-1]
	}
}

func (r *run) last() int64 {
	if len(r.records) == 0 {
		return 0
	}
	return r.records[len(r.records)-1].sequence
}

func drawRun(t *rapid.T) *run {
	r := &run{}
	r.say(0, &eventv1.Chunk{Event: &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{MessageId: "msg"}}})
	for range rapid.IntRange(1, 3).Draw(t, "steps") {
		r.drawStep(t)
	}
	return r
}

// drawDrain makes a step without a model: a run goes on with the ends of calls that the
// one before it has left open.
func (r *run) drawDrain(t *rapid.T, results []func() *eventv1.Chunk, tools *eventv1.Message) {
	r.say(r.step, &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "client_tool"}}})
	r.say(r.step, &eventv1.Chunk{Event: &eventv1.Chunk_RunResumed{RunResumed: &eventv1.RunResumed{}}})
	r.step++
	begin := r.last()
	for range rapid.IntRange(0, 2).Draw(t, "executors lost in drains") {
		r.sayChunks(r.step, results[:rapid.IntRange(0, len(results)).Draw(t, "ends")])
		r.rewind(begin)
	}
	r.sayChunks(r.step, results)
	r.commit(tools)
}

// commit tells that the step is committed, and stores its messages.
func (r *run) commit(messages ...*eventv1.Message) {
	r.say(r.step, &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{}}})
	for _, m := range messages {
		if len(m.GetParts()) > 0 || m.GetRole() == eventv1.Role_ROLE_ASSISTANT {
			m.RunId, m.Step = "run-1", r.step
			r.stands = append(r.stands, m)
		}
	}
}

// drawStep makes a step out of some lost attempts and one that commits. Ids of
// calls differ between attempts, as they do when a model is asked again.
func (r *run) drawStep(t *rapid.T) {
	r.step++
	begin, step := r.last(), r.step
	for attempt := range rapid.IntRange(0, 2).Draw(t, "lost attempts") {
		plan := drawPlan(t, fmt.Sprintf("%d-%d", step, attempt))
		r.sayPlan(step, plan, rapid.IntRange(0, len(plan.chunks)).Draw(t, "chunks of the attempt"))
		r.rewind(begin)
	}
	plan := drawPlan(t, fmt.Sprintf("%d-last", step))
	r.sayPlan(step, plan, len(plan.chunks))
	planned := r.last()
	for range rapid.IntRange(0, 2).Draw(t, "executors lost in tools") {
		r.sayChunks(step, plan.results[:rapid.IntRange(0, len(plan.results)).Draw(t, "results")])
		r.rewind(planned)
	}
	kept := rapid.IntRange(0, len(plan.results)).Draw(t, "calls that end in the step")
	r.sayChunks(step, plan.results[:kept])
	open := &eventv1.Message{Role: eventv1.Role_ROLE_TOOL, Parts: plan.tools.GetParts()[kept:]}
	plan.tools.Parts = plan.tools.GetParts()[:kept]
	r.commit(plan.answer, plan.tools)
	if kept < len(plan.results) {
		r.drawDrain(t, plan.results[kept:], open)
	}
}

func (r *run) sayPlan(step int32, p plan, count int) {
	r.say(step, &eventv1.Chunk{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}})
	r.sayChunks(step, p.chunks[:count])
}

func (r *run) sayChunks(step int32, chunks []func() *eventv1.Chunk) {
	for _, c := range chunks {
		r.say(step, c())
	}
}

// plan is what the model says in one attempt, and how its calls end.
type plan struct {
	chunks, results []func() *eventv1.Chunk
	answer, tools   *eventv1.Message
}

func drawPlan(t *rapid.T, name string) plan {
	p := plan{answer: &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT}, tools: &eventv1.Message{Role: eventv1.Role_ROLE_TOOL}}
	if rapid.Bool().Draw(t, "thinks") {
		p.think(rapid.StringN(1, 9, -1).Draw(t, "thought"))
	}
	if rapid.Bool().Draw(t, "says") {
		p.say(rapid.StringN(1, 9, -1).Draw(t, "text"))
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "calls") {
		p.call(fmt.Sprintf("call-%s-%d", name, i), rapid.Bool().Draw(t, "ends well"))
	}
	return p
}

func (p *plan) think(thought string) {
	p.chunks = append(p.chunks,
		func() *eventv1.Chunk {
			return &eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: thought}}}
		},
		func() *eventv1.Chunk {
			return &eventv1.Chunk{Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{IsComplete: true}}}
		})
	p.answer.Parts = append(p.answer.Parts, &eventv1.Part{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{Text: thought}}})
}

func (p *plan) say(text string) {
	for _, r := range text {
		p.chunks = append(p.chunks, func() *eventv1.Chunk {
			return &eventv1.Chunk{Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: string(r)}}}
		})
	}
	p.answer.Parts = append(p.answer.Parts, &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}})
}

func (p *plan) call(id string, well bool) {
	p.chunks = append(p.chunks, func() *eventv1.Chunk {
		return &eventv1.Chunk{Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: id, ToolName: "add", Arguments: `{"a":1}`}}}
	})
	result := &eventv1.ToolResultPart{ToolCallId: id, ToolName: "add", Success: well, Result: "2"}
	if !well {
		result.Result, result.Error = "", "no"
	}
	p.results = append(p.results, func() *eventv1.Chunk {
		return &eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{
			ToolCallId: id, ToolName: "add", Success: well, Result: result.GetResult(), Error: result.GetError()}}}
	})
	p.answer.Parts = append(p.answer.Parts, &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id, ToolName: "add", Arguments: `{"a":1}`}}})
	p.tools.Parts = append(p.tools.Parts, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: result}})
}

// watch gives the client what the translator makes of the run's live records.
func (r *run) watch(t *rapid.T) *client {
	c, tr := &client{}, uistream.New("msg", uistream.Newest)
	take(t, c, tr.Start())
	for i, rec := range r.told {
		if rec.chunk != nil {
			take(t, c, tr.Chunk(rec.sequence, rec.chunk))
			continue
		}
		parts, again, ok := tr.Rewound(rec.at)
		if !ok {
			t.Fatalf("rewound to %d: the client should be able to take it back", rec.at)
		}
		take(t, c, parts)
		if again == 0 {
			continue
		}
		for _, old := range r.told[:i] {
			if old.chunk != nil && old.sequence > again && old.sequence <= rec.at {
				take(t, c, tr.Chunk(old.sequence, old.chunk))
			}
		}
	}
	take(t, c, tr.Finish(uistream.Completed))
	return c
}

func take(t *rapid.T, c *client, parts []uistream.Part) {
	t.Helper()
	for _, p := range parts {
		text, err := p.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.take(text); err != nil {
			t.Fatalf("the client refuses %s: %v", text, err)
		}
	}
}

func shown(t *rapid.T, m uistream.UIMessage) string {
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWhoSawLostAttemptsHasTheMessageOfWhoDidNot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		live := shown(t, r.watch(t).message())
		replay := &run{told: r.records}
		if got := shown(t, replay.watch(t).message()); got != live {
			t.Fatalf("live    %s\nreplay  %s", live, got)
		}
	})
}

func TestTheStoredConversationIsTheMessageThatTheStreamBuilt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		stored := uistream.Conversation(r.stands, map[string]string{"run-1": "msg"})
		if len(stored) != 1 {
			t.Fatalf("got %d messages, want 1", len(stored))
		}
		if got, want := shown(t, stored[0]), shown(t, r.watch(t).message()); got != want {
			t.Fatalf("stored  %s\nstream  %s", got, want)
		}
		c, tr := &client{}, uistream.New("msg", uistream.Newest)
		take(t, c, append(tr.Replay(stored[0]), tr.Finish(uistream.Completed)...))
		if got, want := shown(t, c.message()), shown(t, stored[0]); got != want {
			t.Fatalf("replayed from the store  %s\nstored  %s", got, want)
		}
	})
}

func TestAMessageThatIsContinuedIsTheOneThatAClientHas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		c, tr := &client{}, uistream.New("msg", uistream.Newest)
		take(t, c, tr.Start())
		var chunks []uistream.Told
		for _, rec := range r.records {
			take(t, c, tr.Chunk(rec.sequence, rec.chunk))
			chunks = append(chunks, uistream.Told{Sequence: rec.sequence, Chunk: rec.chunk})
			from := uistream.UIMessage{ID: "msg", Role: "assistant"}
			if got, want := shown(t, uistream.Continue(from, chunks)), shown(t, c.message()); got != want {
				t.Fatalf("after %d chunks\ngot  %s\nwant %s", len(chunks), got, want)
			}
		}
		for i, rec := range r.records { // from each step that is stored
			if rec.chunk.GetStepCommitted() == nil {
				continue
			}
			var stored []*eventv1.Message
			for _, m := range r.stands {
				if m.GetStep() <= rec.chunk.GetStep() {
					stored = append(stored, m)
				}
			}
			from := uistream.Conversation(stored, map[string]string{"run-1": "msg"})[0]
			before := shown(t, from)
			if got, want := shown(t, uistream.Continue(from, chunks[i:])), shown(t, c.message()); got != want {
				t.Fatalf("from step %d\ngot  %s\nwant %s", rec.chunk.GetStep(), got, want)
			}
			if shown(t, from) != before {
				t.Fatalf("the message was changed: %s", shown(t, from))
			}
		}
	})
}

func TestWhatHasNotEndedIsStreaming(t *testing.T) {
	t.Parallel()
	stored := uistream.UIMessage{ID: "msg", Role: "assistant", Parts: []uistream.UIPart{
		{Type: "step-start"}, {Type: "tool-ask", ToolCallID: "c1", State: "input-available", Input: json.RawMessage(`{"q":1}`)},
	}}
	var told []uistream.Told
	for _, c := range []*eventv1.Chunk{
		{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: "c1", ToolName: "ask", Success: true, Result: "2"}}},
		{Step: 2, Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}},
		{Step: 2, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "void"}}},
		{Step: 2, Event: &eventv1.Chunk_StepDiscarded{StepDiscarded: &eventv1.StepDiscarded{}}},
		{Step: 2, Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}},
		{Step: 2, Event: &eventv1.Chunk_Custom{Custom: &eventv1.Custom{EventName: "progress", Data: "5"}}},
		{Step: 2, Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{ToolCallId: "c2", ToolName: "add"}}},
		{Step: 2, Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: "c2", Delta: `{"a`}}},
		{Step: 2, Event: &eventv1.Chunk_ToolArgStreamDelta{ToolArgStreamDelta: &eventv1.ToolArgStreamDelta{ToolCallId: "c2", Delta: `":1`}}},
		{Step: 2, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "One "}}},
		{Step: 2, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "two"}}},
	} {
		told = append(told, uistream.Told{Sequence: int64(len(told) + 1), Chunk: c})
	}
	got, err := json.Marshal(uistream.Continue(stored, told).Parts)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"type":"step-start"},{"type":"tool-ask","state":"output-available","toolCallId":"c1","input":{"q":1},"output":2},` +
		`{"type":"step-start"},{"type":"data-progress","data":5},{"type":"tool-add","state":"input-streaming","toolCallId":"c2","inputText":"{\"a\":1"},` +
		`{"type":"text","text":"One two","state":"streaming"}]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestARunThatContinuesGoesOnInItsMessage(t *testing.T) {
	t.Parallel()
	says := func(run string, step int32, text string) *eventv1.Message {
		return &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT, RunId: run, Step: step, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}}}
	}
	got := uistream.Conversation([]*eventv1.Message{says("r1", 1, "one"), says("r2", 2, "two")}, map[string]string{"r1": "msg", "r2": "msg"})
	if len(got) != 1 || got[0].ID != "msg" || len(got[0].Parts) != 4 {
		t.Errorf("got %+v, want one message of two steps", got)
	}
}

func TestHiddenAndContextMessagesAreNotShown(t *testing.T) {
	t.Parallel()
	text := func(s string) []*eventv1.Part {
		return []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: s}}}}
	}
	got := uistream.Conversation([]*eventv1.Message{
		{Id: "u1", Role: eventv1.Role_ROLE_USER, RunId: "r1", Parts: append(text("hi"),
			&eventv1.Part{Part: &eventv1.Part_File{File: &eventv1.FilePart{MediaType: "image/png", Url: "https://example.com/a.png"}}})},
		{Id: "c1", Role: eventv1.Role_ROLE_CONTEXT, RunId: "r1", Parts: text("a fact")},
		{Id: "h1", Role: eventv1.Role_ROLE_ASSISTANT, Hidden: true, RunId: "r1", Parts: text("hidden")},
		{Id: "a1", Role: eventv1.Role_ROLE_ASSISTANT, RunId: "r1", Step: 1, Parts: text("hello")},
		{Id: "u2", Role: eventv1.Role_ROLE_USER, RunId: "r2", Parts: text("again")},
		{Id: "a2", Role: eventv1.Role_ROLE_ASSISTANT, RunId: "r2", Step: 2, Parts: text("hello again")},
	}, map[string]string{"r1": "msg-r1"})
	text2, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"id":"u1","role":"user","parts":[{"type":"text","text":"hi"},{"type":"file","mediaType":"image/png","url":"https://example.com/a.png"}]},` +
		`{"id":"msg-r1","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"hello","state":"done"}]},` +
		`{"id":"u2","role":"user","parts":[{"type":"text","text":"again"}]},` +
		`{"id":"a2","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"hello again","state":"done"}]}]`
	if string(text2) != want {
		t.Errorf("got  %s\nwant %s", text2, want)
	}
}
