package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// turnFrame is a frame of the chat from the gateway.
type turnFrame struct {
	Type, ID, Body, Outcome, ProbeID, Reason          string
	Done, Continuation, Replay, ReplayComplete, Error bool
	Connect                                           bool
	Seq                                               *int
	Messages                                          []struct{ ID, Role string }
	text                                              string
}

func (s *agentSocket) frame() turnFrame {
	s.t.Helper()
	f := turnFrame{text: s.next()}
	if err := json.Unmarshal([]byte(f.text), &f); err != nil {
		s.t.Fatalf("%s: %v", f.text, err)
	}
	return f
}

// wantType reads the next frame, of a type.
func (s *agentSocket) wantType(kind string) turnFrame {
	s.t.Helper()
	f := s.frame()
	if f.Type != kind {
		s.t.Fatalf("got %s, want a frame of type %s", f.text, kind)
	}
	return f
}

// wantMessages reads the next frame, the conversation with the messages.
func (s *agentSocket) wantMessages(ids ...string) turnFrame {
	s.t.Helper()
	f := s.wantType("cf_agent_chat_messages")
	var got []string
	for _, m := range f.Messages {
		got = append(got, m.ID)
	}
	if !slices.Equal(got, ids) {
		s.t.Fatalf("got the messages %v, want %v", got, ids)
	}
	return f
}

// turn reads the frames of a turn to its end. It returns them with the parts, one per line.
func (s *agentSocket) turn(id string) (frames []turnFrame, parts string) {
	s.t.Helper()
	for {
		f := s.frame()
		frames = append(frames, f)
		if f.Type == "cf_agent_chat_messages" {
			continue
		}
		if f.Type != "cf_agent_use_chat_response" || f.ID != id {
			s.t.Fatalf("got %s in the turn %s, after %s", f.text, id, parts)
		}
		if f.Done {
			return frames, mergeDeltas(parts)
		}
		if f.Body != "" {
			parts += f.Body + "\n"
		}
	}
}

// part reads up to the frame of a turn whose part contains the text.
func (s *agentSocket) part(text string) (frames []turnFrame) {
	s.t.Helper()
	for {
		f := s.wantType("cf_agent_use_chat_response")
		frames = append(frames, f)
		if strings.Contains(f.Body, text) {
			return frames
		}
	}
}

// chatRequest is the frame of a message, as the client's transport sends it.
func chatRequest(id string, messages ...any) string {
	body := toJSON(map[string]any{"messages": messages, "trigger": "submit-message", "extra": true})
	return toJSON(map[string]any{"id": id, "init": map[string]any{"method": "POST", "body": body}, "type": "cf_agent_use_chat_request"})
}

func words(text string) any {
	return map[string]any{"id": "u-" + text, "role": "user", "parts": []any{map[string]any{"type": "text", "text": text}}}
}

// answerParts are the parts of playShort.
const answerParts = `{"type":"start","messageId":"msg_run1"}
{"type":"start-step"}
{"type":"text-start","id":"text-1-1"}
{"type":"text-delta","id":"text-1-1","delta":"One two."}
{"type":"text-end","id":"text-1-1"}
{"type":"finish-step"}
{"type":"finish","finishReason":"stop"}
`

func playShort(run *Run, text string) {
	run.Show(1, Started(), StepStarted(), Text(text), StepCommitted(), Completed())
	run.Complete(AssistantMessage(1, text))
}

