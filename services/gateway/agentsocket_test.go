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

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// agentSocket is a client of an instance, such as AgentClient.
type agentSocket struct {
	*websocket.Conn
	t *testing.T
}

func (h *fixture) agentSocket(t *testing.T, path string, headers ...string) *agentSocket {
	t.Helper()
	conn, _, err := h.upgrade(t, "/agents/"+path, nil, headers...) //nolint:bodyclose // the body is the socket
	if err != nil {
		t.Fatal(err)
	}
	return &agentSocket{conn, t}
}

const mcpFrame = `{"type":"cf_agent_mcp_servers","mcp":{"prompts":[],"resources":[],"servers":{},"tools":[]}}`

// agentClient opens a socket and reads the frames of its beginning, up to the last one that every
// client receives. It returns them without that one.
func (h *fixture) agentClient(t *testing.T, path string, headers ...string) (s *agentSocket, greeting []string) {
	t.Helper()
	s = h.agentSocket(t, path, headers...)
	for {
		text := s.next()
		if text == mcpFrame {
			return s, greeting
		}
		greeting = append(greeting, text)
	}
}

func (s *agentSocket) say(frames ...string) {
	s.t.Helper()
	for _, f := range frames {
		if err := s.Write(s.t.Context(), websocket.MessageText, []byte(f)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// next returns the next frame.
func (s *agentSocket) next() string {
	s.t.Helper()
	text, err := s.read()
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func (s *agentSocket) read() (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	_, text, err := s.Conn.Read(ctx)
	return string(text), err
}

// want reads the next frame and compares it.
func (s *agentSocket) want(frame string) {
	s.t.Helper()
	if got := s.next(); got != frame {
		s.t.Fatalf("got %s, want %s", got, frame)
	}
}

// until reads up to the frame that contains the text, and returns the frames before it and it.
func (s *agentSocket) until(part string) (before []string, frame string) {
	s.t.Helper()
	for {
		text, err := s.read()
		if err != nil {
			s.t.Fatalf("waiting for %s after %v: %v", part, before, err)
		}
		if strings.Contains(text, part) {
			return before, text
		}
		before = append(before, text)
	}
}

// closed reads to the close.
func (s *agentSocket) closed() websocket.CloseError {
	s.t.Helper()
	for {
		_, err := s.read()
		if err == nil {
			continue
		}
		var closed websocket.CloseError
		if !errors.As(err, &closed) {
			s.t.Fatalf("no close: %v", err)
		}
		return closed
	}
}

func stateFrame(state string) string { return `{"type":"cf_agent_state","state":` + state + `}` }

// setState is setState of a client, with the keys in its order.
func setState(state string) string { return `{"state":` + state + `,"type":"cf_agent_state"}` }

// barrier returns when the gateway has handled the frames so far. It writes a state that is refused.
func (s *agentSocket) barrier() {
	s.t.Helper()
	s.say(setState(`7`))
	s.want(`{"type":"cf_agent_state_error","error":"State update rejected"}`)
}

func TestAClientOfAnInstanceIsToldWhoItIs(t *testing.T) {
	t.Parallel()
	h := open(t, nil, &statev1.Agent{AgentType: "ChatAgent"}, &statev1.Agent{AgentType: "LOUD_AGENT"}, &statev1.Agent{AgentType: "plain"})
	for path, want := range map[string]string{
		"chat-agent/room":         `{"type":"cf_agent_identity","name":"room","agent":"chat-agent"}`,
		"ChatAgent/room":          `{"type":"cf_agent_identity","name":"room","agent":"ChatAgent"}`,
		"loud-agent/a%20b":        `{"type":"cf_agent_identity","name":"a b","agent":"loud-agent"}`,
		"plain/%C3%BC%2Fber?_pk=": `{"type":"cf_agent_identity","name":"ü/ber","agent":"plain"}`,
		"plain/default?_pk=1&x=y": `{"type":"cf_agent_identity","name":"default","agent":"plain"}`,
	} {
		_, greeting := h.agentClient(t, path)
		if len(greeting) != 1 || greeting[0] != want {
			t.Errorf("%s: got %s, want %s", path, greeting, want)
		}
	}
	for _, id := range []string{"ChatAgent:room", "LOUD_AGENT:a b", "plain:default"} {
		if h.State.Has("default", id) {
			t.Errorf("opening a page has created the session %s", id)
		}
	}
}

func TestAClientThatCannotBeServedIsToldToStop(t *testing.T) {
	t.Parallel()
	h, good, _ := openWithKeys(t)
	for name, tc := range map[string]struct {
		path, header string
		code         websocket.StatusCode
		reason       string
	}{
		"no key":             {"demo/x", "", 4401, "API_KEY_MISSING"},
		"wrong key":          {"demo/x", "Bearer no", 4401, "API_KEY_WRONG"},
		"unknown agent":      {"nobody/x", good, 4404, "AGENT_NOT_FOUND"},
		"long name":          {"demo/" + strings.Repeat("x", 300), good, 4400, "ID_INVALID"},
		"control characters": {"demo/a%00b", good, 4400, "ID_INVALID"},
		"a path below":       {"demo/x/sub/other/y", good, 4404, "ROUTE_NOT_FOUND"},
		"another transport":  {"demo/x?__agents_transport=capnweb", good, 4400, "TRANSPORT_UNSUPPORTED"},
		"a bad parameter":    {"demo/x?readonly=perhaps", good, 4400, "PARAMETER_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var headers []string
			if tc.header != "" {
				headers = []string{"Authorization", tc.header}
			}
			closed := h.agentSocket(t, tc.path, headers...).closed()
			if closed.Code != tc.code || closed.Reason != tc.reason {
				t.Errorf("got %v, want %d %s", closed, tc.code, tc.reason)
			}
		})
	}
}

func TestAnAgentWhoseNameIsAmbiguousIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil, &statev1.Agent{AgentType: "chatAgent"}, &statev1.Agent{AgentType: "ChatAgent"})
	if closed := h.agentSocket(t, "chat-agent/x").closed(); closed.Code != 4409 || closed.Reason != "AGENT_AMBIGUOUS" {
		t.Errorf("got %v", closed)
	}
	if _, greeting := h.agentClient(t, "ChatAgent/x"); len(greeting) != 1 {
		t.Errorf("got %v", greeting)
	}
}

func TestABrowserSendsItsKeyAsASubprotocol(t *testing.T) {
	t.Parallel()
	h, good, _ := openWithKeys(t)
	key := strings.TrimPrefix(good, "Bearer ")
	conn, _, err := h.upgrade(t, "/agents/demo/x", []string{"holdfast.v2", "holdfast.key." + key}) //nolint:bodyclose // the body is the socket
	if err != nil {
		t.Fatal(err)
	}
	s := &agentSocket{conn, t}
	s.want(`{"type":"cf_agent_identity","name":"x","agent":"demo"}`)
}

func TestAStateIsStoredAndSentToEveryOtherClient(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	a, _ := h.agentClient(t, "demo/room")
	b, _ := h.agentClient(t, "demo/room")
	other, _ := h.agentClient(t, "demo/another")
	a.say(setState(`{"n":1}`))
	b.want(stateFrame(`{"n":1}`))
	b.say(setState(`{"n":2}`))
	a.want(stateFrame(`{"n":2}`))
	for _, s := range []*agentSocket{a, b, other} {
		s.barrier() // and nothing else before it: no echo, no state of another instance
	}
	if got := h.State.Get("default", "demo:room").GetSession(); got.GetCustomState() != `{"n":2}` || got.GetAgentType() != "demo" {
		t.Errorf("stored: got %v", got)
	}
	_, greeting := h.agentClient(t, "demo/room")
	want := []string{`{"type":"cf_agent_identity","name":"room","agent":"demo","stateFollows":true}`, stateFrame(`{"n":2}`)}
	if fmt.Sprint(greeting) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", greeting, want)
	}
}

