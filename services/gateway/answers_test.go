package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// startAsking plays a run of s1 that waits for answers to the calls, and returns a client with the
// message. Calls with ids that begin with y are approvals.
func startAsking(t *testing.T, h *fixture, calls ...string) (*Run, *uiClient) {
	t.Helper()
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	playAsk(run, 1, calls...)
	c := &uiClient{}
	c.apply(t, stream.rest())
	if c.reason != "tool-calls" || !slices.Equal(c.asked, calls) {
		t.Fatalf("got %s, finished with %q, asked %v", c, c.reason, c.asked)
	}
	return run, c
}

// playAsk plays a step that ends with open calls.
func playAsk(run *Run, step int32, calls ...string) {
	begin := Started()
	if step > 1 {
		begin = Resumed()
	}
	told := []*eventv1.Chunk{begin, StepStarted()}
	var open []*statev1.Call
	for _, id := range calls {
		call := &statev1.Call{
			ToolCallId: id, SessionId: run.GetSessionId(), RunId: run.GetRunId(), Step: step, ToolName: "add", Input: `{"a":1}`,
			Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL,
		}
		if strings.HasPrefix(id, "y") {
			call.Kind, call.ApprovalId = statev1.CallKind_CALL_KIND_APPROVAL, "a-"+id
			told = append(told, ApprovalRequest(id, `{"a":1}`))
		} else {
			told = append(told, ClientCall(id, `{"a":1}`))
		}
		open = append(open, call)
	}
	run.Show(step, append(told, StepCommitted(), Suspended())...)
	run.Suspend(open, AssistantMessage(step, "", calls...))
}

