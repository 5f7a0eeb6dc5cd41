package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// playAnswer plays a whole run of two steps.
func playAnswer(run *Run) {
	run.Show(0, Started())
	run.Show(1, StepStarted(), Text("Let me "), Text("add."), Call("c1", `{"a":1}`), Result("c1", `{"sum":2}`), StepCommitted())
	run.Show(2, StepStarted(), Text("It is "), Text("2."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(1, "Let me add.", "c1"), ToolMessage(1, "c1", `{"sum":2}`), AssistantMessage(2, "It is 2."))
}

const uncut = `{"type":"start","messageId":"msg_run1"}
{"type":"start-step"}
{"type":"text-start","id":"text-1-1"}
{"type":"text-delta","id":"text-1-1","delta":"Let me "}
{"type":"text-delta","id":"text-1-1","delta":"add."}
{"type":"text-end","id":"text-1-1"}
{"type":"tool-input-start","toolCallId":"c1","toolName":"add"}
{"type":"tool-input-available","toolCallId":"c1","toolName":"add","input":{"a":1}}
{"type":"tool-output-available","toolCallId":"c1","output":{"sum":2}}
{"type":"finish-step"}
{"type":"start-step"}
{"type":"text-start","id":"text-2-1"}
{"type":"text-delta","id":"text-2-1","delta":"It is "}
{"type":"text-delta","id":"text-2-1","delta":"2."}
{"type":"text-end","id":"text-2-1"}
{"type":"finish-step"}
{"type":"finish","finishReason":"stop"}
[DONE]
`

func TestAChatStreamsTheRunAndEndsWithDone(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	response := h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi"), "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Vercel-Ai-Ui-Message-Stream": "v1",
		"X-Accel-Buffering": "no", "X-Holdfast-Session-Id": "s1", "X-Holdfast-Run-Id": "run_1",
	} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	stream := streamOf(t, response)
	playAnswer(h.AwaitRun(t, "default", "s1", nil))
	events := stream.rest()
	if got := mergeDeltas(dataLines(events)); got != mergeDeltas(uncut) {
		t.Errorf("got\n%s\nwant\n%s", got, mergeDeltas(uncut))
	}
	start := h.State.Starts()[0]
	if got := start.GetMessages()[0]; got.GetId() != "u-hi" || got.GetRole() != eventv1.Role_ROLE_USER || got.GetParts()[0].GetText().GetText() != "hi" {
		t.Errorf("message: got %v", got)
	}
	if agent := h.State.Newest("default", "s1").GetAgentType(); agent != "demo" || start.GetRequestKey() == "" {
		t.Errorf("start: got %v of the agent %s", start, agent)
	}
	if got := start.GetTraceparent(); !strings.HasPrefix(got, "00-0af7651916cd43dd8448eb211c80319c-") {
		t.Errorf("traceparent: got %q", got)
	}
}

func TestEveryEventHasAnIDThatCountsThePartsOfItsChunk(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(0, Started())
	run.Show(1, StepStarted(), Text("Let me "))
	events := stream.until("Let me ") // the reader is live; it would receive the steps as stored otherwise
	run.Show(1, Text("add."), Call("c1", `{"a":1}`), Result("c1", `{"sum":2}`), StepCommitted())
	run.Show(2, StepStarted(), Text("It is "), Text("2."), StepCommitted(), Completed())
	run.Complete()
	var ids []string
	for _, e := range append(events, stream.rest()...) {
		ids = append(ids, placeOfID(e.id))
	}
	want := "start,1.33.2,1.33.3:1,1.33.3,1.33.4,1.33.5:1,1.33.5:2,1.33.5,1.33.6,1.committed,2.1.1,2.1.2:1,2.1.2,2.1.3,2.committed:1,2.committed,2.ended,2.ended"
	if got := strings.Join(ids, ","); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestASecondTurnContinuesTheSession(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "one"))
	first := h.AwaitRun(t, "default", "s1", nil)
	playAnswer(first)
	stream.rest()
	stream = h.chat(t, `{"id":"s1","message":{"role":"user","parts":[{"type":"text","text":"two"}]}}`)
	second := h.AwaitRun(t, "default", "s1", first)
	second.Show(3, Started(), StepStarted(), Text("Two."), StepCommitted(), Completed())
	second.Complete()
	if got := dataLines(stream.rest()); !strings.Contains(got, `"messageId":"msg_run2"`) || strings.Contains(got, "It is") {
		t.Errorf("got %s", got)
	}
	if got := h.State.Starts()[1].GetAgentType(); got != "" {
		t.Errorf("agent of the second turn: got %q, want the session's own", got)
	}
}

