package uistream_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// seen is the client's state as text. Before version 7, clients do not receive the decision on an
// approval, and some keep texts of inputs.
func (c *client) seen(t *rapid.T) string {
	parts := slices.Clone(c.parts)
	for i, p := range parts {
		q := *p
		if c.major < 7 {
			if q.Input == nil && q.State == "output-error" && json.Valid([]byte(q.RawInput)) { // the error of an input
				q.Input = json.RawMessage(q.RawInput)
			}
			q.RawInput = ""
		}
		if c.major < 7 && q.Approval != nil {
			q.Approval = &uistream.Approval{ID: q.Approval.ID}
		}
		parts[i] = &q
	}
	return text(t, parts) + text(t, c.metadata)
}

func text(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func shown(t *rapid.T, m uistream.UIMessage) string { return text(t, m) }

var majors = []uistream.Major{5, 6, 7}

func TestAClientThatReconnectsAnywhereHasTheSameMessage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		for _, major := range majors {
			want := s.watch(t, major, never).seen(t)
			for _, often := range []int{2, 9, 40} {
				dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "cuts"), 0)) //nolint:gosec // drawn
				if got := s.watch(t, major, func() bool { return dice.IntN(often) == 0 }).seen(t); got != want {
					t.Fatalf("version %d, cut at every %dth part\ngot  %s\nwant %s", major, often, got, want)
				}
			}
			if got := s.replayed(t, major).seen(t); got != want {
				t.Fatalf("version %d\nreplay %s\nlive   %s", major, got, want)
			}
		}
	})
}

// replayed is a client that connects at the end.
func (s *story) replayed(t *rapid.T, major uistream.Major) *client {
	w := &watcher{t: t, s: s, c: newClient(major), cut: never}
	w.reload(len(s.log) - 1)
	return w.c
}

// dropUndecided drops undecided approvals of ended calls: the state service does not store them.
func (c *client) dropUndecided() *client {
	for _, p := range c.parts {
		p.dropUndecided(c.major)
	}
	return c
}

func (p *part) dropUndecided(major uistream.Major) {
	if p.Approval != nil && p.State == "output-error" && (major < 7 || p.Approval.Approved == nil) {
		p.Approval = nil
	}
}

func (s *story) stored(upTo int32) uistream.UIMessage {
	stored := uistream.Stored{Runs: maps.Clone(s.runs), Records: s.records}
	if upTo < s.step {
		for id, run := range stored.Runs {
			stored.Runs[id] = uistream.Run{ID: run.ID, MessageID: run.MessageID, AgentType: run.AgentType, CreatedAt: run.CreatedAt} // before its end
		}
	}
	for _, m := range s.messages {
		if m.GetStep() <= upTo {
			stored.Messages = append(stored.Messages, m)
		}
	}
	return stored.Conversation()[0]
}

func TestTheStoredConversationIsTheMessageThatTheStreamBuilt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		stored := s.stored(s.step)
		if got, want := shown(t, stored), shown(t, s.watch(t, 7, never).dropUndecided().message()); got != want {
			t.Fatalf("stored  %s\nstream  %s", got, want)
		}
		for _, major := range majors {
			c, tr := newClient(major), uistream.New("msg", major)
			tr.SetMetadata(s.runs[s.runID()].Metadata())
			w := &watcher{t: t, s: s, c: c, tr: tr}
			w.giveAll(append(tr.Replay(stored), s.log[len(s.log)-1].end.parts(tr)...))
			if got, want := c.dropUndecided().seen(t), s.watch(t, major, never).dropUndecided().seen(t); got != want {
				t.Fatalf("version %d\nreplayed from the store  %s\nlive                     %s", major, got, want)
			}
			for _, p := range s.messages {
				for _, q := range p.GetParts() {
					if id := q.GetToolResult().GetToolCallId(); id != "" && q.GetToolResult().GetApproval() == nil && slices.Contains(c.ran, id) {
						t.Fatalf("version %d: the client was asked to run %s, which has ended", major, id)
					}
				}
			}
		}
	})
}