// playContinuation plays the run after the answers to the calls.
func playContinuation(run *Run, calls ...string) {
	run.Show(1, Resumed())
	for _, id := range calls {
		if strings.HasPrefix(id, "y") {
			run.Show(2, ApprovalResponse(id, "approve"))
		}
		run.Show(2, Result(id, `"of `+id+`"`))
		run.Commit(ToolMessage(2, id, `"of `+id+`"`))
	}
	run.Show(3, StepStarted(), Text("It is "), Text("2."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(3, "It is 2."))
}

const wentOn = `{"type":"start","messageId":"msg_run1"}
{"type":"tool-output-available","toolCallId":"c1","output":"of c1"}
{"type":"start-step"}
{"type":"text-start","id":"text-3-1"}
{"type":"text-delta","id":"text-3-1","delta":"It is "}
{"type":"text-delta","id":"text-3-1","delta":"2."}
{"type":"text-end","id":"text-3-1"}
{"type":"finish-step"}
{"type":"finish","finishReason":"stop"}
[DONE]
`

func TestAnAnswerGoesOnInTheSameMessage(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func(c *uiClient) string{
		"the whole history": func(c *uiClient) string { return c.post("s1") },
		"the last message": func(c *uiClient) string {
			return toJSON(map[string]any{"id": "s1", "message": c.message()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			first, c := startAsking(t, h, "c1")
			stream := h.chat(t, body(c.output("c1", "mine")))
			run := h.AwaitRun(t, "default", "s1", first)
			playContinuation(run, "c1")
			events := stream.rest()
			if got := mergeDeltas(dataLines(events)); got != mergeDeltas(wentOn) {
				t.Errorf("got\n%s\nwant\n%s", got, wentOn)
			}
			c.apply(t, events)
			replayed := &uiClient{}
			replayed.replay(t, h.resume(t, "/chat/s1/stream?fromSequence=0").rest())
			if replayed.String() != c.String() {
				t.Errorf("replayed: got\n%s\nwant\n%s", replayed, c)
			}
			if len(replayed.asked) > 0 {
				t.Errorf("replayed: %v would be run again", replayed.asked)
			}
			if got := h.State.Submits()[0].GetAnswers(); len(got) != 1 || got[0].GetAnswer().GetResult() != `"mine"` {
				t.Errorf("submitted: got %v", got)
			}
		})
	}
}

func TestApprovalsAndErrorsAreAnswers(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "y1", "y2", "c1", "c2")
	c.respond("y1", true).respond("y2", false)
	c.call("y2")["approval"].(uiPart)["reason"] = "no"
	c.call("c1")["state"], c.call("c1")["errorText"] = "output-error", "broken"
	c.call("c2")["state"] = "output-available" // with an undefined output
	stream := h.chat(t, c.post("s1"))
	playContinuation(h.AwaitRun(t, "default", "s1", first), "y1", "y2", "c1", "c2")
	c.apply(t, stream.rest())
	got := map[string]*statev1.CallAnswer{}
	for _, a := range h.State.Submits()[0].GetAnswers() {
		got[a.GetToolCallId()] = a.GetAnswer()
	}
	yes, no := got["y1"].GetApproval(), got["y2"].GetApproval()
	if len(got) != 4 || yes.GetApprovalId() != "a-y1" || !yes.GetApproved() || no.GetApproved() || no.GetReason() != "no" ||
		got["c1"].GetError() != "broken" || got["c2"].GetResult() != "null" {
		t.Errorf("got %v", got)
	}
}

func TestAnAnswerAmongOthersWaitsForTheRest(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1", "c2")
	want := `{"type":"start","messageId":"msg_run1"}` + "\n" + `{"type":"finish","finishReason":"tool-calls"}` + "\n[DONE]\n"
	for range 2 { // the second time it is known
		if got := dataLines(h.chat(t, c.output("c1", 1).post("s1")).rest()); got != want {
			t.Errorf("got %s", got)
		}
	}
	reloaded := &uiClient{}
	reloaded.replay(t, h.resume(t, "/chat/s1/stream").rest())
	if part := reloaded.call("c1"); part["state"] != "output-available" || !slices.Equal(reloaded.asked, []string{"c2"}) {
		t.Errorf("a page that reloads: got %s, asked for %v", reloaded, reloaded.asked)
	}
	stream := h.chat(t, reloaded.output("c2", 2).post("s1"))
	playContinuation(h.AwaitRun(t, "default", "s1", first), "c1", "c2")
	reloaded.apply(t, stream.rest())
	if reloaded.reason != "stop" {
		t.Errorf("got %s", reloaded)
	}
}

func TestAClientThatLacksACallReceivesIt(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	_, c := startAsking(t, h, "c1", "c2")
	c.output("c1", 1)
	c.parts = slices.DeleteFunc(c.parts, func(p uiPart) bool { return p["toolCallId"] == "c2" })
	c.asked = nil
	c.apply(t, h.chat(t, c.post("s1")).rest())
	if !slices.Equal(c.asked, []string{"c2"}) || c.reason != "tool-calls" {
		t.Errorf("got %s", c)
	}
}

func TestARepeatedAnswerReceivesTheSameStream(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	body := c.output("c1", "mine").post("s1")
	live := h.chat(t, body)
	run := h.AwaitRun(t, "default", "s1", first)
	again := h.chat(t, body)
	playContinuation(run, "c1")
	over := h.chat(t, body)
	for name, stream := range map[string]*reader{"first": live, "live": again, "over": over} {
		if got := mergeDeltas(dataLines(stream.rest())); got != mergeDeltas(wentOn) {
			t.Errorf("%s: got\n%s", name, got)
		}
	}
	if got := h.State.Newest("default", "s1").GetRunId(); got != run.GetRunId() {
		t.Errorf("newest run: got %s", got)
	}
	// The client has all of it, and an app that sends by itself sends it again.
	c.apply(t, h.chat(t, body).rest())
	before := c.String()
	if c.apply(t, h.chat(t, c.post("s1")).rest()); c.reason != "interrupted" || c.String() != before {
		t.Errorf("nothing more: got %s, %s", c.reason, c)
	}
	older := h.request(t, http.MethodPost, "/chat?aiSdk=6", c.post("s1"))
	if got := dataLines(streamOf(t, older).rest()); !strings.Contains(got, `"type":"error"`) || strings.Contains(got, `"finish"`) {
		t.Errorf("nothing more, for an older client: got %s", got)
	}
}

func TestAnAnswerOfAnOlderMessageIsStale(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	body := c.output("c1", "mine").post("s1")
	h.chat(t, body)
	run := h.AwaitRun(t, "default", "s1", first)
	playContinuation(run, "c1")
	h.chat(t, chatBody("s1", "more"))
	more := h.AwaitRun(t, "default", "s1", run)
	wantFault(t, h.request(t, http.MethodPost, "/chat", body), 409, "RUN_STALE")
	wantFault(t, h.request(t, http.MethodPost, "/chat", toJSON(map[string]any{"id": "s1", "message": clientWith("msg_run1").message()})), 409, "RUN_STALE")
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi")), 409, "RUN_STALE")
	playAnswer(more)
	if got := len(h.State.Starts()); got != 3 {
		t.Errorf("%d runs were asked for", got)
	}
}

func TestWhatAClientBelievesToBeTheNewestRunIsChecked(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	body := c.output("c1", "mine")
	wantFault(t, h.request(t, http.MethodPost, "/chat", body.post("s1", "runId", "run_9")), 409, "RUN_STALE")
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatBody("s1", "more"), "X-Holdfast-Run-Id", "run_9"), 409, "RUN_STALE")
	reload := func(session, run string) string {
		return toJSON(map[string]any{"id": session, "runId": run, "message": uiPart{"id": "msg_run1", "role": "assistant", "parts": []any{}}})
	}
	wantFault(t, h.request(t, http.MethodPost, "/chat", reload("s1", "run_9")), 409, "RUN_STALE")
	wantFault(t, h.request(t, http.MethodPost, "/chat", reload("s9", "run_1")), 409, "RUN_STALE")
	h.chat(t, reload("s1", "run_1")).rest()
	if got := len(h.State.Submits()); got != 0 {
		t.Errorf("%d answers were given", got)
	}
	stream := h.chat(t, body.post("s1", "runId", "run_1"))
	run := h.AwaitRun(t, "default", "s1", first)
	again := h.chat(t, body.post("s1", "runId", "run_1")) // it writes the message of run_1
	playContinuation(run, "c1")
	if a, b := mergeDeltas(dataLines(stream.rest())), mergeDeltas(dataLines(again.rest())); a != mergeDeltas(wentOn) || b != mergeDeltas(wentOn) {
		t.Errorf("got %s and %s", a, b)
	}
	third := h.chat(t, strings.Replace(chatBody("s1", "more"), "{", `{"runId":"run_2",`, 1))
	playAnswer(h.AwaitRun(t, "default", "s1", run))
	third.rest()
}

