package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// callKinds are the kinds of calls, with how a client answers them.
var callKinds = map[string]func(*uiClient) *uiClient{
	"c1": func(c *uiClient) *uiClient { return c.output("c1", "of c1") },
	"y1": func(c *uiClient) *uiClient { return c.respond("y1", true) },
}

func TestAContinuationThatIsCutAtAnyChunkAndResumedIsTheUncutMessage(t *testing.T) {
	t.Parallel()
	for call, give := range callKinds {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			whole := func(cut int) (string, bool) {
				h := open(t, nil)
				first, c := startAsking(t, h, call)
				response := h.request(t, http.MethodPost, "/chat", give(c).post("s1"))
				playContinuation(h.AwaitRun(t, "default", "s1", first), call)
				stream := streamOf(t, response)
				var seen []event
				for range cut {
					e, err := stream.next()
					if err != nil {
						return "", false
					}
					seen = append(seen, e)
				}
				c.apply(t, seen)
				_ = response.Body.Close()
				again := h.request(t, http.MethodGet, "/chat/s1/stream?fromSequence=0", "")
				c.asked = nil
				c.replay(t, streamOf(t, again).rest())
				if call == "c1" && len(c.asked) > 0 {
					t.Errorf("cut at %d: %v would run again", cut, c.asked)
				}
				return c.String(), true
			}
			want, _ := whole(0)
			for cut := 1; ; cut++ {
				got, ok := whole(cut)
				if !ok {
					break
				}
				if got != want {
					t.Errorf("cut at %d: got\n%s\nwant\n%s", cut, got, want)
				}
			}
			if !strings.Contains(want, "It is 2.") || !strings.Contains(want, `"output":"of `+call) {
				t.Errorf("got %s", want)
			}
		})
	}
}

func TestAContinuationThatIsCutAtAnyChunkAndResentByPostIsTheUncutMessage(t *testing.T) {
	t.Parallel()
	for call, give := range callKinds {
		for _, lost := range []bool{false, true} {
			t.Run(call+map[bool]string{true: " of a log that is lost"}[lost], func(t *testing.T) {
				t.Parallel()
				h := open(t, func(c *gateway.Config) { c.Heartbeat = 5 * time.Millisecond }) // two heartbeats detect a lost log
				first, c := startAsking(t, h, call)
				stream := h.chat(t, give(c).post("s1"))
				run := h.AwaitRun(t, "default", "s1", first)
				run.Show(1, Resumed())
				if call == "y1" {
					run.Show(2, ApprovalResponse(call, "approve"))
				}
				run.Show(2, Result(call, `"of `+call+`"`))
				run.Commit(returned(call))
				run.Show(3, StepStarted(), Text("One "), Text("more."), Call("s1", `{"a":1}`), Result("s1", "1"), StepCommitted())
				run.Commit(AssistantMessage(3, "One more.", "s1"), ToolMessage(3, "s1", "1"))
				run.Show(4, StepStarted(), Text("It is "), Text("2."), StepCommitted(), Completed())
				run.Complete(AssistantMessage(4, "It is 2."))
				events := stream.rest()
				if lost {
					h.Stream.LoseRecords("default", "s1")
				}
				begin := c.String()
				uncut := &uiClient{}
				for cut := len(events); cut >= 0; cut-- {
					c := fromString(t, begin)
					c.apply(t, events[:cut])
					if cut == len(events) {
						uncut = c
					}
					c = fromString(t, c.String())
					c.asked = nil
					c.apply(t, h.chat(t, c.post("s1")).rest())
					if c.String() != uncut.String() || slices.Contains(c.asked, "c1") {
						t.Errorf("cut at %d: got\n%s\nwant\n%s\nasked %v", cut, c, uncut, c.asked)
					}
				}
			})
		}
	}
}

// returned returns the stored end of a call, with its approval.
func returned(call string) *eventv1.Message {
	m := ToolMessage(2, call, `"of `+call+`"`)
	if call == "y1" {
		m.GetParts()[0].GetToolResult().Approval = &eventv1.ApprovalVerdict{ApprovalId: "a-y1", Approved: true}
	}
	return m
}