func TestAMessageThatIsContinuedIsTheOneThatAClientHas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		tr := uistream.New("msg", uistream.DefaultMajor)
		w := &watcher{t: t, s: s, c: newClient(7), tr: tr}
		w.giveAll(tr.Start())
		var chunks []uistream.NumberedChunk
		for _, r := range withoutVoid(s.log) {
			if r.chunk == nil {
				continue
			}
			w.giveAll(tr.Chunk(r.sequence, r.chunk))
			chunks = append(chunks, uistream.NumberedChunk{Sequence: r.sequence, Chunk: r.chunk})
			from := uistream.UIMessage{ID: "msg", Role: "assistant"}
			if got, want := shown(t, uistream.Continue(from, chunks)), shown(t, w.c.whole()); got != want {
				t.Fatalf("after %d chunks\ngot  %s\nwant %s", len(chunks), got, want)
			}
		}
		for i, c := range chunks { // from each stored step
			if c.Chunk.GetStepCommitted() == nil {
				continue
			}
			from := s.stored(c.Chunk.GetStep())
			from.Metadata = nil
			asked := []uistream.UIMessage{from}
			uistream.ShowPending(asked, s.openAfter(c.Sequence))
			before := shown(t, from)
			got, want := shown(t, uistream.Continue(asked[0], chunks[i:])), shown(t, w.c.dropUndecided().whole())
			if mergeEmptySteps(got) != mergeEmptySteps(want) {
				t.Fatalf("from step %d\ngot  %s\nwant %s", c.Chunk.GetStep(), got, want)
			}
			if shown(t, from) != before {
				t.Fatalf("the message was changed: %s", shown(t, from))
			}
		}
	})
}

// mergeEmptySteps leaves one of several step-starts in a row. A step may only replace a data part of an earlier one. A
// stored message then ends with the step-start, as after a step that has shown nothing, and the next step uses it again.
func mergeEmptySteps(message string) string {
	const start = `{"type":"step-start"}`
	for strings.Contains(message, start+","+start) {
		message = strings.ReplaceAll(message, start+","+start, start)
	}
	return message
}

// whole is the message as the gateway builds it: an incomplete input is text, and an ended call has
// no undecided approval.
func (c *client) whole() uistream.UIMessage {
	m := c.message()
	for i := range m.Parts {
		p := part{UIPart: m.Parts[i]}
		p.dropUndecided(c.major)
		m.Parts[i] = p.UIPart
		if m.Parts[i].State == "input-streaming" {
			m.Parts[i].Input, m.Parts[i].InputText = nil, c.parts[i].RawInput
		}
	}
	return m
}

// openAfter are the approvals requested in the step committed at the sequence.
func (s *story) openAfter(sequence int64) []uistream.PendingCall {
	for _, r := range s.log {
		if r.sequence > sequence && r.end != nil {
			return r.end.pending(0)
		}
	}
	return nil
}

func TestIncompletePartsAreStreaming(t *testing.T) {
	t.Parallel()
	stored := uistream.UIMessage{ID: "msg", Role: "assistant", Parts: []uistream.UIPart{
		{Type: "step-start"}, {Type: "tool-ask", ToolCallID: "c1", State: "input-available", Input: json.RawMessage(`{"q":1}`)},
	}}
	var chunks []uistream.NumberedChunk
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
		chunks = append(chunks, uistream.NumberedChunk{Sequence: int64(len(chunks) + 1), Chunk: c})
	}
	got, err := json.Marshal(uistream.Continue(stored, chunks).Parts)
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

// conversationOf builds the messages from stored messages and the message ids of their runs.
func conversationOf(stored []*eventv1.Message, messageIDs map[string]string) []uistream.UIMessage {
	s := uistream.Stored{Messages: stored, Runs: map[string]uistream.Run{}}
	for run, id := range messageIDs {
		s.Runs[run] = uistream.Run{MessageID: id}
	}
	return s.Conversation()
}

func TestARunThatContinuesExtendsItsMessage(t *testing.T) {
	t.Parallel()
	says := func(run string, step int32, text string) *eventv1.Message {
		return &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT, RunId: run, Step: step, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}}}
	}
	got := conversationOf([]*eventv1.Message{says("r1", 1, "one"), says("r2", 2, "two")}, map[string]string{"r1": "msg", "r2": "msg"})
	if len(got) != 1 || got[0].ID != "msg" || len(got[0].Parts) != 4 {
		t.Errorf("got %+v, want one message of two steps", got)
	}
}