func TestAFailedRunEndsWithAnError(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("I"))
	run.Fail("The model is not available.", "provider_error")
	got := dataLines(stream.rest())
	want := `{"type":"text-end","id":"text-1-1"}
{"type":"finish-step"}
{"type":"error","errorText":"The model is not available."}
[DONE]
`
	if !strings.HasSuffix(got, want) || strings.Contains(got, "internals") {
		t.Errorf("got %s", got)
	}
}

func TestOddSessionIdsWorkInBodiesAndPaths(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a.b", "*.>", "with space", "a/b/../c", "ünï ☃", "%2F", "..a", "?&#", strings.Repeat("x", 256), "a//b"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			h := open(t, nil)
			stream := h.chat(t, chatBody(id, "hi"))
			run := h.AwaitRun(t, "default", id, nil)
			run.Show(1, Started(), StepStarted(), Text("One"))
			stream.until("One")
			path := "/chat/" + url.PathEscape(id) + "/stream"
			resumed := h.resume(t, path)
			run.Show(1, Text(" two"), StepCommitted(), Completed())
			run.Complete(AssistantMessage(1, "One two"))
			if a, b := dataLines(stream.rest()), dataLines(resumed.rest()); !strings.HasSuffix(b, a) {
				t.Errorf("got %s, want the end %s", b, a)
			}
			page := text(t, h.request(t, http.MethodGet, "/messages?sessionId="+url.QueryEscape(id), ""))
			if !strings.Contains(page, "One two") {
				t.Errorf("messages: got %s", page)
			}
		})
	}
}

func TestBadRequestsAreTypedErrors(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxBodyBytes = 4 << 10 })
	user := func(parts string) string {
		return `{"id":"s","messages":[{"role":"user","parts":[` + parts + `]}]}`
	}
	for name, tc := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"no body":             {"", 400, "BODY_INVALID"},
		"not JSON":            {"{", 400, "BODY_INVALID"},
		"two values":          {"{} {}", 400, "BODY_INVALID"},
		"a list":              {"[]", 400, "BODY_INVALID"},
		"an id of a number":   {`{"id":1}`, 400, "BODY_INVALID"},
		"no id":               {`{"message":"hi"}`, 400, "ID_INVALID"},
		"a long id":           {chatBody(strings.Repeat("x", 300), "hi"), 400, "ID_INVALID"},
		"a control character": {chatBody("a\x01b", "hi"), 400, "ID_INVALID"},
		"no message":          {`{"id":"s"}`, 400, "MESSAGE_INVALID"},
		"no messages":         {`{"id":"s","messages":[]}`, 400, "MESSAGE_INVALID"},
		"no parts":            {user(""), 400, "MESSAGE_INVALID"},
		"an empty text":       {user(`{"type":"text","text":"  "}`), 400, "MESSAGE_INVALID"},
		"a file by http":      {user(`{"type":"file","mediaType":"image/png","url":"http://example.com"}`), 400, "FILE_INVALID"},
		"a system message":    {`{"id":"s","messages":[{"role":"system","parts":[{"type":"text","text":"x"}]}]}`, 400, "MESSAGE_INVALID"},
		"an answer to nobody": {`{"id":"s","messages":[{"role":"assistant","parts":[]}],"trigger":"submit-message"}`, 404, "SESSION_NOT_FOUND"},
		"again, of no id":     {`{"id":"s","messages":[{"role":"user","parts":[{"type":"text","text":"x"}]}],"trigger":"regenerate-message"}`, 400, "MESSAGE_INVALID"},
		"an unknown trigger":  {`{"id":"s","message":"x","trigger":"dance"}`, 400, "TRIGGER_UNSUPPORTED"},
		"an unknown agent":    {`{"id":"s","message":"x","agentType":"nobody"}`, 404, "AGENT_NOT_FOUND"},
		"a large body":        {chatBody("s", strings.Repeat("x", 5<<10)), 413, "BODY_TOO_LARGE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFault(t, h.request(t, http.MethodPost, "/chat", tc.body, "Content-Type", "text/plain"), tc.status, tc.code)
		})
	}
}

