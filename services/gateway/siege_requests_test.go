//go:build !race

package gateway_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/flat"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// attempt is one request of an intruder.
type attempt struct {
	what    string // the route or the RPC
	id      string // the id in the request
	request string // everything that the request says
	public  bool   // the route needs no credential
	needs   auth.Scope
	send    func() outcome
}

// outcome is an answer.
type outcome struct {
	status int
	text   string // the body, the reason, or the frames
}

// hostileIDs are ids that might be taken for a victim's, or break something.
var hostileIDs = []string{
	"", "unknown", "ENDED", "ended ", "ended/", "../ended", "acme/ended", "%65nded", "ended\x00", "*", "ended.>", "ended' OR '1'='1", strings.Repeat("x", 257),
}

// attempts returns every request with every kind of id.
func (s *siege) attempts(credential string) (all []attempt) {
	ids := slices.Concat(victims, hostileIDs)
	for _, id := range ids {
		all = slices.Concat(all, s.routeAttempts(credential, id), s.socketAttempts(credential, id))
	}
	for protocol, client := range protocols(s.t, s.fixture, credential) {
		for _, name := range slices.Sorted(maps.Keys(rpcCases)) {
			for _, id := range ids {
				for _, request := range s.requestsOf(name, id) {
					all = append(all, attempt{what: name + " over " + protocol, id: id, request: fmt.Sprint(request), needs: auth.ScopeOf(name), send: func() outcome {
						ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
						defer cancel()
						if name == "Stream" {
							return readStream(ctx, client, request.(*agentv1.StreamRequest))
						}
						answer, err := call(ctx, client, name, request)
						if err != nil {
							return outcome{int(connect.CodeOf(err)), fault.ReasonOf(rpc.FromConnect(err)) + " " + err.Error()}
						}
						return outcome{http.StatusOK, fmt.Sprint(answer)}
					}})
				}
			}
		}
	}
	// What writes comes last, so that what reads finds the victims.
	slices.SortStableFunc(all, func(a, b attempt) int { return cmp.Compare(a.order(), b.order()) })
	return all
}

func (a attempt) order() int {
	switch {
	case a.needs == auth.Read:
		return 0
	case strings.Contains(strings.ToLower(a.what), "branch"):
		return 1 // before the victims are deleted
	default:
		return 2
	}
}

// readStream reads a stream to its end, or until it is silent.
func readStream(ctx context.Context, client agentv1connect.AgentServiceClient, request *agentv1.StreamRequest) outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Stream(ctx, request)
	if err != nil {
		return outcome{int(connect.CodeOf(err)), fault.ReasonOf(rpc.FromConnect(err))}
	}
	silence := time.AfterFunc(firstPatience, cancel)
	defer silence.Stop()
	var got strings.Builder
	for stream.Receive() {
		silence.Reset(streamPatience)
		fmt.Fprint(&got, stream.Msg())
	}
	if err := stream.Err(); err != nil {
		fmt.Fprint(&got, " ", fault.ReasonOf(rpc.FromConnect(err)), " ", err)
	}
	return outcome{http.StatusOK, got.String()}
}

// requestsOf returns the good request of an RPC with the id, and one that also names the victim as the user.
func (s *siege) requestsOf(name, id string) []proto.Message {
	good := rpcCases[name].good(id, s.runOf(id), s.checkpointOf(id))
	fields := good.ProtoReflect().Descriptor().Fields()
	for _, field := range []protoreflect.Name{"wait_ms", "limit"} {
		if f := fields.ByName(field); f != nil {
			good.ProtoReflect().Clear(f)
		}
	}
	if f := fields.ByName("session_id"); f != nil {
		good.ProtoReflect().Set(f, protoreflect.ValueOfString(id))
	}
	user := fields.ByName("user_id")
	if user == nil {
		return []proto.Message{good}
	}
	as := proto.Clone(good)
	as.ProtoReflect().Set(user, protoreflect.ValueOfString("alice"))
	return []proto.Message{good, as}
}

func (s *siege) runOf(id string) string { return orElse(s.runs[id], s.runs["ended"]) }
func (s *siege) checkpointOf(id string) string {
	return orElse(s.checkpoints[id], s.checkpoints["ended"])
}

// routeAttempts returns a request for each route. Sockets are separate.
func (s *siege) routeAttempts(credential, id string) (all []attempt) {
	for _, route := range s.service.Routes() {
		if route.About.Name == "" || strings.HasPrefix(route.Pattern, "/files/") || strings.HasSuffix(route.Pattern, "/ws") {
			continue
		}
		path, body := s.pathOf(route, id), s.bodyOf(route, id)
		headers := []string{"Authorization", credential, "Accept", "application/json", "Content-Type", "application/json"}
		all = append(all, attempt{what: route.Method + " " + route.Pattern, id: id, request: path + body, public: route.Public, needs: route.Needs(), send: func() outcome {
			return s.exchange(route.Method, path, body, headers)
		}})
	}
	return all
}