func TestHiddenAndContextMessagesAreNotShown(t *testing.T) {
	t.Parallel()
	textParts := func(s string) []*eventv1.Part {
		return []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: s}}}}
	}
	got := conversationOf([]*eventv1.Message{
		{Id: "u1", Role: eventv1.Role_ROLE_USER, RunId: "r1", Parts: append(textParts("hi"),
			&eventv1.Part{Part: &eventv1.Part_File{File: &eventv1.FilePart{MediaType: "image/png", Url: "https://example.com/a.png"}}})},
		{Id: "c1", Role: eventv1.Role_ROLE_CONTEXT, RunId: "r1", Parts: textParts("a fact")},
		{Id: "h1", Role: eventv1.Role_ROLE_ASSISTANT, Hidden: true, RunId: "r1", Parts: textParts("hidden")},
		{Id: "a1", Role: eventv1.Role_ROLE_ASSISTANT, RunId: "r1", Step: 1, Parts: textParts("hello")},
		{Id: "u2", Role: eventv1.Role_ROLE_USER, RunId: "r2", Parts: textParts("again")},
		{Id: "a2", Role: eventv1.Role_ROLE_ASSISTANT, RunId: "r2", Step: 2, Parts: textParts("hello again")},
	}, map[string]string{"r1": "msg-r1"})
	text2, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"id":"u1","role":"user","parts":[{"type":"text","text":"hi"},{"type":"file","mediaType":"image/png","url":"https://example.com/a.png"}]},` +
		`{"id":"msg-r1","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"hello","state":"done"}],"metadata":{"runId":"r1"}},` +
		`{"id":"u2","role":"user","parts":[{"type":"text","text":"again"}]},` +
		`{"id":"a2","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"hello again","state":"done"}],"metadata":{"runId":"r2"}}]`
	if string(text2) != want {
		t.Errorf("got  %s\nwant %s", text2, want)
	}
}

func called(id string) *eventv1.Part {
	return &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: id, ToolName: "ask", Arguments: `{"q":1}`}}}
}

func failed(id, why string) *eventv1.Part {
	return &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: &eventv1.ToolResultPart{ToolCallId: id, ToolName: "ask", Error: why}}}
}

// twoMessages has calls with results in a later message.
func twoMessages() []*eventv1.Message {
	return []*eventv1.Message{
		{Role: eventv1.Role_ROLE_ASSISTANT, RunId: "r1", Step: 1, Parts: []*eventv1.Part{called("c1"), called("c2"), called("c3")}},
		{Role: eventv1.Role_ROLE_TOOL, RunId: "r1", Step: 1, Parts: []*eventv1.Part{failed("c1", "no")}},
		{Id: "u2", Role: eventv1.Role_ROLE_USER, RunId: "r2"},
		{Role: eventv1.Role_ROLE_TOOL, RunId: "r2", Step: 2, Parts: []*eventv1.Part{failed("c1", "too late"), failed("c2", "abandoned"), failed("c9", "of no call")}},
	}
}

// calls lists the calls of the messages.
func calls(messages []uistream.UIMessage) string {
	var words []string
	for _, m := range messages {
		words = append(words, m.ID+":")
		for _, p := range m.Parts {
			if p.ToolCallID != "" {
				words = append(words, p.ToolCallID, p.State, p.ErrorText)
			}
		}
	}
	return strings.Join(words, " ")
}

func TestAResultEndsTheOpenCallOfAnEarlierMessage(t *testing.T) {
	t.Parallel()
	ids := map[string]string{"r1": "msg-1", "r2": "msg-2"}
	got := conversationOf(twoMessages(), ids)
	want := "msg-1: c1 output-error no c2 output-error abandoned c3 input-available  u2: msg-2:"
	if calls(got) != want {
		t.Errorf("got  %s\nwant %s", calls(got), want)
	}
	page := conversationOf(twoMessages()[:2], ids)
	for _, m := range twoMessages()[2:] {
		uistream.ApplyResults(page, m)
	}
	if want := "msg-1: c1 output-error no c2 output-error abandoned c3 input-available "; calls(page) != want || !uistream.HasOpenCalls(page) {
		t.Errorf("got  %s\nwant %s", calls(page), want)
	}
}