func TestAMessageIsAnsweredInEveryTab(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	sender, _ := h.agentClient(t, "demo/room")
	tab, _ := h.agentClient(t, "demo/room")
	sender.say(chatRequest("r1", words("hi")))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "))
	tab.wantMessages("u-hi")
	tab.part("One ")
	sender.part("One ")
	run.Show(1, Text("two."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(1, "One two."))
	frames, _ := sender.turn("r1")
	if last := frames[len(frames)-1]; last.text != `{"type":"cf_agent_use_chat_response","id":"r1","body":"","done":true,"outcome":"completed"}` {
		t.Errorf("got %s", last.text)
	}
	frames, _ = tab.turn("r1")
	if n := len(frames); n < 2 || frames[n-2].Type != "cf_agent_chat_messages" || len(frames[n-2].Messages) != 2 || frames[n-1].Outcome != "completed" {
		t.Errorf("the other tab: got %v", frames)
	}
	sender.barrier()
	tab.barrier()
	if got := run.GetAgentType(); got != "demo" {
		t.Errorf("the agent is %q", got)
	}
}

func TestTheFramesOfATurnCarryItsPartsInOrder(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	playShort(h.AwaitRun(t, "default", "demo:room", nil), "One two.")
	frames, parts := s.turn("r1")
	if parts != answerParts {
		t.Errorf("got\n%s\nwant\n%s", parts, answerParts)
	}
	for i, f := range frames[:len(frames)-1] {
		if f.Seq == nil || *f.Seq != i || f.Continuation || f.Replay {
			t.Errorf("frame %d: got %s", i, f.text)
		}
	}
}

func TestAReloadInTheMiddleOfAnAnswerReplaysIt(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	sender, _ := h.agentClient(t, "demo/room")
	sender.say(chatRequest("r1", words("hi")))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "))
	sender.part("One ")
	_ = sender.CloseNow()

	page, _ := h.agentClient(t, "demo/room")
	if f := page.wantMessages("u-hi"); !f.Connect {
		t.Errorf("got %s", f.text)
	}
	page.want(`{"type":"cf_agent_stream_resuming","id":"r1"}`)
	page.say(`{"type":"cf_agent_stream_resume_request","probeId":"p1"}`)
	page.want(`{"type":"cf_agent_stream_resuming","id":"r1","probeId":"p1"}`)
	page.say(`{"type":"cf_agent_stream_resume_ack","id":"r1"}`)
	replay := page.part("One ")
	for _, f := range replay {
		if !f.Replay || f.Continuation {
			t.Errorf("replay: got %s", f.text)
		}
	}
	page.want(`{"type":"cf_agent_use_chat_response","id":"r1","body":"","done":false,"replay":true,"replayComplete":true}`)
	run.Show(1, Text("two."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(1, "One two."))
	frames, _ := page.turn("r1")
	all := ""
	for _, f := range append(replay, frames...) {
		if f.Body != "" {
			all += f.Body + "\n"
		}
	}
	if got := mergeDeltas(all); got != answerParts {
		t.Errorf("got\n%s\nwant\n%s", got, answerParts)
	}
	page.barrier()
}

func TestAClientThatResumesNothingIsToldSo(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(`{"type":"cf_agent_stream_resume_request","probeId":"p1"}`)
	s.want(`{"type":"cf_agent_stream_resume_none","reason":"idle","probeId":"p1"}`)
	s.say(chatRequest("r1", words("hi")))
	playShort(h.AwaitRun(t, "default", "demo:room", nil), "One two.")
	s.turn("r1")
	s.say(`{"type":"cf_agent_stream_resume_ack","id":"r1"}`, `{"type":"cf_agent_stream_resume_request","probeId":"p2"}`)
	s.want(`{"type":"cf_agent_stream_resume_none","reason":"idle","probeId":"p2"}`)
}

func TestAPageThatMissedATurnReceivesTheConversation(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	sender, _ := h.agentClient(t, "demo/room")
	sender.say(chatRequest("r1", words("hi")))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "))
	sender.part("One ")
	page, _ := h.agentClient(t, "demo/room") // it does not take the offer
	page.wantMessages("u-hi")
	page.wantType("cf_agent_stream_resuming")
	run.Show(1, Text("two."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(1, "One two."))
	page.wantMessages("u-hi", "msg_run1")
	late, _ := h.agentClient(t, "demo/room")
	late.wantMessages("u-hi", "msg_run1")
	late.barrier()
}

func TestAClientToolContinuesUnderANewRequest(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	tab, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	first := h.AwaitRun(t, "default", "demo:room", nil)
	tab.wantMessages("u-hi")
	playAsk(first, 1, "c1")
	_, parts := s.turn("r1")
	if !strings.Contains(parts, `{"type":"tool-input-available","toolCallId":"c1","toolName":"add","input":{"a":1}}`) {
		t.Errorf("got %s", parts)
	}
	tab.turn("r1")
	s.say(`{"type":"cf_agent_tool_result","toolCallId":"c1","toolName":"add","output":{"sum":2},"autoContinue":true}`,
		`{"type":"cf_agent_stream_resume_request","probeId":"p1"}`)
	run := h.AwaitRun(t, "default", "demo:room", first)
	s.want(`{"type":"cf_agent_stream_resuming","id":"` + run.GetRunId() + `","probeId":"p1"}`)
	s.say(`{"type":"cf_agent_stream_resume_ack","id":"` + run.GetRunId() + `"}`)
	run.Show(1, Resumed())
	run.Show(2, Result("c1", `{"sum":2}`))
	if before := tab.part(`{"type":"tool-output-available","toolCallId":"c1","output":{"sum":2}}`); before[0].Body != `{"type":"start","messageId":"msg_run1"}` {
		t.Errorf("the other tab: got %s", before[0].text)
	}
	run.Commit(ToolMessage(2, "c1", `{"sum":2}`))
	run.Show(3, StepStarted(), Text("It is 2."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(3, "It is 2."))
	frames, parts := s.turn(run.GetRunId())
	if want := `{"type":"start","messageId":"msg_run1"}
{"type":"start-step"}
{"type":"tool-input-start","toolCallId":"c1","toolName":"add"}
{"type":"finish-step"}
{"type":"tool-output-available","toolCallId":"c1","output":{"sum":2}}
{"type":"start-step"}
{"type":"text-start","id":"text-3-1"}
{"type":"text-delta","id":"text-3-1","delta":"It is 2."}
{"type":"text-end","id":"text-3-1"}
{"type":"finish-step"}
{"type":"finish","finishReason":"stop"}
`; parts != want {
		t.Errorf("got\n%s\nwant\n%s", parts, want)
	}
	// The stored conversation may come first: the run may end before the client's stream begins.
	begin := slices.IndexFunc(frames, func(f turnFrame) bool { return f.Type == "cf_agent_use_chat_response" })
	if first := frames[begin]; !first.Replay || first.Continuation {
		t.Errorf("got %s, want the message from its start", first.text)
	}
	if before := frames[len(frames)-2]; before.Type != "cf_agent_chat_messages" || len(before.Messages) != 2 {
		t.Errorf("the conversation does not come before the end: got %s", before.text)
	}
	frames, _ = tab.turn(run.GetRunId())
	if n := len(frames); frames[n-2].Type != "cf_agent_chat_messages" {
		t.Errorf("the other tab: got %s before the end", frames[n-2].text)
	}
	s.barrier()
	tab.barrier()
}

// continueTurn answers the calls, each from a client, and takes the continuation for the last one. It
// returns the parts of the calls in it.
func continueTurn(t *testing.T, h *fixture, calls []string, clients ...*agentSocket) string {
	t.Helper()
	s := clients[len(clients)-1]
	s.say(chatRequest("r1", words("hi")))
	first := h.AwaitRun(t, "default", "demo:room", nil)
	playAsk(first, 1, calls...)
	s.turn("r1")
	for i, call := range calls {
		if strings.HasPrefix(call, "y") {
			clients[i].say(`{"type":"cf_agent_tool_approval","toolCallId":"` + call + `","approved":true,"autoContinue":true}`)
		} else {
			clients[i].say(`{"type":"cf_agent_tool_result","toolCallId":"` + call + `","toolName":"add","output":1,"autoContinue":true}`)
		}
		waitFor(t, "the answer is stored", func() bool {
			return slices.ContainsFunc(h.State.PendingCalls("default", "demo:room"), func(c *statev1.Call) bool {
				return c.GetToolCallId() == call && c.GetAnswer() != nil
			})
		})
	}
	run := h.AwaitRun(t, "default", "demo:room", first)
	s.say(`{"type":"cf_agent_stream_resume_request","probeId":"p1"}`)
	s.until(`"cf_agent_stream_resuming","id":"` + run.GetRunId())
	s.say(`{"type":"cf_agent_stream_resume_ack","id":"` + run.GetRunId() + `"}`)
	playContinuation(run, calls...)
	got := ""
	_, parts := s.turn(run.GetRunId())
	for line := range strings.Lines(parts) {
		if strings.Contains(line, "toolCallId") || strings.Contains(line, "approvalId") {
			got += line
		}
	}
	return got
}

func TestAContinuationOfAnswersBeginsTheMessageAgain(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]bool{"answered by one tab": false, "answered by two tabs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			s, _ := h.agentClient(t, "demo/room")
			first := s
			if other {
				first, _ = h.agentClient(t, "demo/room")
			}
			got := continueTurn(t, h, []string{"c1", "c2"}, first, s)
			for _, call := range []string{"c1", "c2"} {
				begin, end := `{"type":"tool-input-start","toolCallId":"`+call+`"`, `{"type":"tool-output-available","toolCallId":"`+call+`"`
				if strings.Count(got, begin) != 1 || strings.Count(got, end) != 1 || strings.Contains(got, "tool-input-available") {
					t.Errorf("got %s, want the call %s once, with its output", got, call)
				}
			}
		})
	}
}

func TestAContinuationHasTheOutputsOfApprovedCalls(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	got := continueTurn(t, h, []string{"y1", "c1"}, s, s)
	if strings.Contains(got, "tool-input") {
		t.Errorf("got %s, want only what follows the answers", got)
	}
	for _, call := range []string{"y1", "c1"} {
		if !strings.Contains(got, `{"type":"tool-output-available","toolCallId":"`+call+`"`) {
			t.Errorf("got %s, want the output of %s", got, call)
		}
	}
}

func TestAContinuationIsOfferedToAClientThatDoesNotAsk(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	first := h.AwaitRun(t, "default", "demo:room", nil)
	playAsk(first, 1, "c1")
	s.turn("r1")
	s.say(`{"type":"cf_agent_tool_result","toolCallId":"c1","toolName":"add","state":"output-error","errorText":"broken","autoContinue":true}`)
	run := h.AwaitRun(t, "default", "demo:room", first)
	s.want(`{"type":"cf_agent_stream_resuming","id":"` + run.GetRunId() + `"}`)
	if got := h.State.PendingCalls("default", "demo:room"); len(got) != 1 || got[0].GetAnswer().GetError() != "broken" {
		t.Errorf("got %v", got)
	}
}

func TestAnApprovalIsAnsweredByItsCall(t *testing.T) {
	t.Parallel()
	for _, approved := range []bool{true, false} {
		h := open(t, nil)
		s, _ := h.agentClient(t, "demo/room")
		s.say(chatRequest("r1", words("hi")))
		first := h.AwaitRun(t, "default", "demo:room", nil)
		playAsk(first, 1, "y1", "y2")
		s.turn("r1")
		s.say(`{"type":"cf_agent_tool_approval","toolCallId":"unknown","approved":true,"autoContinue":true}`)
		s.wantMessages("u-hi", "msg_run1") // the answer is not stored
		s.say(`{"type":"cf_agent_tool_approval","toolCallId":"y1","approved":true,"autoContinue":true}`, `{"type":"cf_agent_stream_resume_request","probeId":"p1"}`)
		before, _ := s.until("cf_agent_stream_resume_none") // another approval is missing
		if len(before) > 1 {
			t.Errorf("got %v", before)
		}
		s.say(fmt.Sprintf(`{"type":"cf_agent_tool_approval","toolCallId":"y2","approved":%v,"autoContinue":true}`, approved))
		h.AwaitRun(t, "default", "demo:room", first)
		for _, call := range h.State.PendingCalls("default", "demo:room") {
			if got, want := call.GetAnswer().GetApproval().GetApproved(), approved || call.GetToolCallId() == "y1"; got != want {
				t.Errorf("%s: got %v, want %v", call.GetToolCallId(), got, want)
			}
		}
	}
}

func TestACancelStopsTheRunOfItsRequest(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "))
	s.part("One ")
	s.say(`{"type":"cf_agent_chat_request_cancel","id":"other"}`)
	s.barrier()
	if got := h.State.Stops(); len(got) != 0 {
		t.Errorf("the cancel of another request has stopped %v", got)
	}
	page, _ := h.agentClient(t, "demo/room") // after a reload, on any gateway
	page.until("cf_agent_stream_resuming")
	page.say(`{"type":"cf_agent_chat_request_cancel","id":"r1"}`)
	waitFor(t, "the run is asked to stop", func() bool { return len(h.State.Stops()) == 1 })
	if got := h.State.Stops()[0]; got.GetRunId() != run.GetRunId() || got.GetKind() != statev1.StopKind_STOP_KIND_INTERRUPT {
		t.Errorf("got %v", got)
	}
	s.say(`{"type":"cf_agent_chat_request_cancel","id":"r1"}`)
	waitFor(t, "the run is asked to stop again", func() bool { return len(h.State.Stops()) == 2 })
	run.Show(1, Interrupted())
	run.Interrupt(AssistantMessage(1, "One "))
	frames, _ := s.turn("r1")
	if last := frames[len(frames)-1]; last.Outcome != "aborted" {
		t.Errorf("got %s", last.text)
	}
}

func TestACancelStopsARunThatAwaitsASubAgent(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "), Call("of-c1", "{}"))
	s.part("of-c1")
	run.Child("c1")
	run.Show(1, StepCommitted(), Suspended())
	run.Suspend([]*statev1.Call{{
		ToolCallId: "of-c1", SessionId: "demo:room", RunId: run.GetRunId(), Step: 1, ToolName: "ask_c1", Input: "{}", Kind: statev1.CallKind_CALL_KIND_SUB_AGENT,
	}}, AssistantMessage(1, "One ", "of-c1"))
	if got := h.State.Get("default", "demo:room").GetSession().GetStatus(); got != statev1.SessionStatus_SESSION_STATUS_SUSPENDED_AWAITING_CHILDREN {
		t.Fatalf("the session is %v", got)
	}
	s.say(`{"type":"cf_agent_chat_request_cancel","id":"r1"}`, setState("7"))
	s.until("cf_agent_state_error") // the cancel is handled
	if got := h.State.Stops(); len(got) != 1 || got[0].GetRunId() != run.GetRunId() {
		t.Errorf("got %v", got)
	}
}

func TestATurnOutlivesTheLossOfItsExecutor(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.AISDK = 0 })
	s, _ := h.agentClient(t, "demo/room")
	tab, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	at := run.Show(1, Started())
	run.Show(1, StepStarted(), Text("void"))
	tab.wantMessages("u-hi")
	for _, c := range []*agentSocket{s, tab} {
		c.part("void")
	}
	run.Rewind(at)
	playShort(run, "One two.")
	if _, parts := s.turn("r1"); !strings.Contains(parts, `{"type":"reset-step"}`) || !strings.Contains(parts, "One two.") {
		t.Errorf("got %s", parts)
	}
	frames, _ := tab.turn("r1")
	if before := frames[len(frames)-2]; before.Type != "cf_agent_chat_messages" || !strings.Contains(before.text, "One two.") || strings.Contains(before.text, "void") {
		t.Errorf("the other tab: got %s before the end", before.text)
	}
}