func TestAMessageAbandonsWhatIsOpenAndBringsTheAnswersThatThereAre(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1", "c2")
	c.output("c1", 1)
	body := toJSON(map[string]any{"id": "s1", "messages": []any{
		c.message(), map[string]any{"id": "u2", "role": "user", "parts": []any{uiPart{"type": "text", "text": "never mind"}}},
	}})
	stream := h.chat(t, body)
	playAnswer(h.AwaitRun(t, "default", "s1", first))
	if got := dataLines(stream.rest()); !strings.Contains(got, `"messageId":"msg_run2"`) {
		t.Errorf("got %s", got)
	}
	start := lastStart(h)
	if got := start.GetAnswers(); !start.GetAbandonCalls() || len(got) != 1 || got[0].GetToolCallId() != "c1" {
		t.Errorf("got %v", start)
	}
}

func TestTwoEqualMessagesAreOneRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	var posted sync.WaitGroup
	replies := make([]*reply, 4)
	for i := range replies {
		posted.Go(func() { replies[i] = h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi")) })
	}
	posted.Wait()
	run := h.AwaitRun(t, "default", "s1", nil)
	playAnswer(run)
	for _, r := range replies {
		if got := mergeDeltas(dataLines(streamOf(t, r).rest())); got != mergeDeltas(uncut) {
			t.Errorf("got %s", got)
		}
	}
	if got := mergeDeltas(dataLines(h.chat(t, chatBody("s1", "hi")).rest())); got != mergeDeltas(uncut) {
		t.Errorf("again: got %s", got)
	}
	if got := h.State.Newest("default", "s1").GetRunId(); got != "run_1" {
		t.Errorf("newest run: got %s", got)
	}
	other := strings.ReplaceAll(chatBody("s1", "hi"), `"text":"hi"`, `"text":"ho"`)
	wantFault(t, h.request(t, http.MethodPost, "/chat", other), 409, "MESSAGE_EXISTS")
}

func TestTwoEqualAnswersAtOnceAreOneRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	body := c.output("c1", "mine").post("s1")
	var posted sync.WaitGroup
	replies := make([]*reply, 4)
	for i := range replies {
		posted.Go(func() { replies[i] = h.request(t, http.MethodPost, "/chat", body) })
	}
	posted.Wait()
	playContinuation(h.AwaitRun(t, "default", "s1", first), "c1")
	for _, r := range replies {
		if got := mergeDeltas(dataLines(streamOf(t, r).rest())); got != mergeDeltas(wentOn) {
			t.Errorf("got %s", got)
		}
	}
	if got := h.State.Newest("default", "s1").GetRunId(); got != "run_2" {
		t.Errorf("newest run: got %s", got)
	}
}