func TestRoutesAndMethodsThatDoNotExistAreTypedErrors(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	wantFault(t, h.request(t, http.MethodGet, "/nowhere", ""), 404, "ROUTE_NOT_FOUND")
	wantFault(t, h.request(t, http.MethodGet, "/chat/a/b/stream", ""), 404, "ROUTE_NOT_FOUND")
	wrong := h.request(t, http.MethodGet, "/chat", "")
	if got := wrong.Header.Get("Allow"); got != "POST" {
		t.Errorf("Allow: got %q", got)
	}
	wantFault(t, wrong, 405, "METHOD_NOT_ALLOWED")
	wantFault(t, h.request(t, http.MethodGet, "/status?sessionId=nobody", ""), 404, "SESSION_NOT_FOUND")
	wantFault(t, h.request(t, http.MethodGet, "/sse?sessionId=nobody", ""), 404, "SESSION_NOT_FOUND")
	wantFault(t, h.request(t, http.MethodGet, "/sse?sessionId=s&fromSequence=x", ""), 400, "CURSOR_INVALID")
	wantFault(t, h.request(t, http.MethodGet, "/messages", ""), 400, "ID_INVALID")
	wantFault(t, h.request(t, http.MethodGet, "/chat/%ff/stream", ""), 400, "ID_INVALID")
	wantFault(t, h.request(t, http.MethodGet, "/chat/s/stream?aiSdk=x", ""), 400, "AI_SDK_INVALID")
}

func TestABusySessionIsAConflict(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "one"))
	run := h.AwaitRun(t, "default", "s1", nil)
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatBody("s1", "two"), "X-Holdfast-On-Busy", "reject"), 409, "SESSION_BUSY")
	wantFault(t, h.request(t, http.MethodPost, "/chat", `{"id":"s1","agentType":"other","message":"x"}`), 409, "AGENT_MISMATCH")
	run.Complete()
	stream.rest()
}

func TestARepeatedRequestKeyGetsTheFirstRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "one"), "X-Holdfast-Request-Key", "k1")
	playAnswer(h.AwaitRun(t, "default", "s1", nil))
	stream.rest()
	if got := mergeDeltas(dataLines(h.chat(t, chatBody("s1", "one"), "X-Helix-Request-Key", "k1").rest())); got != mergeDeltas(uncut) {
		t.Errorf("got %s", got)
	}
	if got := lastStart(h).GetRequestKey(); got != "k1" {
		t.Errorf("the request key is %q, want k1", got)
	}
	if got := mergeDeltas(dataLines(h.chat(t, chatBody("s1", "one")).rest())); got != mergeDeltas(uncut) {
		t.Errorf("without a key: got %s", got)
	}
}

func TestAShortAbsenceOfTheStateServiceIsWaitedOut(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.State.FailNext(3)
	stream := h.chat(t, chatBody("s1", "hi"))
	playAnswer(h.AwaitRun(t, "default", "s1", nil))
	if got := mergeDeltas(dataLines(stream.rest())); got != mergeDeltas(uncut) {
		t.Errorf("got %s", got)
	}
}

func TestALongAbsenceOfTheStateServiceIsUnavailable(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.StatePatience = time.Millisecond })
	h.State.FailNext(1000)
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi")), 503, "STORE_UNAVAILABLE")
}

func TestAServiceThatRefusesTheGatewayIsNotTheCallersFault(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.State.FailNextWith(1000, fault.New(fault.Unauthenticated, "BAD_TOKEN", "the service token is missing or wrong"))
	wantFault(t, h.request(t, http.MethodPost, "/chat", chatBody("s1", "hi")), 500, "INTERNAL")
	wantFault(t, h.request(t, http.MethodGet, "/status?sessionId=s1", ""), 500, "INTERNAL")
}

