package gateway_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

const submitC1 = `{"toolCallId":"c1","result":1}`

// startShowingCall plays a run of s1 that has shown the call c1 and not suspended on it. It returns
// a client that has run the tool.
func startShowingCall(t *testing.T, h *fixture) (*Run, *uiClient) {
	t.Helper()
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Call("server", `{"a":1}`), ClientCall("c1", `{"a":1}`))
	c := &uiClient{}
	c.apply(t, stream.until(`"toolCallId":"c1","toolName":"add","input"`))
	return run, c.output("c1", 2)
}

// playSuspension plays the end of that step.
func playSuspension(run *Run) {
	run.Show(1, Result("server", "1"), StepCommitted(), Suspended())
	run.Suspend([]*statev1.Call{{
		ToolCallId: "c1", SessionId: "s1", RunId: run.GetRunId(), Step: 1, ToolName: "add", Input: `{"a":1}`, Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL,
	}}, AssistantMessage(1, "", "server", "c1"), ToolMessage(1, "server", "1"))
}

func TestAnAnswerBeforeTheSuspensionWaitsForIt(t *testing.T) {
	t.Parallel()
	for name, plans := range map[string]func(*Run){
		"not planned": func(*Run) {}, "planned": func(run *Run) { run.RecordPlan("server", "c1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			run, _ := startShowingCall(t, h)
			plans(run)
			var pending []<-chan *reply
			for range 8 {
				pending = append(pending, h.postAsync(t, "/chat/s1/submit-tool-result", submitC1))
			}
			before := h.State.CallCount()
			waitFor(t, "the answers are given again", func() bool { return h.State.CallCount() >= before+16 })
			playSuspension(run)
			counts := map[string]int{}
			for _, answered := range pending {
				var got struct{ Status, Code string }
				if err := json.Unmarshal([]byte(text(t, <-answered)), &got); err != nil {
					t.Fatal(err)
				}
				counts[got.Status+got.Code]++
			}
			if counts["accepted"] != 1 || counts["already_completed"] != 7 {
				t.Errorf("got %v, want one accepted and seven already_completed", counts)
			}
			if got := h.State.Newest("default", "s1"); got.GetEntry() != statev1.RunEntry_RUN_ENTRY_CONTINUATION {
				t.Errorf("got %v, want it continued", got)
			}
		})
	}
}

func TestAnAnswerThatWaitsTooLongForTheSuspensionMayBeGivenAgain(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.StatePatience = 0 })
	run, _ := startShowingCall(t, h)
	early := func() {
		t.Helper()
		r := h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", submitC1)
		wantFault(t, r, http.StatusServiceUnavailable, "CALL_NOT_OPEN")
		if got := r.Header.Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After: got %q, want 1", got)
		}
	}
	early()
	run.RecordPlan("server", "c1")
	early()
	client := clients(t, h)["connect"]
	q := &agentv1.SubmitToolResultRequest{SessionId: "s1", ToolCallId: "c1", Answer: &agentv1.SubmitToolResultRequest_Result{Result: "1"}}
	if _, err := client.SubmitToolResult(t.Context(), q); !errors.Is(rpc.FromConnect(err), fault.Unavailable) || reason(err) != "CALL_NOT_OPEN" {
		t.Errorf("got %v, want CALL_NOT_OPEN", err)
	}
	wantFault(t, h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", `{"toolCallId":"c2","result":1}`), 404, "UNKNOWN_TOOL_CALL")
	playSuspension(run)
	if got, err := client.SubmitToolResult(t.Context(), q); err != nil || got.GetStatus() != agentv1.SubmitToolResultResponse_STATUS_ACCEPTED {
		t.Errorf("got %v, %v; want it accepted", got, err)
	}
}