func TestClearRemovesTheMessagesInEveryTab(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(setState(`{"n":1}`), chatRequest("r1", words("hi")))
	playShort(h.AwaitRun(t, "default", "demo:room", nil), "One two.")
	s.turn("r1")
	tab, _ := h.agentClient(t, "demo/room")
	tab.wantMessages("u-hi", "msg_run1")
	s.say(`{"type":"cf_agent_chat_clear"}`)
	tab.want(`{"type":"cf_agent_chat_clear"}`)
	s.barrier()
	tab.barrier()
	got := h.State.Get("default", "demo:room").GetSession()
	if got.GetMessageCount() != 0 || got.GetCustomState() != `{"n":1}` {
		t.Errorf("got %d messages and the state %s", got.GetMessageCount(), got.GetCustomState())
	}
	s.say(chatRequest("r2", words("again")))
	tab.wantMessages("u-again")
}

func TestClearAlsoRemovesAMessageThatWaits(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "))
	s.part("One ")
	s.say(chatRequest("r2", words("hi"), words("more")))
	waitFor(t, "the message waits", func() bool { return len(h.State.Get("default", "demo:room").GetWaiting()) == 1 })
	s.say(`{"type":"cf_agent_chat_clear"}`)
	waitFor(t, "the live run is asked to stop", func() bool {
		return slices.ContainsFunc(h.State.Stops(), func(r *statev1.RequestStopRequest) bool { return r.GetRunId() == "" || r.GetRunId() == run.GetRunId() })
	})
	run.Show(1, Interrupted())
	run.Interrupt(AssistantMessage(1, "One "))
	waitFor(t, "the messages are removed", func() bool { return h.State.Get("default", "demo:room").GetSession().GetMessageCount() == 0 })
	if now := h.State.Get("default", "demo:room"); len(now.GetWaiting()) != 0 || isExecuting(now.GetCurrentRun()) {
		t.Errorf("got %v", now)
	}
}