func TestOfAYesAndANoAtOnceOneCounts(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "y1")
	bodies := []string{c.respond("y1", true).post("s1"), c.respond("y1", false).post("s1")}
	var posted sync.WaitGroup
	replies := make([]*reply, len(bodies))
	for i, body := range bodies {
		posted.Go(func() { replies[i] = h.request(t, http.MethodPost, "/chat", body) })
	}
	posted.Wait()
	run := h.AwaitRun(t, "default", "s1", first)
	run.Show(1, Resumed(), ApprovalResponse("y1", "approve"))
	run.Show(2, Result("y1", "2"), StepCommitted(), Completed())
	run.Complete(ToolMessage(2, "y1", "2"))
	a, b := dataLines(streamOf(t, replies[0]).rest()), dataLines(streamOf(t, replies[1]).rest())
	if a != b || !strings.Contains(a, `"tool-output-available","toolCallId":"y1"`) {
		t.Errorf("got %s and %s", a, b)
	}
	if got := h.State.Newest("default", "s1").GetRunId(); got != "run_2" {
		t.Errorf("newest run: got %s", got)
	}
}

func TestServerToolsAreNoAnswers(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Call("s1", `{}`), Result("s1", "1"), ClientCall("c1", `{}`), StepCommitted(), Suspended())
	run.Suspend([]*statev1.Call{{ToolCallId: "c1", SessionId: "s1", RunId: "run_1", ToolName: "add", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL}}, AssistantMessage(1, "", "s1", "c1"), ToolMessage(1, "s1", "1"))
	c := &uiClient{}
	c.apply(t, stream.rest())
	stream = h.chat(t, c.output("c1", "mine").post("s1"))
	playContinuation(h.AwaitRun(t, "default", "s1", run), "c1")
	if got := mergeDeltas(dataLines(stream.rest())); got != mergeDeltas(wentOn) {
		t.Errorf("got %s", got)
	}
}

func TestAConversationThatIsOverTakesNoAnswers(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	_, c := startAsking(t, h, "c1")
	if got := h.request(t, http.MethodPost, "/chat/s1/abort", ""); got.StatusCode != http.StatusOK && got.StatusCode != http.StatusAccepted {
		t.Fatalf("abort: got %d", got.StatusCode)
	}
	wantFault(t, h.request(t, http.MethodPost, "/chat", c.output("c1", 1).post("s1")), 409, "OWNER_NOT_CONTINUABLE")
}

func TestAnInterruptedConversationContinuesWithTheAnswers(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	h.request(t, http.MethodPost, "/chat/s1/interrupt", "")
	body := c.output("c1", "mine").post("s1")
	stream := h.chat(t, body)
	run := h.AwaitRun(t, "default", "s1", first)
	if run.GetEntry() != statev1.RunEntry_RUN_ENTRY_RESUME || len(h.State.Starts()) != 1 {
		t.Errorf("got %v after %d starts, want that the answers resume the session", run.Run, len(h.State.Starts()))
	}
	playContinuation(run, "c1")
	if got := mergeDeltas(dataLines(stream.rest())); got != mergeDeltas(wentOn) {
		t.Errorf("got %s", got)
	}
}

func TestAClientToolIsAnsweredWhileTheFirstStreamIsOpen(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	live := h.chat(t, chatBody("s1", "hi"))
	first := h.AwaitRun(t, "default", "s1", nil)
	first.Show(1, Started(), StepStarted(), ClientCall("c1", `{"a":1}`))
	events := live.until("tool-input-available")
	c := &uiClient{}
	c.apply(t, events)
	call := &statev1.Call{ToolCallId: "c1", SessionId: "s1", RunId: "run_1", ToolName: "add", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL}
	stream := h.chat(t, c.output("c1", "mine").post("s1"))
	first.Show(1, StepCommitted(), Suspended())
	first.Suspend([]*statev1.Call{call}, AssistantMessage(1, "", "c1"))
	playContinuation(h.AwaitRun(t, "default", "s1", first), "c1")
	// It ends with the first run, or continues if the answer came before that end.
	if got := dataLines(live.rest()); !strings.Contains(got, "tool-calls") && !strings.Contains(got, `"finishReason":"stop"`) {
		t.Errorf("the first stream: got %s", got)
	}
	c.apply(t, stream.rest())
	if c.reason != "stop" || len(c.asked) != 1 || c.call("c1")["output"] != "of c1" {
		t.Errorf("got %s, asked %v", c, c.asked)
	}
}

