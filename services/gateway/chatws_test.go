package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"

	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// talk is the client of a chat socket.
type talk struct {
	*websocket.Conn
	t *testing.T
}

// talkFrame is a frame from the gateway.
type talkFrame struct {
	Type      string
	RequestID string
	Sequence  *int
	Chunk     json.RawMessage
	ErrorText string
	Code      string
	text      string
}

func (h *fixture) talk(t *testing.T, headers ...string) *talk {
	t.Helper()
	conn, _, err := h.upgrade(t, "/chat/ws", nil, headers...) //nolint:bodyclose // the body is the socket
	if err != nil {
		t.Fatal(err)
	}
	return &talk{conn, t}
}

func (s *talk) say(frames ...string) {
	s.t.Helper()
	for _, f := range frames {
		if err := s.Write(s.t.Context(), websocket.MessageText, []byte(f)); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *talk) next() (talkFrame, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	_, text, err := s.Read(ctx)
	if err != nil {
		return talkFrame{}, err
	}
	f := talkFrame{text: string(text)}
	if err := json.Unmarshal(text, &f); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return f, nil
}

// until reads up to the frame that contains the text, and returns all frames, one per line.
func (s *talk) until(part string) string {
	s.t.Helper()
	var all strings.Builder
	for {
		f, err := s.next()
		if err != nil {
			s.t.Fatalf("waiting for %s after\n%s%v", part, all.String(), err)
		}
		fmt.Fprintln(&all, f.text)
		if strings.Contains(f.text, part) {
			return all.String()
		}
	}
}

// drop reads to the close, which must not be a clean one.
func (s *talk) drop(code websocket.StatusCode, reason string) (before []talkFrame) {
	s.t.Helper()
	for {
		f, err := s.next()
		if err == nil {
			before = append(before, f)
			continue
		}
		var closed websocket.CloseError
		if !errors.As(err, &closed) {
			s.t.Fatalf("no close: %v", err)
		}
		wantClose(s.t, closed, code, reason)
		return before
	}
}

// sendFrame returns the frame of a message as WebSocketChatTransport encodes it.
func sendFrame(request, session, words string) string {
	return `{"type":"send","requestId":` + quote(request) + `,"id":` + quote(session) + `,"trigger":"submit-message","messages":[{"id":` +
		quote("u-"+words) + `,"role":"user","parts":[{"type":"text","text":` + quote(words) + `}]}],"headers":{},"body":{}}`
}

func resumeFrame(request, session string) string {
	return `{"type":"resume","requestId":` + quote(request) + `,"id":` + quote(session) + `,"headers":{},"body":{}}`
}

// partsOf checks the order of the frames of a request, and returns their chunks as the events of a
// stream.
func partsOf(t *testing.T, request, text string) string {
	t.Helper()
	var b strings.Builder
	next, state := 0, ""
	for line := range strings.Lines(text) {
		var f talkFrame
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		if f.RequestID != request {
			continue
		}
		switch {
		case f.Type == "start" && state == "":
		case f.Type == "chunk" && (state == "start" || state == "chunk") && f.Sequence != nil && *f.Sequence == next:
			next++
			fmt.Fprintln(&b, string(f.Chunk))
		case f.Type == "end" && state == "chunk":
			fmt.Fprintln(&b, "[DONE]")
		default:
			t.Errorf("%s: %s stands behind %q, %d chunks", request, line, state, next)
		}
		state = f.Type
	}
	return b.String()
}

func TestASocketSendsTheSameMessageAsServerSentEvents(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"s1", "a/b ☃", "a.*.>", `"\`, strings.Repeat("s", 256)} {
		h := open(t, nil)
		s := h.talk(t)
		s.say(sendFrame("r1", id, "hi"))
		run := h.AwaitRun(t, "default", id, nil)
		begun := s.until(`{"type":"start","requestId":"r1"}`)
		stream := h.resume(t, "/chat/"+url.PathEscape(id)+"/stream")
		playAnswer(run)
		got, want := mergeDeltas(partsOf(t, "r1", begun+s.until(`"end"`))), mergeDeltas(dataLines(stream.rest()))
		if got != want || !strings.Contains(want, `"type":"finish"`) {
			t.Errorf("%q: got\n%s\nwant\n%s", id, got, want)
		}
		s.say(resumeFrame("r2", id))
		if got := mergeDeltas(partsOf(t, "r2", s.until(`"end"`))); got != want {
			t.Errorf("%q: again: got\n%s\nwant\n%s", id, got, want)
		}
		s.say(resumeFrame("r3", id+"x"))
		if got, want := s.until("r3"), `{"type":"no-active","requestId":"r3"}`+"\n"; len(id) < 200 && got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestTwoRequestsOnOneSocketAreDeliveredConcurrently(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s := h.talk(t)
	s.say(sendFrame("r1", "s1", "one"), sendFrame("r2", "s2", "two"))
	one, two := h.AwaitRun(t, "default", "s1", nil), h.AwaitRun(t, "default", "s2", nil)
	all := ""
	for i := range 5 {
		one.Show(1, Started(), StepStarted(), Text(fmt.Sprint("one", i)))
		all += s.until(fmt.Sprint("one", i))
		two.Show(1, Started(), StepStarted(), Text(fmt.Sprint("two", i)))
		all += s.until(fmt.Sprint("two", i))
	}
	one.Complete()
	all += s.until(`{"type":"end","requestId":"r1"}`)
	two.Complete()
	all += s.until(`{"type":"end","requestId":"r2"}`)
	for request, word := range map[string]string{"r1": "one", "r2": "two"} {
		got := partsOf(t, request, all)
		if strings.Count(got, word) != 5 || !strings.HasSuffix(got, "[DONE]\n") {
			t.Errorf("%s: got %s", request, got)
		}
	}
}

func TestALostSocketLosesNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first := h.talk(t)
	first.say(sendFrame("r1", "s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("Once "))
	first.until("Once ")
	_ = first.CloseNow()
	waitFor(t, "the gateway has noticed", func() bool { return h.service.OpenStreams() == 0 && h.Stream.OpenReads() == 0 })
	second := h.talk(t)
	second.say(resumeFrame("r1", "s1"))
	all := second.until("Once ")
	run.Show(1, Text("upon"))
	run.Complete()
	all += second.until(`"end"`)
	got := partsOf(t, "r1", all)
	if !strings.HasPrefix(got, `{"type":"start","messageId":"msg_run1"`) || strings.Count(got, "Once ") != 1 || !strings.Contains(got, "upon") {
		t.Errorf("got %s", got)
	}
}

func TestAnAbortEndsTheTellingAndNotTheRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s := h.talk(t)
	s.say(sendFrame("r1", "s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("Once "))
	s.until("Once ")
	s.say(`{"type":"abort","requestId":"r1"}`, `{"type":"abort","requestId":"nobody"}`)
	waitFor(t, "nothing is read any more", func() bool { return h.Stream.OpenReads() == 0 && h.service.OpenStreams() == 1 })
	run.Show(1, Text("upon"))
	if got := len(h.State.Stops()); got != 0 {
		t.Errorf("%d stops were asked for", got)
	}
	s.say(resumeFrame("r2", "s1"))
	all := s.until("upon")
	if strings.Contains(all, "r1") {
		t.Errorf("an aborted request is told: %s", all)
	}
	run.Complete()
	all += s.until(`"end"`)
	partsOf(t, "r2", all)
}

func TestARefusedRequestIsATypedErrorAndTheSocketStays(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s := h.talk(t)
	for text, code := range map[string]string{
		`{"type":"greet","requestId":"r"}`:                                          "FRAME_INVALID",
		`{"requestId":"r"}`:                                                         "FRAME_INVALID",
		`{"type":7,"requestId":"r"}`:                                                "FRAME_INVALID",
		`{"type":"send","requestId":"r","id":["s1"]}`:                               "FRAME_INVALID",
		`{"type":"send","requestId":"r","id":"s1"}`:                                 "FRAME_INVALID",
		`{"type":"send","requestId":"r","id":"s1","messages":{}}`:                   "FRAME_INVALID",
		`{"type":"send","requestId":"r","id":"s1","messages":[],"body":[]}`:         "FRAME_INVALID",
		`{"type":"send","requestId":"r","id":"s1","messages":[],"headers":{"a":1}}`: "FRAME_INVALID",
		`{"type":"send","requestId":"r","id":"s1","messages":[],"headers":["a"]}`:   "FRAME_INVALID",
		`{"type":"send","requestId":"r","id":"s1","messages":[],"headers":{"a":` + quote(strings.Repeat("x", 17<<10)) + `}}`:                                         "FRAME_INVALID",
		`{"type":"resume","requestId":"r","id":"s1","lastSequence":4}`:                                                                                               "FRAME_INVALID",
		`{"type":"resume","requestId":"r","id":"s1","body":{"runId":4}}`:                                                                                             "FRAME_INVALID",
		`{"type":"resume","requestId":"r"}`:                                                                                                                          "ID_INVALID",
		`{"type":"resume","requestId":"r","id":"a\u0000b"}`:                                                                                                          "ID_INVALID",
		`{"type":"send","requestId":"r","messages":[{"role":"user","parts":[]}]}`:                                                                                    "ID_INVALID",
		`{"type":"send","requestId":"r","id":"s1","messages":[]}`:                                                                                                    "MESSAGE_INVALID",
		`{"type":"send","requestId":"r","id":"s1","messages":[{"role":"system","parts":[]}]}`:                                                                        "MESSAGE_INVALID",
		`{"type":"send","requestId":"r","id":"s1","trigger":"x","messages":[{"role":"user","parts":[{"type":"text","text":"x"}]}]}`:                                  "TRIGGER_UNSUPPORTED",
		`{"type":"send","requestId":"r","id":"s1","body":{"agentType":"nobody"},"messages":[{"role":"user","parts":[{"type":"text","text":"x"}]}]}`:                  "AGENT_NOT_FOUND",
		`{"type":"send","requestId":"r","id":"s1","headers":{"x-holdfast-on-busy":"x"},"messages":[{"role":"user","parts":[{"type":"text","text":"x"}]}]}`:           "ON_BUSY_INVALID",
		`{"type":"send","requestId":"r","id":"s1","headers":{"x-holdfast-request-key":"a\u0000"},"messages":[{"role":"user","parts":[{"type":"text","text":"x"}]}]}`: "ID_INVALID",
	} {
		s.say(text)
		f, err := s.next()
		if err != nil {
			t.Fatalf("%.100s: %v", text, err)
		}
		if f.Type != "error" || f.RequestID != "r" || f.Code != code || f.ErrorText == "" || strings.ContainsAny(f.ErrorText, "{}") {
			t.Errorf("%.100s: got %s, want %s", text, f.text, code)
		}
	}
	if h.State.Has("default", "s1") {
		t.Error("a refused request has begun something")
	}
	s.say(resumeFrame("r", "s1"))
	s.until("no-active")
}

func TestAFrameOfNoRequestEndsTheSocket(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, text := range []string{
		``, `no JSON`, `null`, `[]`, `{}`, `{"type":"greet"}`, `{"type":"ping"}`, `{"type":"abort","requestId":""}`, `{"type":"abort","requestId":7}`,
		`{"type":"abort","requestId":"` + strings.Repeat("x", 257) + `"}`, `{"type":"resume","requestId":"a\u0000","id":"s1"}`, "{\"type\":\"abort\",\"requestId\":\"\xff\"}",
		`{"type":"abort","requestId":"a"`,
	} {
		s := h.talk(t)
		s.say(text)
		if before := s.drop(websocket.StatusPolicyViolation, ""); len(before) != 0 {
			t.Errorf("%.50q: got %s", text, before[0].text)
		}
	}
	s := h.talk(t)
	if err := s.Write(t.Context(), websocket.MessageBinary, []byte(resumeFrame("r", "s1"))); err != nil {
		t.Fatal(err)
	}
	s.drop(websocket.StatusPolicyViolation, "FRAME_INVALID")
}

func TestARequestIDIsForOneRequestAtATime(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s := h.talk(t)
	s.say(sendFrame("r1", "s1", "hi"))
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("Once "))
	s.until("Once ")
	s.say(resumeFrame("r1", "s1"))
	if got := s.until("r1"); !strings.Contains(got, `"type":"error"`) || !strings.Contains(got, "REQUEST_EXISTS") {
		t.Errorf("got %s", got)
	}
	waitFor(t, "the first is over as well", func() bool { return h.Stream.OpenReads() == 0 && h.service.OpenStreams() == 1 })
	for range 3 {
		s.say(resumeFrame("r1", "s1"))
		s.until("Once ")
		s.say(`{"type":"abort","requestId":"r1"}`)
	}
	run.Complete()
}

func TestAFrameBringsTheHeadersThatCountAndNoCredentials(t *testing.T) {
	t.Parallel()
	h, acme, other := openWithKeys(t)
	s := h.talk(t, "Authorization", acme)
	const message = `"messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"hi"}]}]`
	send := func(request, body string) {
		s.say(`{"type":"send","requestId":"` + request + `","id":"s1","trigger":"submit-message",` + message +
			`,"headers":{"authorization":` + quote(other) + `,"x-holdfast-request-key":"k1","x-holdfast-on-busy":"enqueue"},"body":` + body + `}`)
	}
	send("r1", `{"id":"other","agentType":"other","messages":[],"trigger":"x","more":{"a":[1]}}`)
	run := h.AwaitRun(t, "acme", "s1", nil)
	if start := h.State.Starts()[0]; start.GetRequestKey() != "k1" || start.GetAgentType() != "other" || start.GetOnBusy().String() != "BUSY_POLICY_ENQUEUE" {
		t.Errorf("got %v", start)
	}
	send("r2", `{"agentType":"other"}`) // the same key means the same run
	run.Show(1, Started(), StepStarted(), Text("Once "))
	all := s.until("Once ") + s.until("Once ")
	run.Complete()
	all += s.until(`"end"`) + s.until(`"end"`)
	if one, two := partsOf(t, "r1", all), partsOf(t, "r2", all); one != two {
		t.Errorf("the repetition got\n%s\nwant\n%s", two, one)
	}
	theirs := h.talk(t, "Authorization", other)
	theirs.say(resumeFrame("r1", "s1"))
	theirs.until("no-active")
	theirs.say(`{"type":"resume","requestId":"r2","id":"s1","headers":{"Authorization":` + quote(acme) + `}}`)
	theirs.until("no-active")
}

func TestAnInvalidChatSocketIsRefusedBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	h, acme, other := openWithKeys(t)
	key := strings.TrimPrefix(acme, "Bearer ")
	for name, tc := range map[string]struct {
		protocols, headers []string
		status             int
	}{
		"no key":         {nil, nil, 401},
		"a wrong one":    {[]string{"holdfast.v2", "holdfast.key." + key + "x"}, nil, 401},
		"a key":          {[]string{"holdfast.v2", "holdfast.key." + key}, nil, 101},
		"another tenant": {nil, []string{"Authorization", other}, 101},
		"another site":   {nil, []string{"Authorization", acme, "Origin", "https://evil.example"}, 403},
		"our page":       {nil, []string{"Authorization", acme, "Origin", h.url}, 101},
	} {
		conn, response, _ := h.upgrade(t, "/chat/ws", tc.protocols, tc.headers...) //nolint:bodyclose // the body is the socket
		if response == nil || response.StatusCode != tc.status {
			t.Errorf("%s: got %v, want %d", name, response, tc.status)
		}
		if tc.protocols != nil && conn != nil && conn.Subprotocol() != "holdfast.v2" {
			t.Errorf("%s: the answer selects %q", name, conn.Subprotocol())
		}
	}
	handshake := []string{"Authorization", acme, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	wantFault(t, h.request(t, http.MethodGet, "/chat/ws?aiSdk=x", "", handshake...), 400, "AI_SDK_INVALID")
	wantFault(t, h.request(t, http.MethodGet, "/chat/ws", "", "Authorization", acme), 426, "UPGRADE_REQUIRED")
	wantFault(t, h.request(t, http.MethodPost, "/chat/ws", "", "Authorization", acme), 405, "METHOD_NOT_ALLOWED")
}

func TestASocketSpeaksTheVersionOfItsClient(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/chat/ws": `"finishReason":"interrupted"`, "/chat/ws?aiSdk=6": `"finishReason":"other"`} {
		h := open(t, nil)
		run := h.begin(t, "s1", "hi", nil)
		run.Interrupt()
		conn, _, err := h.upgrade(t, path, nil) //nolint:bodyclose // the body is the socket
		if err != nil {
			t.Fatal(err)
		}
		s := &talk{conn, t}
		s.say(`{"type":"resume","requestId":"r1","id":"s1","body":{"runId":"` + run.GetRunId() + `"}}`)
		if got := s.until(`"end"`); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestAnswersOverASocketGoOnInTheSameMessage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run, c := startAsking(t, h, "c1")
	s := h.talk(t)
	// A reloaded page receives the call, even if another client has received it before.
	s.say(resumeFrame("r1", "s1"))
	if got := partsOf(t, "r1", s.until(`"end"`)); !strings.Contains(got, `{"type":"tool-input-available","toolCallId":"c1"`) {
		t.Errorf("got %s", got)
	}
	post := c.output("c1", "of c1").post("s1")
	s.say(`{"type":"send","requestId":"r2",` + strings.TrimPrefix(post, "{"))
	playContinuation(h.AwaitRun(t, "default", "s1", run), "c1")
	if got := mergeDeltas(partsOf(t, "r2", s.until(`"end"`))); got != mergeDeltas(wentOn) {
		t.Errorf("got\n%s\nwant\n%s", got, wentOn)
	}
}

func TestAnAnswerGivenAloneIsFollowedByAResume(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run, _ := startAsking(t, h, "c1", "y2")
	s := h.talk(t)
	for _, body := range []string{`{"toolCallId":"c1","result":"of c1"}`, `{"toolCallId":"y2","kind":"approval-response","approvalId":"a-y2","approved":true}`} {
		if r := h.request(t, http.MethodPost, "/chat/s1/submit-tool-result", body); r.StatusCode != http.StatusOK {
			t.Fatalf("got %d %s", r.StatusCode, text(t, r))
		}
	}
	stream := h.resume(t, "/chat/s1/stream")
	s.say(resumeFrame("r1", "s1"))
	begun := s.until(`{"type":"start","requestId":"r1"}`) // before the other one has ended
	playContinuation(h.AwaitRun(t, "default", "s1", run), "c1", "y2")
	over, events := partsOf(t, "r1", begun+s.until(`"end"`)), dataLines(stream.rest())
	if mergeDeltas(over) != mergeDeltas(events) || strings.Contains(over, `"type":"tool-input-available","toolCallId":"c1"`) || !strings.Contains(over, `"toolCallId":"c1","output":"of c1"`) {
		t.Errorf("over the socket\n%s\nas events\n%s", over, events)
	}
}

func TestAResumeOfAContinuedRunReceivesTheWholeMessage(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run, c := startAsking(t, h, "c1")
	stream := h.chat(t, c.output("c1", "of c1").post("s1"))
	second := h.AwaitRun(t, "default", "s1", run)
	s := h.talk(t)
	s.say(`{"type":"resume","requestId":"r1","id":"s1","body":{"runId":"`+run.GetRunId()+`"}}`,
		`{"type":"resume","requestId":"r2","id":"s1","headers":{"x-holdfast-run-id":"`+run.GetRunId()+`"}}`)
	begun := s.until(`"type":"start","requestId"`) + s.until(`"type":"start","requestId"`)
	playContinuation(second, "c1")
	all := begun + s.until(`"end"`) + s.until(`"end"`)
	stream.rest()
	for _, request := range []string{"r1", "r2"} {
		got := partsOf(t, request, all)
		if strings.Count(got, `"type":"start","messageId":"msg_run1"`) != 1 || strings.Contains(got, `"type":"tool-input-available"`) ||
			!strings.Contains(got, `"toolCallId":"c1","output":"of c1"`) || !strings.Contains(got, `2."`) {
			t.Errorf("%s: got\n%s", request, got)
		}
	}
}