func isExecuting(run *statev1.Run) bool {
	return run.GetStatus() == statev1.RunStatus_RUN_STATUS_QUEUED || run.GetStatus() == statev1.RunStatus_RUN_STATUS_RUNNING
}

func TestMessagesCanOnlyBeRemovedFromTheEnd(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	first := h.AwaitRun(t, "default", "demo:room", nil)
	playShort(first, "One two.")
	s.turn("r1")
	s.say(chatRequest("r2", words("hi"), words("more")))
	second := h.AwaitRun(t, "default", "demo:room", first)
	second.Show(2, Started(), StepStarted(), Text("Three."), StepCommitted(), Completed())
	second.Complete(AssistantMessage(2, "Three."))
	s.turn("r2")
	tab, _ := h.agentClient(t, "demo/room")
	tab.wantMessages("u-hi", "msg_run1", "u-more", "msg_run2")
	message := func(id string) string { return `{"id":"` + id + `","role":"user","parts":[]}` }
	s.say(`{"type":"cf_agent_chat_messages","messages":[` + message("u-other") + `]}`)
	s.wantMessages("u-hi", "msg_run1", "u-more", "msg_run2")
	s.say(`{"type":"cf_agent_chat_messages","messages":[` + message("u-hi") + "," + message("msg_run1") + `]}`)
	tab.wantMessages("u-hi", "msg_run1")
	s.barrier()
	s.say(`{"type":"cf_agent_chat_messages","messages":[` + message("u-hi") + `]}`)
	tab.wantMessages("u-hi")
	s.say(`{"type":"cf_agent_chat_messages","messages":[]}`)
	tab.want(`{"type":"cf_agent_chat_clear"}`)
}