func TestAnOlderClientThatPostsAgainGetsTheNextSteps(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first, c := startAsking(t, h, "c1")
	stream := h.chat(t, c.output("c1", "of c1").post("s1"))
	run := h.AwaitRun(t, "default", "s1", first)
	run.Show(1, Resumed())
	run.Show(2, Result("c1", `"of c1"`))
	run.Show(3, StepStarted(), Text("One "))
	c.apply(t, stream.until("One "))
	run.Show(3, Text("more."), Call("s1", `{"a":1}`), Result("s1", "1"), StepCommitted())
	run.Show(4, StepStarted(), Text("It is 2."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(4, "It is 2."))
	again := streamOf(t, h.request(t, http.MethodPost, "/chat?aiSdk=6", c.post("s1")))
	events := again.rest()
	c.apply(t, events)
	if got := dataLines(events); strings.Contains(got, "reset-step") || c.call("s1")["output"] != 1.0 || !strings.Contains(c.String(), "It is 2.") {
		t.Errorf("got %s: %s", c, got)
	}
}

func TestEveryReaderReceivesPendingCalls(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.ReplayWindow = 0 })
	first, c := startAsking(t, h, "c1", "y1")
	for range 3 {
		page := &uiClient{}
		page.replay(t, h.resume(t, "/chat/s1/stream").rest())
		if page.String() != c.String() || !slices.Equal(page.asked, c.asked) || page.reason != "tool-calls" {
			t.Errorf("got %s, want %s", page, c)
		}
	}
	submitted := c.output("c1", 1).respond("y1", true).post("s1")
	stream := h.chat(t, submitted)
	run := h.AwaitRun(t, "default", "s1", first)
	page := h.resume(t, "/chat/s1/stream") // answered, and not continued yet
	playContinuation(run, "c1", "y1")
	stream.rest()
	reloaded := &uiClient{}
	reloaded.replay(t, page.rest())
	if reloaded.reason != "stop" || slices.Contains(reloaded.asked, "c1") {
		t.Errorf("got %s, asked %v", reloaded, reloaded.asked)
	}
	if got := h.request(t, http.MethodGet, "/chat/s1/stream", "").StatusCode; got != http.StatusNoContent {
		t.Errorf("over: got %d", got)
	}
}

func TestCallsMissingInTheLogComeAtTheEnd(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted())
	run.Suspend([]*statev1.Call{
		{ToolCallId: "c1", SessionId: "s1", RunId: "run_1", Step: 1, ToolName: "add", Input: `{"a":1}`, Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL},
		{ToolCallId: "y1", SessionId: "s1", RunId: "run_1", Step: 1, ToolName: "add", Input: `{"a":1}`, Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "a-y1"},
	}, AssistantMessage(1, "", "c1", "y1"))
	c := &uiClient{}
	c.apply(t, stream.rest())
	if !slices.Equal(c.asked, []string{"c1", "y1"}) || c.call("y1")["state"] != "approval-requested" {
		t.Errorf("got %s, asked %v", c, c.asked)
	}
}

func TestALateAnswerReceivesTheMessageAfterTheTimeout(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	c := &uiClient{}
	stream := h.chat(t, chatBody("s1", "hi"))
	first := h.AwaitRun(t, "default", "s1", nil)
	first.Show(1, Started(), StepStarted(), ClientCall("c1", `{"a":1}`), StepCommitted(), Suspended())
	calls := openCall(first, "c1", 1)
	calls[0].DeadlineAt = time.Now().UnixMilli()
	first.Suspend(calls, AssistantMessage(1, "", "c1"))
	c.apply(t, stream.rest())
	run := h.AwaitRun(t, "default", "s1", first)
	run.Show(1, Resumed())
	run.Show(2, Result("c1", `"timeout"`))
	run.Show(3, StepStarted(), Text("Too late."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(3, "Too late."))
	c.apply(t, h.chat(t, c.output("c1", "mine").post("s1")).rest())
	if c.reason != "stop" || c.call("c1")["output"] != "timeout" || !strings.Contains(c.String(), "Too late.") {
		t.Errorf("got %s", c)
	}
}

func TestMessagesSayWhoWroteThemWhereThatIsWanted(t *testing.T) {
	t.Parallel()
	for _, wanted := range []bool{true, false} {
		h := open(t, func(c *gateway.Config) { c.MessageMetadata = wanted })
		stream := h.chat(t, chatBody("s1", "hi"))
		playAnswer(h.AwaitRun(t, "default", "s1", nil))
		got := undated(dataLines(stream.rest()))
		if want := `{"type":"start","messageId":"msg_run1","messageMetadata":{"runId":"run_1","agentType":"demo"}}`; strings.HasPrefix(got, want) != wanted {
			t.Errorf("got %s", got)
		}
		if !wanted && strings.Contains(got, "messageMetadata") {
			t.Errorf("got %s", got)
		}
	}
}

func TestTheStateServiceMayBeAwayForAMomentWhileAnswersAreGiven(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.StatePatience = time.Minute })
	first, c := startAsking(t, h, "c1")
	h.State.FailNext(1)
	stream := h.chat(t, c.output("c1", "mine").post("s1"))
	playContinuation(h.AwaitRun(t, "default", "s1", first), "c1")
	if got := mergeDeltas(dataLines(stream.rest())); got != mergeDeltas(wentOn) {
		t.Errorf("got %s", got)
	}
}

func TestAPlainMessageCostsNoQuestionBesideItsStart(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	before := h.State.CallCount()
	stream := h.chat(t, strings.Replace(chatBody("s1", "hi"), "{", `{"agentType":"demo",`, 1))
	stream.until("") // the headers
	if got := h.State.CallCount() - before; got != 1 {
		t.Errorf("%d calls", got)
	}
	playAnswer(h.AwaitRun(t, "default", "s1", nil))
	stream.rest()
}
