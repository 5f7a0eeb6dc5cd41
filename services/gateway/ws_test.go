package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// socket is the client of a WebSocket.
type socket struct {
	*websocket.Conn
	t *testing.T
}

// frame has the tested fields of a message.
type frame struct {
	Type      string
	Sequence  int64
	At        int64
	SessionID string
	Chunk     struct{ Type, Delta string }
	text      string
}

func (h *fixture) socket(t *testing.T, path string, headers ...string) *socket {
	t.Helper()
	conn, response, err := h.upgrade(t, path, nil, headers...) //nolint:bodyclose // the body is the socket
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %d", response.StatusCode)
	}
	return &socket{conn, t}
}

func (h *fixture) upgrade(t *testing.T, path string, protocols []string, headers ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	options := &websocket.DialOptions{HTTPHeader: http.Header{}, Subprotocols: protocols}
	for i := 0; i < len(headers); i += 2 {
		options.HTTPHeader.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			options.Host = headers[i+1]
		}
	}
	conn, response, err := websocket.Dial(t.Context(), h.url+path, options)
	if err == nil {
		conn.SetReadLimit(1 << 20)
		t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, response, err
}

func (s *socket) next() (frame, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	_, text, err := s.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	f := frame{text: string(text)}
	if err := json.Unmarshal(text, &f); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return f, nil
}

// until reads up to a frame of the type.
func (s *socket) until(kind string) []frame {
	s.t.Helper()
	var all []frame
	for {
		f, err := s.next()
		if err != nil {
			s.t.Fatalf("waiting for %s after %d frames: %v", kind, len(all), err)
		}
		all = append(all, f)
		if f.Type == kind {
			return all
		}
	}
}

// rest reads to the close and returns it.
func (s *socket) rest() (all []frame, closed websocket.CloseError) {
	s.t.Helper()
	for {
		f, err := s.next()
		if err != nil {
			if !errors.As(err, &closed) {
				s.t.Fatalf("no close after %d frames: %v", len(all), err)
			}
			return all, closed
		}
		all = append(all, f)
	}
}

func wantClose(t *testing.T, got websocket.CloseError, code websocket.StatusCode, reason string) {
	t.Helper()
	if got.Code != code || !strings.HasPrefix(got.Reason, reason) {
		t.Errorf("closed with %d %q, want %d %q", got.Code, got.Reason, code, reason)
	}
}

func texts(frames []frame) string {
	var all []string
	for _, f := range frames {
		all = append(all, f.text)
	}
	return strings.Join(all, "\n")
}

