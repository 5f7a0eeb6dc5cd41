package step_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// executor draws a step as executors run it: what it streams, and what it stores.
type executor struct {
	*rapid.T
	number   int32
	steady   bool // the clock rises with every chunk; else it stands still or is set back
	now      int64
	recorder step.Recorder
	live     []*eventv1.Chunk // streamed and valid
	reply    *eventv1.Message
	results  []*eventv1.Part
	names    int
}

// stream streams chunks of the step, or of the one before it.
func (x *executor) stream(number int32, chunks ...*eventv1.Chunk) {
	for _, c := range chunks {
		if x.steady {
			x.now++
		} else {
			x.now += rapid.Int64Range(-2, 2).Draw(x.T, "clock")
		}
		c.AgentId, c.AgentType, c.Timestamp, c.Step = "run", "demo", x.now, number
		x.live = append(x.live, proto.CloneOf(c))
		x.recorder.Add(c)
	}
}

func (x *executor) name(kind string) string {
	x.names++
	return fmt.Sprint(kind, x.names)
}

// events streams some events of tools and hooks.
func (x *executor) events(number int32, where string) {
	for range rapid.IntRange(0, 2).Draw(x.T, "events "+where) {
		switch rapid.IntRange(0, 6).Draw(x.T, "event") {
		case 0, 1:
			x.stream(number, step.StatePatch("["+x.name("")+"]"))
		case 2: // a record has place for one
			x.stream(number, step.Custom(&eventv1.Custom{EventName: x.name("large"), Data: `"` + strings.Repeat("x", 3<<20) + `"`}))
		default:
			x.stream(number, step.Custom(&eventv1.Custom{
				EventName: x.name("event"), Data: "1", Id: rapid.SampledFrom([]string{"", "a"}).Draw(x.T, "id"),
				Transient: rapid.Bool().Draw(x.T, "transient"),
			}))
		}
	}
}

// answer streams the model's reply. form: it is JSON, whose text is not streamed.
func (x *executor) answer(form bool) {
	x.stream(x.number, step.Started())
	for range rapid.IntRange(0, 1).Draw(x.T, "notices") {
		x.stream(x.number, step.Custom(&eventv1.Custom{EventName: "notice", Id: x.name("notice"), Data: "{}"}))
	}
	x.events(x.number, "before the reply")
	x.reply = &eventv1.Message{Role: eventv1.Role_ROLE_ASSISTANT}
	for _, kind := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 4).Draw(x.T, "parts") {
		deltas := rapid.SliceOfN(rapid.StringN(1, 3, -1), 1, 3).Draw(x.T, "deltas")
		last := len(x.reply.GetParts()) - 1
		switch {
		case kind == 0:
			for _, d := range deltas {
				x.stream(x.number, step.Thinking(d, false))
			}
			x.stream(x.number, step.Thinking("", true))
			x.add(&eventv1.Part{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{Text: strings.Join(deltas, "")}}})
		case form:
		case kind == 1 && last >= 0 && x.reply.GetParts()[last].GetText() != nil: // a model's text is one part until something else follows
		case kind == 1:
			for _, d := range deltas {
				x.stream(x.number, step.Text(d))
			}
			x.add(&eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: strings.Join(deltas, "")}}})
		default:
			call := &eventv1.ToolCallPart{
				ToolCallId: x.name("call"), ToolName: "tool", Arguments: strings.Join(deltas, ""), Dynamic: rapid.Bool().Draw(x.T, "dynamic"),
			}
			x.stream(x.number, step.InputStart(call.GetToolCallId(), call.GetToolName(), call.GetDynamic()))
			for _, d := range deltas {
				x.stream(x.number, step.InputDelta(call.GetToolCallId(), d))
			}
			x.stream(x.number, step.InputEnd(call.GetToolCallId()))
			x.add(&eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: call}})
		}
		x.events(x.number, "within the reply")
	}
	if form {
		x.add(&eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "{}"}}})
	}
}

func (x *executor) add(p *eventv1.Part) { x.reply.Parts = append(x.reply.Parts, p) }

// end returns the end of a call, and stores its result.
func (x *executor) end(r *eventv1.ToolResultPart) func() *eventv1.Chunk {
	return func() *eventv1.Chunk {
		x.results = append(x.results, &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: r}})
		return step.ToolEnd(r)
	}
}