func TestARefusedMessageIsAnsweredWithASentence(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	reader, _ := h.agentClient(t, "demo/room?readonly=true")
	reader.say(chatRequest("r0", words("hi")))
	reader.want(`{"type":"cf_agent_use_chat_response","id":"r0","body":"Connection is readonly","done":true,"error":true,"outcome":"error"}`)
	s.say(`{"type":"cf_agent_use_chat_request","id":"r1","init":{"body":"{"}}`)
	if f := s.frame(); !f.Error || !f.Done || f.ID != "r1" || !strings.HasPrefix(f.Body, "The request is not valid: ") {
		t.Errorf("got %s", f.text)
	}
	s.say(chatRequest("r2", words("")))
	if f := s.frame(); !f.Error || f.Body != "The message cannot be sent: the message has neither text nor a file." {
		t.Errorf("got %s", f.text)
	}
	s.say(chatRequest("", words("hi")), `{"type":"cf_agent_use_chat_request"}`, `{"type":"cf_agent_use_chat_request","id":7}`)
	s.barrier()
}

func TestAMessageStaysInItsInstance(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	for _, key := range []string{"id", "ID", "\u0130D"} {
		body := toJSON(map[string]any{"messages": []any{words("hi" + key)}, key: "elsewhere"})
		s.say(toJSON(map[string]any{"id": "r-" + key, "init": map[string]any{"body": body}, "type": "cf_agent_use_chat_request"}))
	}
	waitFor(t, "the messages arrive", func() bool { return len(h.State.Starts()) == 3 })
	for _, start := range h.State.Starts() {
		if start.GetSessionId() != "demo:room" {
			t.Errorf("a message went to %s", start.GetSessionId())
		}
	}
}

