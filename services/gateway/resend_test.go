package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// openCall returns an open client tool call of the run.
func openCall(run *Run, id string, step int32) []*statev1.Call {
	return []*statev1.Call{{
		ToolCallId: id, SessionId: run.GetSessionId(), RunId: run.GetRunId(), Step: step, ToolName: "add", Input: `{"a":1}`,
		Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL,
	}}
}

func TestAResumeByAContinuedRunReceivesTheWholeMessage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	stream := h.chat(t, c.output("c1", "mine").post("s1"))
	playContinuation(h.AwaitRun(t, "default", "s1", first), "c1")
	c.apply(t, stream.rest())
	named := &uiClient{}
	named.replay(t, h.resume(t, "/chat/s1/stream?runId=run_1&fromSequence=0").rest())
	if named.String() != c.String() || named.reason != "stop" {
		t.Errorf("got %s, finished with %s; want %s", named, named.reason, c)
	}
}

// playContinuedTwice begins a run that suspends on c1, and continues it with two more runs before
// its reader sees the end of the first.
func playContinuedTwice(t *testing.T, h *fixture, told func()) {
	t.Helper()
	first := h.AwaitRun(t, "default", "s1", nil)
	first.Show(1, Started(), StepStarted(), ClientCall("c1", `{"a":1}`))
	told()
	h.Stream.WithholdLive(true)
	first.Show(1, StepCommitted(), Suspended())
	first.Suspend(openCall(first, "c1", 1), AssistantMessage(1, "", "c1"))
	second := first.Continue()
	second.Show(1, Resumed())
	second.Show(2, Result("c1", `"of c1"`))
	second.Commit(ToolMessage(2, "c1", `"of c1"`))
	playAsk(second, 3, "c3")
	third := second.Continue()
	playContinuation(third, "c3")
	h.Stream.WithholdLive(false)
}

func TestADeliveryFollowsTheContinuationsOfItsRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	posted := h.chat(t, chatBody("s1", "hi"))
	var got, resumed *reader
	playContinuedTwice(t, h, func() {
		posted.until("tool-input-available")
		resumed = h.resume(t, "/chat/s1/stream")
		resumed.until("tool-input-available")
		got = posted
	})
	for name, stream := range map[string]*reader{"posted": got, "resumed": resumed} {
		told := dataLines(stream.rest())
		if !strings.Contains(told, `"toolCallId":"c1","output":"of c1"`) || !strings.Contains(told, `"toolCallId":"c3","output":"of c3"`) ||
			strings.Count(told, `"finish"`) != 1 || !strings.HasSuffix(told, `"finishReason":"stop"}`+"\n[DONE]\n") || strings.Contains(told, `"tool-input-available","toolCallId":"c3"`) {
			t.Errorf("%s: got %s", name, told)
		}
	}
}

func TestADeliveryFollowsContinuationsWithoutTheLog(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.Heartbeat = 5 * time.Millisecond }) // two heartbeats detect a lost log
	posted := h.chat(t, chatBody("s1", "hi"))
	first := h.AwaitRun(t, "default", "s1", nil)
	posted.until("start")
	h.Stream.SetUnavailable(true)
	playAsk(first, 1, "c1")
	playContinuation(first.Continue(), "c1")
	h.Stream.LoseRecords("default", "s1")
	h.Stream.SetUnavailable(false)
	c := &uiClient{id: "msg_run1"}
	if c.apply(t, posted.rest()); c.reason != "stop" || c.call("c1")["output"] != "of c1" || !strings.Contains(c.String(), "It is 2.") {
		t.Errorf("got %s, finished with %s", c, c.reason)
	}
}

func TestAnEditThatFindsARunLiveWaitsAsItsMessage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "one"))
	first := h.AwaitRun(t, "default", "s1", nil)
	body := strings.Replace(editBody("u-two", "two"), "{", `{"onBusy":"enqueue",`, 1)
	waiting := h.chat(t, body)
	again := h.chat(t, body)
	playAnswer(first)
	playWaitingRun(h.AwaitRun(t, "default", "s1", first))
	for _, stream := range []*reader{waiting, again} {
		if got := mergeDeltas(dataLines(stream.rest())); got != mergeDeltas(answerToTwo) {
			t.Errorf("got %s", got)
		}
	}
}