// fate draws how a call of this step goes on, chunk by chunk. The suspended ones come last.
func (x *executor) fate(c *eventv1.ToolCallPart) (now, suspended []func() *eventv1.Chunk) {
	id, name := c.GetToolCallId(), c.GetToolName()
	done := x.end(&eventv1.ToolResultPart{ToolCallId: id, ToolName: name, Result: `"` + id + `"`, Success: true})
	failed := x.end(&eventv1.ToolResultPart{
		ToolCallId: id, ToolName: name, Error: "for the model", Synthetic: true,
		PublicError: rapid.SampledFrom([]string{"", "for users"}).Draw(x.T, "public"),
	})
	start := func(awaitsClient bool) func() *eventv1.Chunk {
		return func() *eventv1.Chunk { return step.ToolStart(c, awaitsClient) }
	}
	question := func() *eventv1.Chunk {
		return step.ApprovalRequest(&eventv1.ToolApprovalRequest{
			ToolCallId: id, ToolName: name, ApprovalId: "approval-" + id, Input: c.GetArguments(),
		})
	}
	child := &eventv1.SubagentStart{SubSessionId: "of-" + id, SubAgentType: "demo", ToolCallId: id}
	begin := func() *eventv1.Chunk { return step.SubagentStart(child) }
	fates := []string{"executed", "failed", "refused", "client tool", "approval", "sub-agent", "background"}
	switch rapid.SampledFrom(fates).Draw(x.T, "fate") {
	case "executed":
		return []func() *eventv1.Chunk{start(false), done}, nil
	case "failed": // by its tool, or skipped
		return []func() *eventv1.Chunk{start(false), failed}, nil
	case "refused":
		return []func() *eventv1.Chunk{failed}, nil
	case "client tool":
		return []func() *eventv1.Chunk{start(true)}, nil
	case "approval":
		return []func() *eventv1.Chunk{start(false)}, []func() *eventv1.Chunk{question}
	case "sub-agent":
		return []func() *eventv1.Chunk{start(false)}, []func() *eventv1.Chunk{begin}
	default: // a sub-agent in the background: its call ends at once
		return []func() *eventv1.Chunk{start(false), done}, []func() *eventv1.Chunk{begin}
	}
}

// earlier draws how the answer to a call of an earlier step is applied.
func (x *executor) earlier() []func() *eventv1.Chunk {
	id := x.name("earlier")
	r := &eventv1.ToolResultPart{ToolCallId: id, ToolName: "tool", Result: `"` + id + `"`, Success: true}
	switch rapid.SampledFrom([]string{"client tool", "approved", "denied", "sub-agent"}).Draw(x.T, "answer") {
	case "client tool":
		return []func() *eventv1.Chunk{x.end(r)}
	case "denied":
		r.Success, r.Result, r.Error = false, "", "denied"
		fallthrough
	case "approved":
		r.Approval = &eventv1.ApprovalVerdict{ApprovalId: "approval-" + id, Approved: r.GetSuccess(), Reason: "because"}
		return []func() *eventv1.Chunk{func() *eventv1.Chunk { return step.Decision(id, r.GetApproval()) }, x.end(r)}
	}
	child := &eventv1.SubagentEnd{SubSessionId: "of-" + id, SubAgentType: "demo", ToolCallId: id, Success: true}
	return []func() *eventv1.Chunk{func() *eventv1.Chunk { return step.SubagentEnd(child, r) }, x.end(r)}
}

// interleave streams the chunks of the calls in any order that keeps each call's own, with events between them.
func (x *executor) interleave(queues [][]func() *eventv1.Chunk) {
	for len(queues) > 0 {
		at := rapid.IntRange(0, len(queues)-1).Draw(x.T, "next call")
		x.stream(x.number, queues[at][0]())
		if queues[at] = queues[at][1:]; len(queues[at]) == 0 {
			queues = slices.Delete(queues, at, at+1)
		}
		x.events(x.number, "between calls")
	}
}

// attempt streams the step to its end.
func (x *executor) attempt(form bool) {
	x.answer(form)
	var queues [][]func() *eventv1.Chunk
	var last []func() *eventv1.Chunk
	for _, p := range x.reply.GetParts() {
		if c := p.GetToolCall(); c != nil {
			now, suspended := x.fate(c)
			queues, last = append(queues, now), append(last, suspended...)
		}
	}
	x.interleave(queues)
	for _, make := range last {
		x.stream(x.number, make())
	}
	if form || rapid.Bool().Draw(x.T, "final") {
		x.stream(x.number, step.Output("{}"))
	}
}

func drawStep(t *rapid.T) *executor {
	x := &executor{T: t, number: rapid.Int32Range(1, 9).Draw(t, "step"), now: 1000, steady: rapid.Bool().Draw(t, "steady clock")}
	x.recorder.Step = x.number
	if rapid.IntRange(0, 4).Draw(t, "drain") == 0 { // a step that only takes answers
		var queues [][]func() *eventv1.Chunk
		for range rapid.IntRange(1, 3).Draw(t, "answers") {
			queues = append(queues, x.earlier())
		}
		x.interleave(queues)
		return x
	}
	x.events(x.number-1, "before the step")
	before := slices.Clone(x.live)
	form := rapid.IntRange(0, 4).Draw(t, "form") == 0
	for range rapid.IntRange(0, 2).Draw(t, "lost attempts") {
		x.attempt(form)
		x.recorder.Retry()
		x.live, x.results = slices.Clone(before), nil
	}
	x.attempt(form)
	return x
}