func TestTheEndOfASubAgentBelongsToTheMessageOfItsCall(t *testing.T) {
	t.Parallel()
	page := []uistream.UIMessage{{ID: "msg-1", Role: "assistant", Parts: []uistream.UIPart{
		{Type: "tool-subagent__reader", ToolCallID: "c2", State: "input-available"},
		{Type: "data-subagent", ID: "c2", Data: json.RawMessage(`{"toolCallId":"c2","sessionId":"below","agentType":"reader","status":"running"}`)},
	}}}
	for _, m := range twoMessages()[2:] {
		uistream.ApplyResults(page, m)
	}
	if got, want := string(page[0].Parts[1].Data), `{"toolCallId":"c2","sessionId":"below","agentType":"reader","status":"failed"}`; got != want {
		t.Errorf("the message of the call has %s, want %s", got, want)
	}
	tr := uistream.New("msg-2", 6)
	end := &eventv1.Chunk{Event: &eventv1.Chunk_SubagentEnd{SubagentEnd: &eventv1.SubagentEnd{ToolCallId: "c2", SubSessionId: "below", SubAgentType: "reader"}}}
	if parts := tr.Chunk(1, end); len(parts) > 0 {
		t.Errorf("the next message has %+v, want nothing", parts)
	}
}

func TestARunWithOnlyResultsOfEarlierCallsHasNoMessage(t *testing.T) {
	t.Parallel()
	ids := map[string]string{"r1": "msg-1", "r2": "msg-2", "r3": "msg-3"}
	two := twoMessages()
	edited := []*eventv1.Message{two[0], two[1], two[3], {Id: "u3", Role: eventv1.Role_ROLE_USER, RunId: "r3"}}
	got := conversationOf(edited, ids) // u2 was removed, but the end of c2 stays
	if want := "msg-1: c1 output-error no c2 output-error abandoned c3 input-available  u3:"; calls(got) != want {
		t.Errorf("got  %s\nwant %s", calls(got), want)
	}
	for name, goesOn := range map[string]*eventv1.Message{
		"it wrote something": {Role: eventv1.Role_ROLE_ASSISTANT, RunId: "r2", Step: 3},
		"it may still write": {Role: eventv1.Role_ROLE_TOOL, RunId: "r2"},
	} {
		got := conversationOf(append(append(twoMessages(), goesOn), edited[3]), ids)
		if want := "msg-1: c1 output-error no c2 output-error abandoned c3 input-available  u2: msg-2: u3:"; calls(got) != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, calls(got), want)
		}
	}
}

func TestAnAbandonedApprovalIsNotRequested(t *testing.T) {
	t.Parallel()
	messages := conversationOf(twoMessages()[:2], nil)
	uistream.ShowPending(messages, []uistream.PendingCall{{CallID: "c2", Approval: uistream.Approval{ID: "a2"}}, {CallID: "c3", Approval: uistream.Approval{ID: "a3"}}})
	gone := &uistream.Answer{Error: "abandoned"}
	uistream.ShowPending(messages, []uistream.PendingCall{{CallID: "c2", Approval: uistream.Approval{ID: "a2"}, Answer: gone}})
	p := messages[0].Parts[2]
	if p.State != "output-error" || p.ErrorText != "abandoned" || p.Approval != nil {
		t.Errorf("got %+v", p)
	}
	if p := messages[0].Parts[3]; p.State != "approval-requested" || p.Approval == nil {
		t.Errorf("the other one is %+v", p)
	}
}

func TestALaterRunEndsCallsOfAMessageBeforeItsFirstStep(t *testing.T) {
	t.Parallel()
	end := func(id string) *eventv1.Chunk {
		return &eventv1.Chunk{Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: id, ToolName: "ask", Error: "abandoned"}}}
	}
	before := conversationOf(twoMessages()[:2], map[string]string{"r1": "msg-1"})
	var chunks []uistream.NumberedChunk
	for i, c := range []*eventv1.Chunk{
		{Event: &eventv1.Chunk_RunStarted{RunStarted: &eventv1.RunStarted{}}}, end("c1"), end("c2"), end("c9"),
		{Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}}, end("c3"),
	} {
		chunks = append(chunks, uistream.NumberedChunk{Sequence: int64(i + 1), Chunk: c})
	}
	got := []uistream.UIMessage{uistream.EndCalls(before[0], chunks)}
	if want := "msg-1: c1 output-error no c2 output-error abandoned c3 input-available "; calls(got) != want {
		t.Errorf("got  %s\nwant %s", calls(got), want)
	}
	if want := "msg-1: c1 output-error no c2 input-available  c3 input-available "; calls(before) != want {
		t.Errorf("the message was changed: %s", calls(before))
	}
}