// pathOf returns the path and the query of a request with the id.
func (s *siege) pathOf(route httpapi.Route, id string) string {
	agent, name := "demo", strings.TrimPrefix(id, "demo:")
	path := strings.NewReplacer("{id}", url.PathEscape(id), "{agent}", agent, "{name}", url.PathEscape(name), "{method}", "add").Replace(route.Pattern)
	query := url.Values{}
	for _, p := range route.About.Parameters {
		switch p.Name {
		case "sessionId", "sessionIds", "parentSessionId":
			query.Set(p.Name, id)
		case "runId":
			query.Set(p.Name, s.runOf(id))
		case "userId":
			query.Set(p.Name, "alice")
		case "family":
			query.Set(p.Name, "true")
		}
	}
	if route.Pattern == "/sessions" {
		query.Del("parentSessionId")
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// bodyOf returns a body that the route would accept for the id.
func (s *siege) bodyOf(route httpapi.Route, id string) string {
	if shape, ok := route.About.Body.(flat.Shape); ok && rpcCases[route.About.RPC].good != nil {
		return s.flatBody(shape, route.About.RPC, id)
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			s.t.Fatal(err)
		}
		return string(b)
	}
	switch {
	case route.Pattern == "/chat":
		return chatBody(id, "hi")
	case route.Pattern == "/files":
		return "bytes"
	case strings.HasSuffix(route.Pattern, "submit-tool-result"):
		return text(map[string]any{"sessionId": id, "toolCallId": "c1", "result": 1})
	case strings.HasSuffix(route.Pattern, "interrupt"), strings.HasSuffix(route.Pattern, "abort"):
		return text(map[string]any{"sessionId": id, "reason": "no"})
	case route.Pattern == "/tokens":
		return text(map[string]any{"subject": "alice", "scopes": []string{"read"}, "ttlSeconds": 60})
	case route.About.Body != nil:
		return "{}"
	default:
		return ""
	}
}

// flatBody returns the good request of the RPC as the body of its route.
func (s *siege) flatBody(shape flat.Shape, rpcName, id string) string {
	encoded, err := eventv1.MarshalMessage(s.requestsOf(rpcName, id)[0])
	if err != nil {
		s.t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &fields); err != nil {
		s.t.Fatal(err)
	}
	for _, hidden := range shape.Without {
		delete(fields, hidden)
	}
	body, err := json.Marshal(fields)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(body)
}

// exchange makes a request, and reads the answer to its end, or until a stream is silent.
func (s *siege) exchange(method, path, body string, headers []string) outcome {
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return outcome{http.StatusBadRequest, err.Error() + " API_KEY_MISSING API_KEY_WRONG API_KEY_EXPIRED TOKEN_EXPIRED"} // no client can send it
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return outcome{0, err.Error()}
	}
	defer func() { _ = answer.Body.Close() }()
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		defer time.AfterFunc(streamPatience, cancel).Stop()
	}
	text, _ := io.ReadAll(answer.Body) // a stream that is cut has said enough
	return outcome{answer.StatusCode, answer.Header.Get("X-Holdfast-Error-Code") + " " + string(text)}
}

// socketAttempts returns the requests over each kind of socket. The credential travels in the header, and as a
// subprotocol as in a browser.
func (s *siege) socketAttempts(credential, id string) (all []attempt) {
	name := url.PathEscape(strings.TrimPrefix(id, "demo:"))
	for route, socket := range map[string]struct {
		path   string
		frames []string
		needs  auth.Scope
	}{
		"GET /ws":                     {path: "/ws?family=true&sessionId=" + url.QueryEscape(id), needs: auth.Read},
		"GET /chat/ws":                {path: "/chat/ws", frames: []string{sendFrame("r1", id, "hi"), resumeFrame("r2", id)}},
		"GET /agents/{agent}/{name}":  {path: "/agents/demo/" + name, frames: []string{setState(`{"careful":false}`), stopFrame}},
		"GET /agents/{agent}/{name} ": {path: "/agents/demo/" + name + "?readonly=true", needs: auth.Read},
	} {
		for _, browser := range []bool{false, true} {
			all = append(all, attempt{what: strings.TrimSpace(route), id: id, request: fmt.Sprint(socket), needs: socket.needs, send: func() outcome {
				return s.converse(socket.path, socket.frames, credential, browser)
			}})
		}
	}
	return all
}

// stopFrame stops the answer of an instance.
const stopFrame = `{"type":"cf_agent_chat_request_cancel","id":"r1"}`

// converse opens a socket, sends the frames and reads until the server closes it or is silent.
func (s *siege) converse(path string, frames []string, credential string, browser bool) outcome {
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	options := &websocket.DialOptions{HTTPHeader: http.Header{}}
	switch {
	case browser && credential != "":
		options.Subprotocols = []string{"holdfast.key." + strings.TrimPrefix(credential, "Bearer ")}
	case credential != "":
		options.HTTPHeader.Set("Authorization", credential)
	}
	conn, response, err := websocket.Dial(ctx, s.url+path, options) //nolint:bodyclose // the body is the socket
	if err != nil {
		body := ""
		if response != nil && response.Body != nil {
			text, _ := io.ReadAll(response.Body)
			body = response.Header.Get("X-Holdfast-Error-Code") + " " + string(text)
		}
		return outcome{http.StatusForbidden, body + " " + err.Error()}
	}
	defer func() { _ = conn.CloseNow() }()
	for _, frame := range frames {
		_ = conn.Write(ctx, websocket.MessageText, []byte(frame)) // a closed socket shows in the read
	}
	silence := time.AfterFunc(firstPatience, cancel)
	defer silence.Stop()
	var got strings.Builder
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			return outcome{http.StatusSwitchingProtocols, got.String() + err.Error()}
		}
		silence.Reset(streamPatience)
		got.Write(frame)
	}
}
