package gateway_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// queueBody returns the body of a POST /chat whose message may wait.
func queueBody(session, text string) string {
	return strings.Replace(chatBody(session, text), "{", `{"onBusy":"enqueue",`, 1)
}

const answerToTwo = `{"type":"start","messageId":"msg_run2"}
{"type":"start-step"}
{"type":"text-start","id":"text-3-1"}
{"type":"text-delta","id":"text-3-1","delta":"Two."}
{"type":"text-end","id":"text-3-1"}
{"type":"finish-step"}
{"type":"finish","finishReason":"stop"}
[DONE]
`

// playWaitingRun plays the run that has waited.
func playWaitingRun(run *Run) {
	run.Show(3, Started(), StepStarted(), Text("Two."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(3, "Two."))
}

func TestAMessageThatWaitsIsAnsweredInItsOwnStream(t *testing.T) {
	t.Parallel()
	for name, post := range map[string]func(*fixture, *testing.T) *reader{
		"body": func(h *fixture, t *testing.T) *reader { return h.chat(t, queueBody("s1", "two")) },
		"header": func(h *fixture, t *testing.T) *reader {
			return h.chat(t, chatBody("s1", "two"), "X-Holdfast-On-Busy", "enqueue")
		},
		"agent": func(h *fixture, t *testing.T) *reader {
			h.State.Announce(t, &statev1.Agent{AgentType: "demo", OnBusy: statev1.BusyPolicy_BUSY_POLICY_ENQUEUE})
			return h.chat(t, chatBody("s1", "two"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			live := h.chat(t, chatBody("s1", "one"))
			first := h.AwaitRun(t, "default", "s1", nil)
			waiting := post(h, t)
			playAnswer(first)
			if got := mergeDeltas(dataLines(live.rest())); got != mergeDeltas(uncut) {
				t.Errorf("the live run: got %s", got)
			}
			playWaitingRun(h.AwaitRun(t, "default", "s1", first))
			if got := mergeDeltas(dataLines(waiting.rest())); got != mergeDeltas(answerToTwo) {
				t.Errorf("got\n%s\nwant\n%s", got, answerToTwo)
			}
		})
	}
}

func TestAWaitingStreamIsKeptAliveAndShowsNothingOfTheLiveRun(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.Heartbeat = 10 * time.Millisecond })
	h.chat(t, chatBody("s1", "one"))
	first := h.AwaitRun(t, "default", "s1", nil)
	first.Show(1, Started(), StepStarted())
	response := h.request(t, http.MethodPost, "/chat", queueBody("s1", "two"), "X-Forwarded-For", "192.0.2.1")
	if got := response.Header.Get("X-Holdfast-Run-Id"); got != "run_2" {
		t.Errorf("run: got %q", got)
	}
	lines := bufio.NewReader(response.Body)
	for beats := 0; beats < 3; first.Show(1, Text("busy")) {
		line, err := lines.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "data") {
			t.Fatalf("got %q, %v", line, err)
		}
		if strings.HasPrefix(line, ": keep-alive") {
			beats++
		}
	}
	first.Show(1, StepCommitted(), Completed())
	first.Complete(AssistantMessage(1, "busy"))
	playWaitingRun(h.AwaitRun(t, "default", "s1", first))
	if got := mergeDeltas(dataLines((&reader{t, lines}).rest())); got != mergeDeltas(answerToTwo) {
		t.Errorf("got %s", got)
	}
}

func TestAWaitingRunThatIsGivenUpEndsItsStreams(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "one"))
	first := h.AwaitRun(t, "default", "s1", nil)
	waiting := h.chat(t, queueBody("s1", "two"), "X-Holdfast-Request-Key", "k2")
	native := h.resume(t, "/sse?sessionId=s1&runId=run_2")
	native.until("{}") // caught-up
	given := h.request(t, http.MethodPost, "/chat/s1/interrupt?wait=1000", `{"runId":"run_2"}`)
	if got := text(t, given); given.StatusCode != http.StatusOK || !strings.Contains(got, `"effect":"done"`) {
		t.Errorf("give up: got %d %s", given.StatusCode, got)
	}
	want := `{"type":"finish","finishReason":"interrupted"}` + "\n[DONE]\n"
	if got := dataLines(waiting.rest()); got != want {
		t.Errorf("got %s", got)
	}
	if got := dataLines(native.rest()); got != `{"status":"interrupted"}`+"\n" {
		t.Errorf("native: got %s", got)
	}
	if got := dataLines(h.chat(t, queueBody("s1", "two"), "X-Holdfast-Request-Key", "k2").rest()); got != want {
		t.Errorf("repeated: got %s", got)
	}
	if r := h.request(t, http.MethodGet, "/chat/s1/stream?runId=run_2", ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("resume: got %d", r.StatusCode)
	}
	playAnswer(first)
}