func TestARunThatFailsIsAnErrorOfItsRequest(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "))
	run.Fail("The model is not available.", "framework_model_failed")
	frames, _ := s.turn("r1")
	n := len(frames)
	if got := frames[n-2].text; got != `{"type":"cf_agent_use_chat_response","id":"r1","body":"The model is not available.","done":false,"error":true}` {
		t.Errorf("got %s", got)
	}
	if frames[n-1].Outcome != "error" {
		t.Errorf("got %s", frames[n-1].text)
	}
}

func TestAnEditedMessageBeginsAgainThere(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(chatRequest("r1", words("hi")))
	first := h.AwaitRun(t, "default", "demo:room", nil)
	playShort(first, "One two.")
	s.turn("r1")
	edited := map[string]any{"id": "u-hi", "role": "user", "parts": []any{map[string]any{"type": "text", "text": "hello"}}}
	s.say(chatRequest("r2", edited))
	second := h.AwaitRun(t, "default", "demo:room", first)
	second.Show(2, Started(), StepStarted(), Text("Three."), StepCommitted(), Completed())
	second.Complete(AssistantMessage(2, "Three."))
	if _, parts := s.turn("r2"); !strings.Contains(parts, "Three.") {
		t.Errorf("got %s", parts)
	}
	if got := text(t, h.request(t, "GET", "/agents/demo/room/get-messages", "")); strings.Contains(got, "One two.") || !strings.Contains(got, "hello") {
		t.Errorf("got %s", got)
	}
}