func TestAStateThatIsRefusedIsNotStored(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	a, _ := h.agentClient(t, "demo/room")
	reader, _ := h.agentClient(t, "demo/room?readonly=true")
	reader.say(setState(`{"n":1}`))
	reader.want(`{"type":"cf_agent_state_error","error":"Connection is readonly"}`)
	for _, bad := range []string{`7`, `null`, `[1]`, `"x"`} {
		a.say(setState(bad))
		a.want(`{"type":"cf_agent_state_error","error":"State update rejected"}`)
	}
	if h.State.Has("default", "demo:room") {
		t.Error("a refused state has created the session")
	}
	a.say(setState(`{"n":1}`))
	reader.want(stateFrame(`{"n":1}`))
}

func TestHostileFramesAreTolerated(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	a, _ := h.agentClient(t, "demo/room")
	if err := a.Write(t.Context(), websocket.MessageBinary, []byte{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	a.say(``, `hello`, `[]`, `null`, `7`, `{}`, `{"type":7}`, `{"type":"cf_agent_state"}`, `{"type":"mine","state":{"n":1}}`, `{"type":"cf_agent_state","state":`,
		`{"type":{"a":[]},"state":{}}`, "{\"type\":\"cf_agent_state\",\"state\":{\"a\":\"\xff\"}}")
	before, _ := a.until("cf_agent_state") // the last one is not UTF-8
	if len(before) != 0 {
		t.Errorf("got %v", before)
	}
	a.barrier()
	if h.State.Has("default", "demo:room") {
		t.Error("a frame without a state was stored")
	}
}

func TestAFrameThatIsTooLargeEndsItsSocketOnly(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxBodyBytes = 1 << 10 })
	a, _ := h.agentClient(t, "demo/room")
	b, _ := h.agentClient(t, "demo/room")
	frame := setState(`{"a":"` + strings.Repeat("x", 1<<10-len(setState(`{"a":""}`))) + `"}`)
	a.say(frame)
	b.until("xxx")
	a.say(frame + " ")
	if closed := a.closed(); closed.Code != websocket.StatusMessageTooBig {
		t.Errorf("got %v", closed)
	}
	b.barrier()
}