func TestHostileMessagesAreTypedErrors(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxBodyBytes = 4 << 20 })
	startAsking(t, h, "c1", "y1")
	assistant := func(parts string) string {
		return `{"id":"s1","messages":[{"id":"msg_run1","role":"assistant","parts":[{"type":"step-start"},` + parts + `]}]}`
	}
	for name, tc := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"parts that are no list":     {`{"id":"s1","message":{"role":"assistant","parts":{}}}`, 400, "BODY_INVALID"},
		"a state of a number":        {assistant(`{"type":"tool-add","toolCallId":"c1","state":1}`), 400, "BODY_INVALID"},
		"an approval of a text":      {assistant(`{"type":"tool-add","toolCallId":"y1","state":"approval-responded","approval":"yes"}`), 400, "BODY_INVALID"},
		"an approval without id":     {assistant(`{"type":"tool-add","toolCallId":"y1","state":"approval-responded","approval":{"approved":true}}`), 400, "MESSAGE_INVALID"},
		"an approval without answer": {assistant(`{"type":"tool-add","toolCallId":"y1","state":"approval-responded","approval":{"id":"a-y1"}}`), 400, "MESSAGE_INVALID"},
		"an answer without approval": {assistant(`{"type":"tool-add","toolCallId":"y1","state":"approval-responded"}`), 400, "MESSAGE_INVALID"},
		"another approval":           {assistant(`{"type":"tool-add","toolCallId":"y1","state":"approval-responded","approval":{"id":"a-y2","approved":true}}`), 400, "KIND_MISMATCH"},
		"a result for an approval":   {assistant(`{"type":"tool-add","toolCallId":"y1","state":"output-available","output":1}`), 400, "KIND_MISMATCH"},
		"a result for what is asked": {assistant(`{"type":"tool-add","toolCallId":"y1","state":"output-available","output":1,"approval":{"id":"a-y1"}}`), 400, "KIND_MISMATCH"},
		"an approval for a tool":     {assistant(`{"type":"tool-add","toolCallId":"c1","state":"approval-responded","approval":{"id":"a-c1","approved":true}}`), 400, "KIND_MISMATCH"},
		"a long id of a call":        {assistant(`{"type":"tool-add","toolCallId":"` + strings.Repeat("x", 300) + `","state":"output-available"}`), 400, "ID_INVALID"},
		"a long id of the message":   {`{"id":"s1","message":{"id":"` + strings.Repeat("x", 300) + `","role":"assistant","parts":[]}}`, 400, "ID_INVALID"},
		"a long run id":              {`{"id":"s1","message":"x","runId":"` + strings.Repeat("x", 300) + `"}`, 400, "ID_INVALID"},
		"another assistant message":  {`{"id":"s1","message":{"id":"m9","role":"assistant","parts":[]}}`, 409, "RUN_STALE"},
		"a result that is too large": {assistant(`{"type":"tool-add","toolCallId":"c1","state":"output-available","output":"` + strings.Repeat("x", 1<<20) + `"},
			{"type":"tool-add","toolCallId":"y1","state":"output-denied"}`), 413, "RESULT_TOO_LARGE"},
		"what is open is answered elsewhere": {assistant(`{"type":"tool-add","toolCallId":"c1","state":"output-available","output":1,"approval":{"id":"x","approved":true}},
			{"type":"tool-add","toolCallId":"y1","state":"output-available","output":1,"approval":{"id":"a-y1","approved":true}},
			{"type":"tool-add","toolCallId":"z1","state":"output-available","output":1}`), 409, "SESSION_SUSPENDED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFault(t, h.request(t, http.MethodPost, "/chat", tc.body), tc.status, tc.code)
		})
	}
	t.Cleanup(func() {
		for _, call := range h.State.PendingCalls("default", "s1") {
			if call.GetAnswer() != nil {
				t.Errorf("call %s has an answer: %v", call.GetToolCallId(), call.GetAnswer())
			}
		}
	})
}

func TestOddPartsAreNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	c.output("c1", "mine")
	body := strings.Replace(c.post("s1"), `"parts":[{"type":"step-start"}`, `"parts":[{}],"parts":[null,1,"x",[],{"toolCallId":"c1"},{"type":"data-x","toolCallId":"c1","state":"output-available"},`+
		`{"type":"tool-add","toolCallId":"","state":"output-available"},{"type":"step-start"}`, 1)
	stream := h.chat(t, body)
	playContinuation(h.AwaitRun(t, "default", "s1", first), "c1")
	if got := mergeDeltas(dataLines(stream.rest())); got != mergeDeltas(wentOn) {
		t.Errorf("got %s", got)
	}
	if got := h.State.Submits()[0].GetAnswers(); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}