// sendPhotos sends a message with the URLs of photos.
func sendPhotos(s *agentSocket, id string, urls ...string) {
	s.t.Helper()
	s.say(chatRequest(id, json.RawMessage(photoMessage("u-"+id, "look", urls...))))
}

func TestAMessageMayHaveLargeFiles(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxBodyBytes = 64 << 10 })
	s, _ := h.agentClient(t, "demo/room")
	sendPhotos(s, "r1", pngURL(photo(1<<20)), pngURL(photo(100<<10)))
	playShort(h.AwaitRun(t, "default", "demo:room", nil), "One two.")
	frames, _ := s.turn("r1")
	before := frames[len(frames)-2]
	if before.Type != "cf_agent_chat_messages" || strings.Count(before.text, "/files/") != 2 || strings.Contains(before.text, "data:") {
		t.Errorf("the sender does not receive the references: got %.300s", before.text)
	}
	sendPhotos(s, "r2", "data:image/png;base64,"+strings.Repeat("!", 9000))
	if f := s.frame(); !f.Error || !f.Done || f.ID != "r2" {
		t.Errorf("got %s, want the request refused", f.text)
	}
	s.barrier()
	s.say(chatRequest("r3", words(strings.Repeat("x", 64<<10))))
	if closed := s.closed(); closed.Code != websocket.StatusMessageTooBig {
		t.Errorf("got %v", closed)
	}
}

func TestATurnOfAnyInterfaceIsShownInTheTabs(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	far := openOver(t, listen(t), h.World, nil)
	tab, _ := far.agentClient(t, "demo/room")
	stream := h.chat(t, strings.Replace(chatBody("demo:room", "hi"), "{", `{"agentType":"demo",`, 1))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "))
	tab.wantMessages("u-hi")
	tab.part("One ") // while the run is live
	run.Show(1, Text("two."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(1, "One two."))
	stream.rest()
	tab.until("two.")
}