func TestAnAnswerToASessionThatWasAbortedSaysSo(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	_, c := startAsking(t, h, "c1")
	text(t, h.request(t, http.MethodPost, "/chat/s1/abort", ""))
	wantFault(t, h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", submitC1), 409, "OWNER_NOT_CONTINUABLE")
	wantFault(t, h.request(t, http.MethodPost, "/chat", c.output("c1", 2).post("s1")), 409, "OWNER_NOT_CONTINUABLE")
}

// next returns a new user message after the client's messages.
func (c *uiClient) next(more ...string) string {
	body := map[string]any{"id": "s1", "messages": []any{userMessage("u-hi", "hi"), c.message(), userMessage("u-two", "two")}}
	for i := 0; i < len(more); i += 2 {
		body[more[i]] = more[i+1]
	}
	return toJSON(body)
}

func TestAMessageWithAnEarlyAnswerIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.StatePatience = 0 })
	run, c := startShowingCall(t, h)
	body := c.next("onBusy", "enqueue")
	wantFault(t, h.request(t, http.MethodPost, "/chat", body), 503, "CALL_NOT_OPEN") // only the stream has it
	wantFault(t, h.request(t, http.MethodPost, "/chat", c.next("onBusy", "reject")), 409, "SESSION_BUSY")
	run.RecordPlan("server", "c1")
	wantFault(t, h.request(t, http.MethodPost, "/chat", body), 503, "CALL_NOT_OPEN")
	playSuspension(run)
	if got := h.State.Newest("default", "s1"); got.GetRunId() != run.GetRunId() || storedConversation(t, h) != "u-hi: hi; msg_run1: " {
		t.Errorf("something of it was written: %v, %s", got, storedConversation(t, h))
	}
	stream := h.chat(t, body)
	playText(t, h, run, 2, "Two.")
	if got := dataLines(stream.rest()); !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
	if got := lastStart(h).GetAnswers(); len(got) != 1 || got[0].GetToolCallId() != "c1" {
		t.Errorf("got %v, want the answer with the message", got)
	}
}

func TestAMessageWithAnEarlyAnswerIsSentOnceTheCallIsOpen(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run, c := startShowingCall(t, h)
	run.RecordPlan("server", "c1")
	before := h.State.CallCount()
	pending := h.postAsync(t, "/chat", c.next("onBusy", "enqueue"))
	waitFor(t, "the message is tried again", func() bool { return h.State.CallCount() >= before+5 })
	playSuspension(run)
	stream := streamOf(t, <-pending)
	playText(t, h, run, 2, "Two.")
	if got := dataLines(stream.rest()); !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
}

func TestAnInvalidAnswerDoesNotBlockItsMessage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run, c := startAsking(t, h, "y1")
	stream := h.chat(t, c.output("y1", 1).next())
	playText(t, h, run, 2, "Two.")
	if got := dataLines(stream.rest()); !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
}

func TestUnconsumedAnswersContinueTheSession(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	text(t, h.request(t, http.MethodPost, "/chat/s1/interrupt", ""))
	body := c.output("c1", 2).post("s1")
	stream := h.chat(t, body)
	second := h.AwaitRun(t, "default", "s1", first)
	second.Show(1, Interrupted())
	second.Interrupt()
	stream.rest()
	stream = h.chat(t, body)
	third := h.AwaitRun(t, "default", "s1", second)
	playContinuation(third, "c1")
	if got := dataLines(stream.rest()); !strings.Contains(got, "It is ") || !strings.Contains(got, `"of c1"`) {
		t.Errorf("got %s", got)
	}
	if third.GetEntry() != statev1.RunEntry_RUN_ENTRY_RESUME || len(h.State.Starts()) != 1 {
		t.Errorf("got %v after %d starts, want that the answers resume the session", third.Run, len(h.State.Starts()))
	}
}

func TestAMessageWaitsWhoseAnswersAreForFormerSteps(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.State.Announce(t, &statev1.Agent{AgentType: "demo", OnBusy: statev1.BusyPolicy_BUSY_POLICY_ENQUEUE})
	first, c := startAsking(t, h, "c1")
	stream := h.chat(t, c.output("c1", 1).post("s1"))
	run := h.AwaitRun(t, "default", "s1", first)
	run.Show(2, Resumed(), Result("c1", "1"))
	run.Commit(ToolMessage(2, "c1", "1"))
	run.Show(3, StepStarted())
	run.Show(3, Call("server", `{}`), Result("server", "1"))
	waiting := h.chat(t, c.next())
	if got := h.State.Newest("default", "s1"); got.GetRunId() != run.GetRunId() {
		t.Errorf("got %v, want the message to wait", got)
	}
	run.Show(3, StepCommitted(), Completed())
	run.Complete(AssistantMessage(3, "One.", "server"), ToolMessage(3, "server", "1"))
	stream.rest()
	playText(t, h, run, 4, "Two.")
	if got := dataLines(waiting.rest()); !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
}