func TestDropsOfTheStreamServiceAreNotSeen(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted())
	want := ""
	for i := range 5 {
		word := fmt.Sprintf("w%d ", i)
		run.Show(1, Text(word))
		stream.until(word)
		h.Stream.DropReads()
		want += word
	}
	h.Stream.SetUnavailable(true)
	run.Show(1, Text("end"), StepCommitted(), Completed())
	run.Complete()
	h.Stream.SetUnavailable(false)
	if got := dataLines(stream.rest()); !strings.Contains(got, `"delta":"end"`) || !strings.HasSuffix(got, "[DONE]\n") || strings.Contains(got, "w4") {
		t.Errorf("got %s", got)
	}
}

func TestAClientThatGoesAwayLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for i := range 20 {
		session := strconv.Itoa(i)
		response := h.request(t, http.MethodPost, "/chat", chatBody(session, "hi"))
		run := h.AwaitRun(t, "default", session, nil)
		run.Show(1, Started(), StepStarted(), Text("One"))
		streamOf(t, response).until("One")
		_ = response.Body.Close()
	}
	waitFor(t, "the calls to the stream service end", func() bool { return h.Stream.OpenReads() == 0 })
}

func TestShutdownBreaksTheConnectionOfOpenStreams(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("One"))
	stream.until("One")
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	if events, err := stream.all(); err == nil {
		t.Errorf("the body ends well after %v", events)
	}
}

func TestALostExecutorIsTakenBackInTheStream(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	begun := run.Show(0, Started())
	run.Show(1, StepStarted(), Text("Void"))
	events := stream.until("Void")
	run.Rewind(begun)
	run.Show(1, StepStarted(), Text("Let me "), Text("add."))
	planned := run.Show(1, Call("c1", `{"a":1}`))
	run.Show(1, Result("c1", `"void"`))
	events = append(events, stream.until(`"void"`)...)
	run.Rewind(planned)
	run.Show(1, Result("c1", `{"sum":2}`), StepCommitted())
	run.Show(2, StepStarted(), Text("It is "), Text("2."), StepCommitted(), Completed())
	run.Complete()
	events = append(events, stream.rest()...)
	got := dataLines(events)
	if strings.Count(got, "reset-step") != 2 {
		t.Errorf("got %s", got)
	}
	// After the last reset-step comes what an uncut stream has after its first start-step.
	_, tail, _ := strings.Cut(uncut, `{"type":"start-step"}`)
	if !strings.HasSuffix(mergeDeltas(got), `{"type":"reset-step"}`+mergeDeltas(tail)) {
		t.Errorf("got %s", got)
	}
}

func TestAnOlderClientIsCutWhenItsPartsAreVoid(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := streamOf(t, h.request(t, http.MethodPost, "/chat?aiSdk=6", chatBody("s1", "hi")))
	run := h.AwaitRun(t, "default", "s1", nil)
	begun := run.Show(0, Started())
	run.Show(1, StepStarted(), Text("Void"))
	stream.until("Void")
	run.Rewind(begun)
	if events, err := stream.all(); err == nil {
		t.Fatalf("the body ends well after %v", events)
	}
	resumed := h.resume(t, "/chat/s1/stream?aiSdk=6")
	playAnswer(run)
	if got := mergeDeltas(dataLines(resumed.rest())); got != mergeDeltas(uncut) {
		t.Errorf("got\n%s\nwant\n%s", got, mergeDeltas(uncut))
	}
}

func TestTheTimeForABodyDoesNotEndItsAnswer(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]*http.Client{"HTTP/1": http.DefaultClient, "HTTP/2": http2(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, func(c *gateway.Config) {
				c.ReadTimeout, c.WriteTimeout, c.Heartbeat = 2*time.Second, 2*time.Second, time.Hour
			})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/chat", strings.NewReader(chatBody("s1", "hi")))
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = response.Body.Close() })
			stream := streamOf(t, &reply{response})
			stream.until("start")
			run := h.AwaitRun(t, "default", "s1", nil)
			quiet := time.NewTimer(4500 * time.Millisecond) // longer than both timeouts
			<-quiet.C
			playAnswer(run)
			if events, err := stream.all(); err != nil {
				t.Errorf("broken after %v: %v", events, err)
			}
		})
	}
}

func TestABodyThatDoesNotArriveIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.ReadTimeout = 50 * time.Millisecond })
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	wantFault(t, &reply{response}, 400, "BODY_INVALID")
}