// stored returns the messages and the record as the database returns them.
func (x *executor) stored() ([]*eventv1.Message, *eventv1.StepRecord) {
	var messages []*eventv1.Message
	if x.reply != nil {
		messages = append(messages, proto.CloneOf(x.reply))
	}
	if len(x.results) > 0 {
		messages = append(messages, proto.CloneOf(&eventv1.Message{Role: eventv1.Role_ROLE_TOOL, Parts: x.results}))
	}
	return messages, proto.CloneOf(x.recorder.Record())
}

// expected returns the live chunks with the documented differences of a replay: see the documentation of the package.
func expected(live []*eventv1.Chunk) []*eventv1.Chunk {
	var reply, rest []*eventv1.Chunk
	place, began, spoken, large := -1, 0, false, false
	for _, c := range live {
		switch {
		case c.GetCustom().GetTransient():
		case strings.HasPrefix(c.GetCustom().GetEventName(), "large"):
			if !large {
				rest = append(rest, c)
			}
			large = true
		case isReply(c):
			if place < 0 {
				place = len(rest)
			}
			spoken = spoken || c.GetThinking() == nil
			reply = merge(reply, c)
		default:
			rest = append(rest, c)
		}
		if c.GetStepStarted() != nil {
			began = len(rest)
		}
	}
	for _, c := range reply {
		c.Timestamp = reply[0].GetTimestamp()
		if !spoken {
			place, c.Timestamp = began, rest[began-1].GetTimestamp()
		}
	}
	if place < 0 {
		return rest
	}
	return slices.Insert(rest, place, reply...)
}

func isReply(c *eventv1.Chunk) bool {
	ofCall := c.GetToolArgStreamStart() != nil || c.GetToolArgStreamDelta() != nil || c.GetToolArgStreamEnd() != nil
	return ofCall || c.GetTextDelta() != nil || c.GetThinking() != nil
}

// merge appends a chunk of the reply, or extends the last one with its delta.
func merge(reply []*eventv1.Chunk, c *eventv1.Chunk) []*eventv1.Chunk {
	if len(reply) > 0 {
		switch last := reply[len(reply)-1]; {
		case last.GetTextDelta() != nil && c.GetTextDelta() != nil:
			last.GetTextDelta().Delta += c.GetTextDelta().GetDelta()
			return reply
		case last.GetThinking() != nil && !last.GetThinking().GetIsComplete() && c.GetThinking() != nil:
			last.GetThinking().Content += c.GetThinking().GetContent()
			last.GetThinking().IsComplete = c.GetThinking().GetIsComplete()
			return reply
		case last.GetToolArgStreamDelta() != nil && c.GetToolArgStreamDelta() != nil:
			last.GetToolArgStreamDelta().Delta += c.GetToolArgStreamDelta().GetDelta()
			return reply
		}
	}
	return append(reply, c)
}

func lines(chunks []*eventv1.Chunk, times bool) string {
	var all strings.Builder
	for _, c := range chunks {
		if e := c.GetCustom(); len(e.GetData()) > 100 {
			c = proto.CloneOf(c)
			c.GetCustom().Data = fmt.Sprint(len(e.GetData()))
		}
		fmt.Fprint(&all, c.GetStep(), " ", c.Type())
		if times {
			fmt.Fprint(&all, " at ", c.GetTimestamp())
		}
		event := c.ProtoReflect()
		if f := event.WhichOneof(event.Descriptor().Oneofs().ByName("event")); f != nil {
			text, _ := prototext.MarshalOptions{}.Marshal(event.Get(f).Message().Interface())
			fmt.Fprint(&all, " ", strings.Join(strings.Fields(string(text)), " "))
		}
		all.WriteString("\n")
	}
	return all.String()
}

func TestAReplayOfARecordedStepIsTheLiveStep(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := drawStep(t)
		messages, record := x.stored()
		replayed := step.Replay(x.number, messages, record)
		want := expected(x.live)
		for _, c := range want {
			c.AgentId, c.AgentType = "", ""
		}
		if got, want := lines(replayed, x.steady), lines(want, x.steady); got != want {
			t.Fatalf("replayed\n%s\nlive\n%s\nrecord %v", got, want, record)
		}
	})
}