func TestADiscardedWaitingMessageCanBeSentAgain(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"said":        queueBody("s1", "two"),
		"regenerated": regenerateBody(userMessage("u-one", "one"), userMessage("u-two", "two")),
		"edited":      editBody("u-two", "two, but other"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			h.chat(t, chatBody("s1", "one"))
			first := h.AwaitRun(t, "default", "s1", nil)
			for _, run := range []string{"run_2", "run_3"} { // twice
				waiting := h.chat(t, queueBody("s1", "two"))
				text(t, h.request(t, http.MethodPost, "/chat/s1/interrupt?wait=1000", `{"runId":"`+run+`"}`))
				waiting.rest()
			}
			playAnswer(first)
			stream := h.chat(t, body)
			again := stream
			if name != "regenerated" { // which is not a repetition
				again = h.chat(t, body)
			}
			playText(t, h, first, 3, "Two.")
			for _, stream := range slices.Compact([]*reader{stream, again}) {
				if got := dataLines(stream.rest()); !strings.Contains(got, `"messageId":"msg_run4"`) || !strings.Contains(got, "Two.") {
					t.Errorf("got %s", got)
				}
			}
			if got := storedConversation(t, h); strings.Count(got, "u-two") != 1 {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestAnEditWithTheStoredTextIsARepetition(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	first := playText(t, h, nil, 1, "One.")
	if got := dataLines(h.chat(t, editBody("u-hi", "hi")).rest()); !strings.Contains(got, "One.") {
		t.Errorf("a client that tries again: got %s", got)
	}
	stream := h.chat(t, editBody("u-hi", "ho"))
	second := playText(t, h, first, 2, "Two.")
	want := dataLines(stream.rest())
	if got := dataLines(h.chat(t, editBody("u-hi", "ho")).rest()); got != want {
		t.Errorf("again: got %s, want %s", got, want)
	}
	stream = h.chat(t, editBody("u-hi", "hi")) // back to the first text
	third := playText(t, h, second, 3, "Three.")
	if got := dataLines(stream.rest()); !strings.Contains(got, "Three.") {
		t.Errorf("back: got %s", got)
	}
	body := toJSON(map[string]any{"id": "s1", "trigger": "regenerate-message", "messageId": "msg_run3", "messages": []any{userMessage("u-hi", "hi")}})
	stream = h.chat(t, body)
	playText(t, h, third, 4, "Four.")
	want = dataLines(stream.rest())
	if got := dataLines(h.chat(t, body).rest()); got != want || !strings.Contains(got, "Four.") {
		t.Errorf("regenerated again: got %s", got)
	}
	if got := h.State.Newest("default", "s1").GetRunId(); got != "run_4" {
		t.Errorf("newest run: got %s", got)
	}
}

func TestAnotherTryIsMadeOfWhatHasFailed(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	first := h.AwaitRun(t, "default", "s1", nil)
	first.Fail("broken", "tool_failed")
	stream := h.chat(t, editBody("u-hi", "hi"))
	playText(t, h, first, 1, "Two.")
	if got := dataLines(stream.rest()); !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
}

func TestTheClientsKeyCountsForAMessageThatIsSent(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"again": regenerateBody(userMessage("u-hi", "hi")), "edited": editBody("u-hi", "hi")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			one := h.chat(t, body, "X-Holdfast-Request-Key", "k1")
			playAnswer(h.AwaitRun(t, "default", "s1", nil))
			want := mergeDeltas(dataLines(one.rest()))
			if got := mergeDeltas(dataLines(h.chat(t, body, "X-Holdfast-Request-Key", "k1").rest())); got != want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestAMessageToAnUnknownAgentIsRefusedAsThat(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	playText(t, h, nil, 1, "One.")
	other := strings.Replace(chatBody("s1", "ho"), "{", `{"agentType":"nobody",`, 1)
	wantFault(t, h.request(t, http.MethodPost, "/chat", other), 409, "AGENT_MISMATCH")
}

func TestAClientThatWasCutReceivesTheNextSteps(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	live := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Call("s1", `{}`), Result("s1", "1"), StepCommitted())
	c := &uiClient{}
	c.apply(t, live.until("finish-step"))
	run.Commit(AssistantMessage(1, "", "s1"), ToolMessage(1, "s1", "1"))
	run.Show(2, StepStarted(), ClientCall("c9", `{"a":1}`), StepCommitted(), Suspended())
	run.Suspend(openCall(run, "c9", 2), AssistantMessage(2, "", "c9"))
	c.asked = nil
	c.apply(t, h.chat(t, c.post("s1")).rest())
	if c.reason != "tool-calls" || !slices.Contains(c.asked, "c9") || len(c.parts) != 4 || c.parts[2]["type"] != "step-start" {
		t.Errorf("got %s, finished with %s", c, c.reason)
	}
}

func TestAnOlderClientThatWasCutInACallReceivesTheRest(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := streamOf(t, h.request(t, http.MethodPost, "/chat?aiSdk=6", chatBody("s1", "hi")))
	run := h.AwaitRun(t, "default", "s1", nil)
	playAsk(run, 1, "c1", "y1")
	stream.rest()
	c := clientWith("msg_run1", uiPart{"type": "step-start"},
		uiPart{"type": "tool-add", "toolCallId": "c1", "state": "input-streaming"},
		uiPart{"type": "tool-add", "toolCallId": "y1", "state": "input-available", "input": uiPart{"a": 1}})
	c.apply(t, streamOf(t, h.request(t, http.MethodPost, "/chat?aiSdk=6", c.post("s1"))).rest())
	if c.call("c1")["state"] != "input-available" || c.call("y1")["state"] != "approval-requested" || c.reason != "tool-calls" {
		t.Errorf("got %s, finished with %s", c, c.reason)
	}
}

func TestAnOlderClientThatWasCutInATextReceivesTheRest(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	stream := h.chat(t, c.output("c1", "mine").post("s1"))
	run := h.AwaitRun(t, "default", "s1", first)
	run.Show(1, Resumed())
	run.Show(2, Result("c1", `"of c1"`))
	run.Show(3, StepStarted(), Text("It "))
	c.apply(t, stream.until("It "))
	again := streamOf(t, h.request(t, http.MethodPost, "/chat?aiSdk=6", c.post("s1")))
	run.Show(3, Text("is 2."), StepCommitted(), Completed())
	run.Complete(ToolMessage(2, "c1", `"of c1"`), AssistantMessage(3, "It is 2."))
	if c.apply(t, again.rest()); c.reason != "stop" || c.failed != "" {
		t.Errorf("got %s, %q: %s", c.reason, c.failed, c)
	}
	said := ""
	for _, p := range c.parts {
		if p["type"] == "text" {
			said += p["text"].(string)
		}
	}
	if said != "It is 2." {
		t.Errorf("got %q", said)
	}
}

func TestAnInterruptedConversationContinuesItsMessageForAllReaders(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	text(t, h.request(t, http.MethodPost, "/chat/s1/interrupt", ""))
	page := &uiClient{}
	page.replay(t, h.resume(t, "/chat/s1/stream").rest())
	if !slices.Equal(page.asked, []string{"c1"}) {
		t.Errorf("interrupted: asked %v", page.asked)
	}
	stream := h.chat(t, c.output("c1", "mine").post("s1"))
	run := h.AwaitRun(t, "default", "s1", first)
	if run.GetEntry() != statev1.RunEntry_RUN_ENTRY_RESUME || run.GetMessageId() != "msg_run1" {
		t.Fatalf("got %v", run.Run)
	}
	playContinuation(run, "c1")
	c.apply(t, stream.rest())
	replayed := &uiClient{}
	replayed.replay(t, h.resume(t, "/chat/s1/stream?fromSequence=0").rest())
	if replayed.String() != c.String() {
		t.Errorf("replayed: got %s, want %s", replayed, c)
	}
	if got, want := storedConversation(t, h), "u-hi: hi; msg_run1: It is 2."; got != want {
		t.Errorf("history: got %s", got)
	}
}

func TestOnlyAnswersOfTheLastStepAreGiven(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Call("s1", `{}`), Result("s1", "1"), StepCommitted())
	run.Commit(AssistantMessage(1, "", "s1"), ToolMessage(1, "s1", "1"))
	run.Show(2, StepStarted(), ClientCall("c2", `{"a":1}`), StepCommitted(), Suspended())
	run.Suspend(openCall(run, "c2", 2), AssistantMessage(2, "", "c2"))
	c := &uiClient{}
	c.apply(t, stream.rest())
	c.call("s1")["output"] = strings.Repeat("x", 1_100_000) // large, and not an answer of the client
	stream = h.chat(t, c.output("c2", "mine").post("s1"))
	playContinuation(h.AwaitRun(t, "default", "s1", run), "c2")
	stream.rest()
	if got := h.State.Submits()[0].GetAnswers(); len(got) != 1 || got[0].GetToolCallId() != "c2" {
		t.Errorf("got %d answers", len(got))
	}
}

func TestTheRunThatAClientNamesMayBeAnyOfTheNewestMessage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	stream := h.chat(t, c.output("c1", "mine").post("s1"))
	second := h.AwaitRun(t, "default", "s1", first)
	playContinuation(second, "c1")
	stream.rest()
	more := h.chat(t, strings.Replace(chatBody("s1", "more"), "{", `{"runId":"run_1",`, 1))
	third := playText(t, h, second, 4, "More.")
	more.rest()
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatBody("s1", "on"), "X-Holdfast-Run-Id", "run_1"), 409, "RUN_STALE")
	on := h.chat(t, chatBody("s1", "on"), "X-Holdfast-Run-Id", "run%5F3")
	playText(t, h, third, 5, "On.")
	on.rest()
	wantFault(t, h.request(t, http.MethodPost, "/chat", strings.Replace(chatBody("s9", "x"), "{", `{"runId":"run_1",`, 1)), 409, "RUN_STALE")
	wantFault(t, h.request(t, http.MethodPost, "/chat", strings.Replace(editBody("u-x", "x"), `"id":"s1"`, `"id":"s9","runId":"run_1"`, 1)), 409, "RUN_STALE")
}