func TestAnotherAnswerToAQuestionWithoutIDSaysNothingAgain(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	first := playText(t, h, nil, 1, "One.")
	question := userMessage("", "hi")
	delete(question, "id")
	stream := h.chat(t, toJSON(map[string]any{"id": "s1", "trigger": "regenerate-message", "messageId": "msg_run1", "message": question}))
	playText(t, h, first, 2, "Two.")
	stream.rest()
	if got, want := storedConversation(t, h), "u-hi: hi; msg_run2: Two."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAKeyOfAnotherKindOfRequestIsRefused(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"another answer": regenerateBody(userMessage("u-hi", "hi")), "an edit": editBody("u-hi", "ho"), "another message": chatBody("s1", "two"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			h.chat(t, chatBody("s1", "hi"), "X-Holdfast-Request-Key", "k1")
			playText(t, h, nil, 1, "One.")
			wantFault(t, h.request(t, http.MethodPost, "/chat", body, "X-Holdfast-Request-Key", "k1"), 409, "REQUEST_KEY_REUSED")
		})
	}
}

func TestARepeatedKeyOfALostEditReceivesItsRun(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"another answer": regenerateBody(userMessage("u-hi", "hi")), "an edit": editBody("u-hi", "hi")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			h.chat(t, body, "X-Holdfast-Request-Key", "k1")
			first := playText(t, h, nil, 1, "One.")
			for range 2 {
				if got := dataLines(h.chat(t, body, "X-Holdfast-Request-Key", "k1").rest()); !strings.Contains(got, "One.") {
					t.Errorf("got %s, want the first answer", got)
				}
				if first != nil {
					h.chat(t, chatBody("s1", "two"))
					playText(t, h, first, 2, "Two.")
					first = nil
				}
			}
			if got, want := storedConversation(t, h), "u-hi: hi; msg_run1: One.; u-two: two; msg_run2: Two."; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestAStopIsNotUndoneByAClientThatSendsByItself(t *testing.T) {
	t.Parallel()
	for _, major := range []string{"5", "6"} {
		h := open(t, nil)
		first, c := startAsking(t, h, "c1")
		body := c.output("c1", 2).post("s1")
		stream := h.chat(t, body)
		second := h.AwaitRun(t, "default", "s1", first)
		second.Show(1, Interrupted())
		second.Interrupt()
		stream.rest()
		got := dataLines(streamOf(t, h.request(t, http.MethodPost, "/chat?aiSdk="+major, body)).rest())
		if newest := h.State.Newest("default", "s1"); newest.GetRunId() != second.GetRunId() {
			t.Errorf("ai %s: run %s was begun behind the stop", major, newest.GetRunId())
		}
		if !strings.Contains(got, `"type":"error"`) {
			t.Errorf("ai %s: got %s, want an end behind which nothing is sent by itself", major, got)
		}
	}
}

func TestAMessageWaitsThoughTheStreamIsAway(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.State.Announce(t, &statev1.Agent{AgentType: "demo", OnBusy: statev1.BusyPolicy_BUSY_POLICY_ENQUEUE})
	first, c := startAsking(t, h, "c1")
	stream := h.chat(t, c.output("c1", 1).post("s1"))
	run := h.AwaitRun(t, "default", "s1", first)
	stream.until("start")
	h.Stream.SetUnavailable(true)
	waiting := h.postAsync(t, "/chat", c.next())
	waitFor(t, "the message is taken", func() bool {
		starts := h.State.Starts()
		return starts[len(starts)-1].GetOnBusy() == statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED && len(starts[len(starts)-1].GetAnswers()) > 0
	})
	h.Stream.SetUnavailable(false)
	run.Show(2, Resumed(), Result("c1", "1"), StepStarted(), Text("One."), StepCommitted(), Completed())
	run.Complete(ToolMessage(2, "c1", "1"), AssistantMessage(2, "One."))
	stream.rest()
	playText(t, h, run, 3, "Two.")
	if got := dataLines(streamOf(t, <-waiting).rest()); !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
}
