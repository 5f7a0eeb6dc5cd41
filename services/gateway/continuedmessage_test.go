package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// wholeAnswer is a message of two runs: the second one has the answer to a call of the first.
const wholeAnswer = `{"type":"start","messageId":"msg_run1"}
{"type":"start-step"}
{"type":"tool-input-start","toolCallId":"c1","toolName":"add"}
{"type":"tool-input-available","toolCallId":"c1","toolName":"add","input":{"a":1}}
{"type":"finish-step"}
{"type":"tool-output-available","toolCallId":"c1","output":"<two>"}
{"type":"start-step"}
{"type":"text-start","id":"text-3-1"}
{"type":"text-delta","id":"text-3-1","delta":"It is 2."}
{"type":"text-end","id":"text-3-1"}
{"type":"finish-step"}
{"type":"finish","finishReason":"stop"}
[DONE]
`

// playSuspended plays a run that waits for the answer to a call.
func playSuspended(h *fixture, t *testing.T) *Run {
	t.Helper()
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Call("c1", `{"a":1}`), StepCommitted(), Suspended())
	run.Suspend([]*statev1.Call{{ToolCallId: "c1", ToolName: "add", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL}}, AssistantMessage(1, "", "c1"))
	if got := dataLines(stream.rest()); !strings.HasSuffix(got, `{"type":"finish","finishReason":"tool-calls"}`+"\n[DONE]\n") {
		t.Errorf("suspended: got %s", got)
	}
	return run
}

func TestAContinuationIsReadWithTheWholeMessage(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.Heartbeat = 10 * time.Millisecond })
	more := playSuspended(h, t).Continue()
	more.Show(1, Resumed())
	more.Show(2, Result("c1", `"<two>"`))
	live := h.resume(t, "/chat/s1/stream")
	events := live.until("<two>")
	more.Show(2, StepCommitted())
	more.Commit(ToolMessage(2, "c1", `"<two>"`))
	more.Show(3, StepStarted(), Text("It is 2."), StepCommitted(), Completed())
	snapshot := text(t, h.request(t, "GET", "/snapshot?sessionId=s1", ""))
	more.Complete(AssistantMessage(3, "It is 2."))
	if got := mergeDeltas(dataLines(append(events, live.rest()...))); got != wholeAnswer {
		t.Errorf("live: got\n%s\nwant\n%s", got, wholeAnswer)
	}
	if got := mergeDeltas(dataLines(h.resume(t, "/chat/s1/stream?fromSequence=0").rest())); got != wholeAnswer {
		t.Errorf("again: got %s", got)
	}
	h.Stream.LoseRecords("default", "s1")
	if got := mergeDeltas(dataLines(h.resume(t, "/chat/s1/stream?fromSequence=0").rest())); got != wholeAnswer {
		t.Errorf("without the log: got %s", got)
	}
	parts := `"parts":[{"type":"step-start"},{"type":"tool-add","state":"output-available","toolCallId":"c1","input":{"a":1},"output":"\u003ctwo\u003e"}`
	for name, got := range map[string]string{"snapshot": snapshot, "messages": text(t, h.request(t, "GET", "/messages?sessionId=s1", ""))} {
		state := map[string]string{"snapshot": "streaming", "messages": "done"}[name]
		if !strings.Contains(got, parts+`,{"type":"step-start"},{"type":"text","text":"It is 2.","state":"`+state+`"}]`) || strings.Count(got, `"assistant"`) != 1 {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

func TestPagesDoNotSplitAMessageOfTwoRuns(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	more := playSuspended(h, t).Continue()
	more.Complete(ToolMessage(2, "c1", `2`), AssistantMessage(3, "It is 2."))
	h.chat(t, chatBody("s1", "more"))
	third := h.AwaitRun(t, "default", "s1", more)
	third.Interrupt(AssistantMessage(4, "Once"))
	if _, err := clients(t, h)["connect"].Resume(t.Context(), &agentv1.ResumeRequest{SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
	// The messages: user, run 1, 2 and 2, user, run 3. Run 4 continues in a message of its own.
	h.AwaitRun(t, "default", "s1", third).Complete(AssistantMessage(5, "Twice"))
	ids := func(path string) string {
		var page struct {
			Messages []struct{ ID string }
		}
		if err := json.Unmarshal([]byte(text(t, h.request(t, "GET", path, ""))), &page); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range page.Messages {
			all = append(all, m.ID)
		}
		return strings.Join(all, " ")
	}
	for limit := range 8 {
		var all []string
		for offset := 0; offset < 8; offset += limit + 1 {
			if got := ids(fmt.Sprintf("/messages?sessionId=s1&limit=%d&offset=%d", limit+1, offset)); got != "" {
				all = append(all, got)
			}
		}
		if got, want := strings.Join(all, " "), "u-hi msg_run1 u-more msg_run3 msg_run4"; got != want {
			t.Errorf("pages of %d: got %s, want %s", limit+1, got, want)
		}
	}
}

func TestCallsThatWaitForAYesAreShownSo(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	call := func(id string) *statev1.Call {
		return &statev1.Call{ToolCallId: id, ToolName: "add", ApprovalId: "a-" + id, Kind: statev1.CallKind_CALL_KIND_APPROVAL}
	}
	run.Suspend([]*statev1.Call{call("c1"), call("c2")}, AssistantMessage(1, "", "c1", "c2", "c3"), ToolMessage(1, "c3", "2"))
	const no = `{"toolCallId":"c2","kind":"approval-response","approvalId":"a-c2","approved":false,"reason":"no"}`
	if r := h.request(t, "POST", "/chat/s1/submit-tool-result", no); r.StatusCode != http.StatusOK {
		t.Fatalf("got %d: %s", r.StatusCode, text(t, r))
	}
	want := `{"type":"tool-add","state":"approval-requested","toolCallId":"c1","input":{"a":1},"approval":{"id":"a-c1"}},` +
		`{"type":"tool-add","state":"approval-responded","toolCallId":"c2","input":{"a":1},"approval":{"id":"a-c2","approved":false,"reason":"no"}},` +
		`{"type":"tool-add","state":"output-available","toolCallId":"c3","input":{"a":1},"output":2}`
	for _, path := range []string{"/messages?sessionId=s1", "/snapshot?sessionId=s1"} {
		if got := text(t, h.request(t, "GET", path, "")); !strings.Contains(got, want) {
			t.Errorf("%s: got %s", path, got)
		}
	}
	can, err := clients(t, h)["json"].CanResume(t.Context(), &agentv1.CanResumeRequest{SessionId: "s1"})
	if err != nil || can.GetCanResume() || can.GetReason() != "awaiting_answers" || can.GetStatus() != "suspended_client_tool" {
		t.Errorf("got %v, %v", can, err)
	}
}

func TestARepeatedKeyOfARunThatWasContinuedGetsTheWholeMessage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"), "X-Holdfast-Request-Key", "k1")
	run := h.AwaitRun(t, "default", "s1", nil)
	playAsk(run, 1, "c1")
	c := &uiClient{}
	c.apply(t, stream.rest())
	stream = h.chat(t, c.output("c1", "mine").post("s1"))
	playContinuation(h.AwaitRun(t, "default", "s1", run), "c1")
	c.apply(t, stream.rest())
	again := &uiClient{}
	again.apply(t, h.chat(t, chatBody("s1", "hi"), "X-Holdfast-Request-Key", "k1").rest())
	if again.String() != c.String() || again.reason != "stop" {
		t.Errorf("got %s, finished with %s; want %s", again, again.reason, c)
	}
}