func TestSocketsOfAgentsCountAsStreams(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxStreams = 1 })
	a, _ := h.agentClient(t, "demo/room")
	if _, response, err := h.upgrade(t, "/agents/demo/room", nil); err == nil || response.StatusCode != http.StatusTooManyRequests { //nolint:bodyclose // there is none
		t.Errorf("got %v", err)
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	if closed := a.closed(); closed.Code != websocket.StatusServiceRestart {
		t.Errorf("got %v: clients must connect again", closed)
	}
}

func TestRefusedSocketsDoNotCountAsStreams(t *testing.T) {
	t.Parallel()
	const most, closing = 64, 5 * time.Second // how many are refused at once, and how long each waits for the client
	good, sum := gateway.NewAPIKey()
	file := keysFile(t, "- {name: a, tenant: acme, sha256: "+sum+"}\n")
	bubble(t, func(t *testing.T, _ *World, client *http.Client) {
		dial := func(header http.Header) (*websocket.Conn, int) {
			conn, response, err := websocket.Dial(t.Context(), "http://localhost/agents/demo/room", &websocket.DialOptions{HTTPClient: client, HTTPHeader: header}) //nolint:bodyclose // the body is the socket
			if response == nil {
				t.Fatal(err)
			}
			if err == nil {
				t.Cleanup(func() { _ = conn.CloseNow() })
			}
			return conn, response.StatusCode
		}
		for range 2 {
			for i := range most { // they do not read the close
				if _, status := dial(nil); status != http.StatusSwitchingProtocols {
					t.Fatalf("socket %d: got %d, want it accepted and closed", i+1, status)
				}
			}
			if _, status := dial(nil); status != http.StatusUnauthorized {
				t.Errorf("above the limit: got %d, want 401", status)
			}
			conn, status := dial(http.Header{"Authorization": {"Bearer " + good}})
			if status != http.StatusSwitchingProtocols {
				t.Fatalf("with a key: got %d, want a stream", status)
			}
			if _, _, err := conn.Read(t.Context()); err != nil {
				t.Errorf("with a key: got %v, want a stream", err)
			}
			_ = conn.CloseNow()
			time.Sleep(closing + time.Second) // fake
		}
	}, func(c *gateway.Config) { c.APIKeys, c.InsecureNoAuth, c.MaxStreams = file, false, 1 })
}