func TestAnEarlierAnswerIsAnsweredAgainWhereTheWholeConversationCame(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	first := playText(t, h, nil, 1, "One.")
	h.chat(t, chatBody("s1", "two"))
	second := playText(t, h, first, 2, "Two.")
	stream := h.chat(t, toJSON(map[string]any{"id": "s1", "trigger": "regenerate-message", "messageId": "msg_run1",
		"messages": []any{userMessage("u-hi", "hi"), clientWith("msg_run1").message(), userMessage("u-two", "two")}}))
	playText(t, h, second, 3, "One again.")
	stream.rest()
	if got, want := storedConversation(t, h), "u-hi: hi; msg_run3: One again."; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestARunWithoutOutputIsNoMessage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, _ := startAsking(t, h, "c1")
	stream := h.chat(t, chatBody("s1", "two"))
	second := h.AwaitRun(t, "default", "s1", first)
	second.Show(2, Started(), Result("c1", `"given up"`), StepCommitted())
	second.Commit(ToolMessage(2, "c1", `"given up"`))
	second.Fail("It did not work.", "provider_denied")
	if got := dataLines(stream.rest()); !strings.Contains(got, "It did not work.") {
		t.Errorf("got %s", got)
	}
	for _, path := range []string{"/messages?sessionId=s1", "/snapshot?sessionId=s1"} {
		if got := text(t, h.request(t, http.MethodGet, path, "")); strings.Contains(got, `"parts":[]`) || !strings.Contains(got, `"given up"`) {
			t.Errorf("%s: got %s", path, got)
		}
	}
}