func TestAWaitingRunIsFoundByItsId(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "one"))
	first := h.AwaitRun(t, "default", "s1", nil)
	h.chat(t, queueBody("s1", "two"))
	resumed := h.resume(t, "/chat/s1/stream?runId=run_2")
	behind := h.resume(t, "/chat/s1/stream?runId=run_2", "Last-Event-ID", "1")
	native := h.resume(t, "/sse?sessionId=s1&runId=run_2&fromSequence=1")
	native.until("{}")
	stream, err := clients(t, h)["grpc"].Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1", RunId: "run_2"})
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, h.request(t, http.MethodGet, "/snapshot?sessionId=s1", "")); !strings.Contains(got, `"waitingRuns":["run_2"]`) {
		t.Errorf("snapshot: got %s", got)
	}
	playAnswer(first)
	playWaitingRun(h.AwaitRun(t, "default", "s1", first))
	if got := mergeDeltas(dataLines(resumed.rest())); got != mergeDeltas(answerToTwo) {
		t.Errorf("got %s", got)
	}
	if got := mergeDeltas(dataLines(behind.rest())); got != mergeDeltas(answerToTwo) {
		t.Errorf("with a cursor of the run before: got %s", got)
	}
	events := native.rest()
	if got := dataLines(events); strings.Contains(got, "run_1") || !strings.Contains(got, "Two.") || events[len(events)-1].name != "end" {
		t.Errorf("native: got %s", got)
	}
	if got := frames(t, stream); !strings.HasPrefix(got, "caught up, 3.33.1 run_started, ") || !strings.HasSuffix(got, `completed "done"`) || strings.Count(got, "caught up") != 1 {
		t.Errorf("grpc: got %s", got)
	}
	if r := h.request(t, http.MethodGet, "/chat/s1/stream?runId=nobody", ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("an unknown run: got %d", r.StatusCode)
	}
}

func TestAWaitingStreamOutlivesTheStreamServiceAndTheStateService(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "one"))
	first := h.AwaitRun(t, "default", "s1", nil)
	waiting := h.chat(t, queueBody("s1", "two"))
	h.Stream.SetUnavailable(true)
	waitFor(t, "nobody follows any more", func() bool { return h.Stream.OpenReads() == 0 })
	h.State.FailNext(1)
	h.Stream.SetUnavailable(false)
	playAnswer(first)
	playWaitingRun(h.AwaitRun(t, "default", "s1", first))
	if got := mergeDeltas(dataLines(waiting.rest())); got != mergeDeltas(answerToTwo) {
		t.Errorf("got %s", got)
	}
}

func TestPoliciesForABusySessionAreChecked(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.chat(t, chatBody("s1", "one"))
	first := h.AwaitRun(t, "default", "s1", nil)
	wantFault(t, h.request(t, http.MethodPost, "/chat", `{"id":"s1","message":"x","onBusy":"dance"}`), 400, "ON_BUSY_INVALID")
	wantFault(t, h.request(t, http.MethodPost, "/chat", `{"id":"s1","message":"x","onBusy":1}`), 400, "BODY_INVALID")
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatBody("s1", "x"), "X-Holdfast-On-Busy", "dance"), 400, "ON_BUSY_INVALID")
	wantFault(t, h.request(t, http.MethodPost, "/chat", `{"id":"s1","message":"x","onBusy":"reject"}`, "X-Holdfast-On-Busy", "enqueue"), 409, "SESSION_BUSY")
	for _, text := range []string{"two", "three", "four"} {
		h.chat(t, queueBody("s1", text))
	}
	wantFault(t, h.request(t, http.MethodPost, "/chat", queueBody("s1", "five")), 429, "TOO_MANY_WAITING")
	starts := h.State.Starts()
	if got := starts[len(starts)-1].GetOnBusy(); got != statev1.BusyPolicy_BUSY_POLICY_ENQUEUE {
		t.Errorf("policy: got %v", got)
	}
	playAnswer(first)
}

func TestAMessageThatWaitsShowsNoSubAgentOfAnother(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	begun := func(call, session string) *eventv1.Chunk {
		return &eventv1.Chunk{Event: &eventv1.Chunk_SubagentStart{SubagentStart: &eventv1.SubagentStart{ToolCallId: call, SubSessionId: session, SubAgentType: "other"}}}
	}
	live := h.chat(t, chatBody("s1", "one"))
	first := h.AwaitRun(t, "default", "s1", nil)
	waiting := h.chat(t, queueBody("s1", "two"))
	first.Show(1, Started(), StepStarted(), begun("of-c1", "c1"))
	live.until(`"of-c1"`)
	below := first.Child("c1")
	below.Show(1, Started(), StepStarted(), begun("of-c2", "c2"))
	live.until(`"of-c2"`)
	below.Complete()
	first.Show(1, StepCommitted(), Completed())
	first.Complete(AssistantMessage(1, "One."))
	live.rest()
	playWaitingRun(h.AwaitRun(t, "default", "s1", first))
	if got := dataLines(waiting.rest()); strings.Contains(got, "subagent") || !strings.Contains(got, "Two.") {
		t.Errorf("got %s", got)
	}
}