func TestAStateReachesTheClientsOfAnotherGatewayByAHint(t *testing.T) {
	t.Parallel()
	never := func(c *gateway.Config) { c.SessionPoll = time.Hour }
	h := open(t, never)
	far := openOver(t, listen(t), h.World, never)
	a, _ := h.agentClient(t, "demo/room")
	b, _ := far.agentClient(t, "demo/room")
	waitFor(t, "both gateways read the log", func() bool { return h.Stream.OpenReads() == 2 })
	a.say(setState(`{"n":1}`))
	b.want(stateFrame(`{"n":1}`))
	b.say(setState(`{"n":2}`))
	a.want(stateFrame(`{"n":2}`))
	a.barrier()
	b.barrier()
}

func TestAStateWhoseHintIsLostIsFoundByAPoll(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.SessionPoll = 10 * time.Millisecond })
	a, _ := h.agentClient(t, "demo/room")
	a.say(setState(`{"n":1}`))
	a.barrier()
	h.State.SaveState("default", "demo:room", `{"n":2}`) // without a hint
	a.want(stateFrame(`{"n":2}`))
}

func TestARunChangesTheStateOfEveryClient(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.SessionPoll = time.Hour })
	a, _ := h.agentClient(t, "demo/room")
	a.say(setState(`{"n":1}`), chatRequest("r1", words("hi")))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "))
	a.part("One ")
	a.say(setState(`{"n":2}`)) // while the run is executing
	a.barrier()
	h.State.SaveState("default", "demo:room", `{"n":3}`)
	run.Show(1, StepCommitted(), Completed())
	run.Complete(AssistantMessage(1, "One "))
	a.until(stateFrame(`{"n":3}`)) // the end of the run is a reason to read the session
}

// lastState reads up to a frame with the state and returns false after any later state frame before
// the barrier.
func (s *agentSocket) lastState() (last string) {
	s.t.Helper()
	before, _ := s.until("cf_agent_state_error")
	for _, text := range before {
		var f struct {
			Type  string
			State json.RawMessage
		}
		if err := json.Unmarshal([]byte(text), &f); err != nil || f.Type != "cf_agent_state" {
			s.t.Fatalf("got %s, %v", text, err)
		}
		last = string(f.State)
	}
	return last
}