func TestAPingIsAnsweredAndWhatIsUnknownIsPassedOver(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	s := h.socket(t, "/ws?sessionId=s1")
	s.until("caught-up")
	for _, said := range []string{`{"type":"hello","x":[1]}`, `no JSON`, `[]`, `null`, strings.Repeat("x", 4<<10), `{"type":"ping"}`} {
		if err := s.Write(t.Context(), websocket.MessageText, []byte(said)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Write(t.Context(), websocket.MessageBinary, []byte(`{"type":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	if got := texts(s.until("pong")); got != `{"type":"pong"}` {
		t.Errorf("got %s", got)
	}
	run.Complete()
	if frames, _ := s.rest(); len(frames) != 2 || frames[1].Type != "end" {
		t.Errorf("got %s", texts(frames))
	}
}

func TestALargeMessageOfAClientClosesItsSocketOnly(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	large, other := h.socket(t, "/ws?sessionId=s1"), h.socket(t, "/ws?sessionId=s1")
	if err := large.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat("x", 4<<10+1))); err != nil {
		t.Fatal(err)
	}
	_, closed := large.rest()
	wantClose(t, closed, websocket.StatusMessageTooBig, "")
	run.Complete()
	_, closed = other.rest()
	wantClose(t, closed, websocket.StatusNormalClosure, "")
}

func TestADrainedGatewayClosesItsSocketsForARestart(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.begin(t, "s1", "hi", nil)
	s := h.socket(t, "/ws?sessionId=s1")
	s.until("caught-up")
	silent := h.socket(t, "/ws?sessionId=s1") // its client answers nothing, not even the close
	stopped := make(chan error, 1)
	began := time.Now()
	go func() { stopped <- h.stop() }()
	_, closed := s.rest()
	wantClose(t, closed, websocket.StatusServiceRestart, "GATEWAY_STOPPING")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 50*time.Second {
		t.Errorf("the stop took %v", took)
	}
	_ = silent.CloseNow()
}

func TestASocketThatDoesNotAnswerPingsIsLeft(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.Heartbeat, c.WriteTimeout = 50*time.Millisecond, 8*time.Second })
	run := h.begin(t, "s1", "hi", nil)
	answers := h.socket(t, "/ws?sessionId=s1")
	answers.until("caught-up")
	ended := make(chan []frame, 1) // room for its one result
	go func() {
		var frames []frame
		for {
			f, err := answers.next()
			if err != nil {
				ended <- frames
				return
			}
			frames = append(frames, f)
		}
	}()
	h.socket(t, "/ws?sessionId=s1") // its client does not read, so it sends no pong
	waitFor(t, "there are two", func() bool { return h.service.OpenStreams() == 2 })
	waitFor(t, "the gateway has left one", func() bool { return h.service.OpenStreams() == 1 })
	run.Complete()
	if frames := <-ended; len(frames) == 0 || frames[len(frames)-1].Type != "end" {
		t.Errorf("the one that answers got %s", texts(frames))
	}
}

func TestFramesDoNotWaitForAPong(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.Heartbeat, c.WriteTimeout = 50*time.Millisecond, time.Minute })
	run := h.begin(t, "s1", "hi", nil)
	pinged := make(chan struct{}, 100)                                                            // more than there are heartbeats
	conn, _, err := websocket.Dial(t.Context(), h.url+"/ws?sessionId=s1", &websocket.DialOptions{ //nolint:bodyclose // the body is the socket
		OnPingReceived: func(context.Context, []byte) bool {
			pinged <- struct{}{}
			return false
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &socket{conn, t}
	s.until("caught-up")
	go func() {
		<-pinged
		run.Show(1, Text("x"))
		run.Complete()
	}()
	frames, closed := s.rest()
	if got := texts(frames); len(frames) != 4 || frames[0].Type != "chunk" || frames[3].Type != "end" {
		t.Errorf("got %s, want the chunks and the end", got)
	}
	wantClose(t, closed, websocket.StatusNormalClosure, "")
}

func TestAClientThatClosesItsSocketStopsNothing(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	for _, leave := range []func(*socket){
		func(s *socket) { _ = s.Close(websocket.StatusNormalClosure, "") },
		func(s *socket) { _ = s.CloseNow() },
	} {
		s := h.socket(t, "/ws?sessionId=s1")
		s.until("caught-up")
		leave(s)
		waitFor(t, "the gateway has noticed", func() bool { return h.service.OpenStreams() == 0 && h.Stream.OpenReads() == 0 })
	}
	run.Show(1, Started())
	if got := h.State.Newest("default", "s1").GetStatus().String(); got != "RUN_STATUS_RUNNING" {
		t.Errorf("the run is %s", got)
	}
	run.Complete()
	if frames, _ := h.socket(t, "/ws?sessionId=s1").rest(); len(frames) != 4 {
		t.Errorf("got %s", texts(frames))
	}
}

func TestAnInvalidSocketIsRefusedBeforeTheUpgrade(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxStreams = 1 })
	h.begin(t, "s1", "hi", nil)
	handshake := []string{"Connection", "keep-alive, Upgrade", "Upgrade", "WebSocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	for name, tc := range map[string]struct {
		path    string
		headers []string
		status  int
		code    string
	}{
		"no upgrade":        {"/ws?sessionId=s1", nil, 426, "UPGRADE_REQUIRED"},
		"another protocol":  {"/ws?sessionId=s1", []string{"Connection", "Upgrade", "Upgrade", "h2c"}, 426, "UPGRADE_REQUIRED"},
		"no key":            {"/ws?sessionId=s1", handshake[:6], 426, "UPGRADE_REQUIRED"},
		"no key, on /sse":   {"/sse?sessionId=s1", handshake[:6], 426, "UPGRADE_REQUIRED"},
		"an older version":  {"/ws?sessionId=s1", append([]string{"Sec-WebSocket-Version", "8"}, append(handshake[:4:4], handshake[6:]...)...), 426, "UPGRADE_REQUIRED"},
		"a broken key":      {"/ws?sessionId=s1", append(handshake[:6:6], "Sec-WebSocket-Key", "x"), 426, "UPGRADE_REQUIRED"},
		"no session":        {"/ws", handshake, 400, "ID_INVALID"},
		"a long id":         {"/ws?sessionId=" + strings.Repeat("x", 257), handshake, 400, "ID_INVALID"},
		"a control letter":  {"/ws?sessionId=a%00b", handshake, 400, "ID_INVALID"},
		"no UTF-8":          {"/ws?sessionId=%ff", handshake, 400, "ID_INVALID"},
		"an odd run":        {"/ws?sessionId=s1&runId=%0a", handshake, 400, "ID_INVALID"},
		"no number":         {"/ws?sessionId=s1&fromSequence=x", handshake, 400, "CURSOR_INVALID"},
		"below nothing":     {"/ws?sessionId=s1&fromSequence=-1", handshake, 400, "CURSOR_INVALID"},
		"a huge number":     {"/ws?sessionId=s1&fromSequence=99999999999999999999", handshake, 400, "CURSOR_INVALID"},
		"an unknown one":    {"/ws?sessionId=nobody", handshake, 404, "SESSION_NOT_FOUND"},
		"an unknown run":    {"/ws?sessionId=s1&runId=nobody", handshake, 404, "RUN_NOT_FOUND"},
		"the same on /sse":  {"/sse?sessionId=nobody", handshake, 404, "SESSION_NOT_FOUND"},
		"another site":      {"/ws?sessionId=s1", append(handshake[:8:8], "Origin", "https://evil.example"), 403, "ORIGIN_REFUSED"},
		"a rebound name":    {"/ws?sessionId=s1", append(handshake[:8:8], "Host", "evil.example"), 403, "HOST_REFUSED"},
		"another site, sse": {"/sse?sessionId=s1", append(handshake[:8:8], "Origin", "null"), 403, "ORIGIN_REFUSED"},
	} {
		t.Run(name, func(t *testing.T) {
			response := h.request(t, http.MethodGet, tc.path, "", tc.headers...)
			if tc.status == 426 && (response.Header.Get("Upgrade") != "websocket" || response.Header.Get("Sec-WebSocket-Version") != "13") {
				t.Errorf("got the headers %v", response.Header)
			}
			wantFault(t, response, tc.status, tc.code)
		})
	}
	wantFault(t, h.request(t, http.MethodPost, "/ws?sessionId=s1", ""), 405, "METHOD_NOT_ALLOWED")
	s := h.socket(t, "/ws?sessionId=s1")
	s.until("caught-up")
	wantFault(t, h.request(t, http.MethodGet, "/ws?sessionId=s1", "", handshake...), 429, "TOO_MANY_STREAMS")
}

func TestOddSessionIdsWorkOverWebSockets(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for id, escaped := range map[string]string{"a.b.*.>": "a.b.*.%3E", "a/b c": "a%2Fb%20c", "日本": "%E6%97%A5%E6%9C%AC", "%2F": "%252F"} {
		run := h.begin(t, id, "hi", nil)
		s := h.socket(t, "/ws?sessionId="+escaped)
		s.until("caught-up")
		run.Child("child of "+id).Show(1, Text("x"))
		run.Complete()
		frames, _ := s.rest()
		if len(frames) != 3 || frames[0].SessionID != "child of "+id || frames[2].Type != "end" {
			t.Errorf("%q: got %s", id, texts(frames))
		}
	}
}

func TestAKeyMayComeAsASubprotocolAndIsNotSentBack(t *testing.T) {
	t.Parallel()
	h, acme, other := openWithKeys(t)
	key := strings.TrimPrefix(acme, "Bearer ")
	stream := h.chat(t, chatBody("s1", "hi"), "Authorization", acme)
	run := h.AwaitRun(t, "acme", "s1", nil)
	for name, protocols := range map[string][]string{"first": {"holdfast.v2", "holdfast.key." + key}, "last": {"holdfast.key." + key, "holdfast.v2"}} {
		conn, response, err := h.upgrade(t, "/ws?sessionId=s1", protocols, "Origin", h.url) //nolint:bodyclose // the body is the socket
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Header.Get("Sec-WebSocket-Protocol"); got != "holdfast.v2" || conn.Subprotocol() != "holdfast.v2" {
			t.Errorf("%s: the answer selects %q", name, got)
		}
	}
	for name, tc := range map[string]struct {
		protocols, headers []string
		status             int
	}{
		"no key":            {[]string{"holdfast.v2"}, nil, 401},
		"a wrong one":       {[]string{"holdfast.v2", "holdfast.key." + key + "x"}, nil, 401},
		"an empty one":      {[]string{"holdfast.v2", "holdfast.key."}, nil, 401},
		"another tenant's":  {[]string{"holdfast.v2", "holdfast.key." + strings.TrimPrefix(other, "Bearer ")}, nil, 404},
		"a header":          {nil, []string{"Authorization", acme}, 101},
		"a wrong header":    {[]string{"holdfast.v2", "holdfast.key." + key}, []string{"Authorization", acme + "x"}, 401},
		"another site":      {nil, []string{"Authorization", acme, "Origin", "https://evil.example"}, 403},
		"a sandbox":         {nil, []string{"Authorization", acme, "Origin", "null"}, 403},
		"our page":          {nil, []string{"Authorization", acme, "Origin", h.url}, 101},
		"a page over https": {nil, []string{"Authorization", acme, "Origin", strings.Replace(h.url, "http", "https", 1)}, 101},
	} {
		_, response, err := h.upgrade(t, "/ws?sessionId=s1", tc.protocols, tc.headers...) //nolint:bodyclose // the body is the socket
		if response == nil || response.StatusCode != tc.status {
			t.Errorf("%s: got %v, %v; want %d", name, response, err, tc.status)
		}
	}
	// Only a WebSocket may have its key there.
	wantFault(t, h.request(t, http.MethodGet, "/sse?sessionId=s1", "", "Sec-WebSocket-Protocol", "holdfast.key."+key), 401, "API_KEY_MISSING")
	playAnswer(run)
	stream.rest()
}

func TestASocketOfAnAllowedOriginIsServed(t *testing.T) {
	t.Parallel()
	key, sum := gateway.NewAPIKey()
	file := keysFile(t, "- {name: a, tenant: default, sha256: "+sum+"}")
	h := open(t, func(c *gateway.Config) {
		c.APIKeys, c.InsecureNoAuth, c.CORSOrigins = file, false, []string{"https://app.example"}
	})
	stream := h.chat(t, chatBody("s1", "hi"), "Authorization", "Bearer "+key)
	run := h.AwaitRun(t, "default", "s1", nil)
	if _, _, err := h.upgrade(t, "/ws?sessionId=s1", nil, "Origin", "https://app.example", "Authorization", "Bearer "+key); err != nil { //nolint:bodyclose // the body is the socket
		t.Error(err)
	}
	if _, response, err := h.upgrade(t, "/ws?sessionId=s1", nil, "Origin", "https://app.example:444", "Authorization", "Bearer "+key); err == nil || response.StatusCode != http.StatusForbidden { //nolint:bodyclose // the body is the socket
		t.Errorf("another port: got %v", err)
	}
	playAnswer(run)
	stream.rest()
}

func TestAWebSocketSendsTheSameAsServerSentEvents(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ws?sessionId=s1", "/sse?sessionId=s1"} {
		h := open(t, nil)
		run := h.begin(t, "s1", "hi", nil)
		at := run.Show(1, Started())
		void := run.Show(1, Text("void"))
		s := h.socket(t, path)
		frames := s.until("caught-up")
		run.Rewind(at)
		child := run.Child("c1")
		below := child.Show(1, Text("below"))
		again := run.Show(1, Text("good"))
		run.Complete()
		rest, closed := s.rest()
		wantClose(t, closed, websocket.StatusNormalClosure, "")
		end := position.Ended(1)
		want := fmt.Sprintf(`{"type":"chunk","sequence":%d,"chunk":{"type":"run_started","agentId":"run_1","agentType":"demo","timestamp":0,"step":1,"turn":1,"messageId":"msg_run1"}}
{"type":"chunk","sequence":%d,"chunk":{"type":"text_delta","agentId":"run_1","agentType":"demo","timestamp":0,"step":1,"delta":"void"}}
{"type":"caught-up","sequence":%d}
{"type":"rewound","at":0}
{"type":"chunk","sequence":%d,"chunk":{"type":"run_started","agentId":"run_1","agentType":"demo","timestamp":0,"step":1,"turn":1,"messageId":"msg_run1"}}
{"type":"chunk","sequence":%d,"chunk":{"type":"text_delta","agentId":"run_2","agentType":"other","timestamp":0,"step":1,"delta":"below"},"sessionId":"c1"}
{"type":"chunk","sequence":%d,"chunk":{"type":"text_delta","agentId":"run_1","agentType":"demo","timestamp":0,"step":1,"delta":"good"}}
{"type":"chunk","sequence":%d,"chunk":{"type":"step_committed","agentId":"run_1","agentType":"demo","timestamp":0,"step":1,"checkpointId":%q}}
{"type":"chunk","sequence":%d,"chunk":{"type":"run_completed","agentId":"run_1","agentType":"demo","timestamp":0,"step":1,"finishReason":"stop","completionReason":""}}
{"type":"end","sequence":%d,"status":"completed","output":"done"}`, at, void, void, again-1, below, again, position.Committed(1), run.Checkpoint(), end-1, end)
		if got := texts(append(frames, rest...)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
		}
	}
}

func TestAWebSocketContinuesFromACursorOrARun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first := h.begin(t, "s1", "one", nil)
	begun := first.Show(1, Started())
	first.Show(1, Text("a"))
	first.Complete()
	second := h.begin(t, "s1", "two", first)
	shown := second.Show(2, Started())
	second.Fail("It failed.", "provider_error")
	const one, two = "chunk 1.committed, chunk 1.last", "chunk 2.outside-1, fail 2.outside"
	for path, want := range map[string]string{
		fmt.Sprint("/ws?sessionId=s1&fromSequence=", shown):                    "chunk 2.outside-1, fail 2.outside",
		"/ws?sessionId=s1&runId=run_1":                                         "chunk 1.stored.1, chunk 1.stored.2, chunk 1.stored.3, " + one + ", end 1.ended",
		fmt.Sprint("/ws?sessionId=s1&runId=run_1&fromSequence=", begun):        "chunk 1.33.2, " + one + ", end 1.ended",
		fmt.Sprint("/ws?sessionId=s1&runId=run_2&fromSequence=", shown):        two,
		fmt.Sprint("/sse?sessionId=s1&runId=run_2&fromSequence=", shown):       two,
		fmt.Sprint("/ws?sessionId=s1&fromSequence=", shown, "&Last-Event-ID="): two,
	} {
		frames, closed := h.socket(t, path).rest()
		wantClose(t, closed, websocket.StatusNormalClosure, "")
		var got []string
		for _, f := range frames {
			got = append(got, fmt.Sprint(f.Type, " ", placeName(f.Sequence)))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: got %v, want %s", path, got, want)
		}
	}
}