func TestClientsThatWriteAtOnceEndWithTheStoredState(t *testing.T) {
	t.Parallel()
	const writes = 20
	h := open(t, nil)
	clients := make([]*agentSocket, 3)
	for i := range clients {
		clients[i], _ = h.agentClient(t, "demo/room")
	}
	ended := make(chan error, len(clients))
	for i, s := range clients {
		go func() {
			for n := range writes {
				if err := s.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"cf_agent_state","state":{"by":"%d-%d"}}`, i, n)); err != nil {
					ended <- err
					return
				}
			}
			ended <- s.Write(t.Context(), websocket.MessageText, []byte(setState("7")))
		}()
	}
	for range clients {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	shown := make([]string, len(clients))
	for i, s := range clients {
		if shown[i] = s.lastState(); shown[i] == "" {
			shown[i] = fmt.Sprintf(`{"by":"%d-%d"}`, i, writes-1)
		}
	}
	// What comes after each client's own last frame.
	want := h.State.Get("default", "demo:room").GetSession().GetCustomState()
	for i, s := range clients {
		for shown[i] != want {
			_, frame := s.until("cf_agent_state")
			shown[i] = strings.TrimSuffix(strings.TrimPrefix(frame, `{"type":"cf_agent_state","state":`), "}")
		}
	}
}

func TestAnInstanceIsReadOverHTTP(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	get := func(path string) string {
		t.Helper()
		response := h.request(t, "GET", "/agents/"+path, "")
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %d %s", path, response.StatusCode, text(t, response))
		}
		return strings.TrimSpace(text(t, response))
	}
	if got := get("demo/room/get-messages?_pk=1"); got != "[]" {
		t.Errorf("without a session: got %s", got)
	}
	if got, want := get("demo/room"), `{"agent":"demo","name":"room","sessionId":"demo:room","state":null}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	stream := h.chat(t, strings.Replace(chatBody("demo:room", "hi"), "{", `{"agentType":"demo",`, 1))
	run := h.AwaitRun(t, "default", "demo:room", nil)
	run.Show(1, Started(), StepStarted(), Text("One "), StepCommitted())
	run.Commit(AssistantMessage(1, "One "))
	const question = `{"id":"u-hi","role":"user","parts":[{"type":"text","text":"hi"}]}`
	if got := get("demo/room/get-messages"); got != `[`+question+`]` {
		t.Errorf("while a run is live: got %s", got)
	}
	run.Show(2, StepStarted(), Text("two."), StepCommitted(), Completed())
	run.Complete(AssistantMessage(2, "two."))
	stream.rest()
	if got := get("demo/room/get-messages"); !strings.HasPrefix(got, `[`+question+`,{"id":"msg_run1","role":"assistant","parts":[{"type":"step-start"},{"type":"text","text":"One ","state":"done"},`) {
		t.Errorf("got %s", got)
	}
	wantFault(t, h.request(t, "GET", "/agents/demo/room/other", ""), 404, "ROUTE_NOT_FOUND")
	wantFault(t, h.request(t, "GET", "/agents/nobody/room/get-messages", ""), 404, "AGENT_NOT_FOUND")
}

func TestTheMessagesOfAnInstanceNeedAKey(t *testing.T) {
	t.Parallel()
	h, good, other := openWithKeys(t)
	wantFault(t, h.request(t, "GET", "/agents/demo/room/get-messages", ""), 401, "API_KEY_MISSING")
	a, _ := h.agentClient(t, "demo/room", "Authorization", good)
	a.say(setState(`{"n":1}`))
	a.barrier()
	if got := text(t, h.request(t, "GET", "/agents/demo/room", "", "Authorization", other)); !strings.Contains(got, `"state":null`) {
		t.Errorf("another tenant reads %s", got)
	}
	if _, greeting := h.agentClient(t, "demo/room", "Authorization", other); len(greeting) != 1 {
		t.Errorf("another tenant reads %s", greeting)
	}
}

func TestTheDefaultsOfAnAgentAreTheFirstState(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"count":{"type":"integer","default":3}}}`
	h := open(t, nil, &statev1.Agent{AgentType: "demo", StateSchema: schema})
	a, greeting := h.agentClient(t, "demo/room")
	if len(greeting) != 2 || greeting[1] != stateFrame(`{"count":3}`) || h.State.Has("default", "demo:room") {
		t.Errorf("got %v", greeting)
	}
	a.say(setState(`{"count":"many"}`))
	a.want(`{"type":"cf_agent_state_error","error":"State update rejected"}`)
	a.say(chatRequest("r1", words("hi")))
	playShort(h.AwaitRun(t, "default", "demo:room", nil), "One two.")
	a.turn("r1") // and no state: the session begins with the defaults
	a.say(setState(`{"count":4}`))
	a.barrier()
	_, greeting = h.agentClient(t, "demo/room")
	if greeting[1] != stateFrame(`{"count":4}`) {
		t.Errorf("got %v", greeting)
	}
}

func TestAMessageDuringATurnWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	a, _ := h.agentClient(t, "demo/room")
	a.say(chatRequest("r1", words("hi")))
	first := h.AwaitRun(t, "default", "demo:room", nil)
	first.Show(1, Started(), StepStarted(), Text("One "))
	a.part("One ")
	a.say(chatRequest("r2", words("hi"), words("more")))
	waitFor(t, "the message waits", func() bool { return len(h.State.Get("default", "demo:room").GetWaiting()) == 1 })
	first.Show(1, Text("two."), StepCommitted(), Completed())
	first.Complete(AssistantMessage(1, "One two."))
	a.turn("r1")
	second := h.AwaitRun(t, "default", "demo:room", first)
	second.Show(2, Started(), StepStarted(), Text("Three."), StepCommitted(), Completed())
	second.Complete(AssistantMessage(2, "Three."))
	if _, parts := a.turn("r2"); !strings.Contains(parts, "Three.") {
		t.Errorf("got %s", parts)
	}
}
