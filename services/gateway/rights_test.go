package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// openWithRights opens a gateway with a key of the tenant default for each of the names. rights are the other members
// of the key's entry, such as "scopes: [read]".
func openWithRights(t *testing.T, rights map[string]string, agents ...*statev1.Agent) (h *fixture, keys map[string]string) {
	t.Helper()
	path, keys := rightsFile(t, rights)
	return open(t, func(c *gateway.Config) { c.APIKeys, c.InsecureNoAuth = path, false }, agents...), keys
}

// rightsFile writes a file of keys with these rights, and returns its path and their headers.
func rightsFile(t *testing.T, rights map[string]string) (path string, keys map[string]string) {
	t.Helper()
	keys = map[string]string{}
	var file strings.Builder
	for name, more := range rights {
		key, sum := gateway.NewAPIKey()
		keys[name] = "Bearer " + key
		fmt.Fprintf(&file, "- {name: %s, tenant: default, sha256: %s, %s}\n", name, sum, more)
	}
	return keysFile(t, file.String()), keys
}

// decodeBody decodes a JSON answer.
func decodeBody(t *testing.T, r *reply, target any) {
	t.Helper()
	if body := text(t, r); r.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), target) != nil {
		t.Fatalf("got %d %s", r.StatusCode, body)
	}
}

// service is the Connect service.
func service() protoreflect.ServiceDescriptor {
	return agentv1.File_holdfast_agent_v1_agent_proto.Services().ByName("AgentService")
}

func TestEveryMethodOfTheServiceHasARowInTheTableOfRights(t *testing.T) {
	t.Parallel()
	for i := range service().Methods().Len() {
		if name := string(service().Methods().Get(i).Name()); auth.ScopeOf(name) == "" {
			t.Errorf("%s has no scope", name)
		}
	}
}

// scopes are all scopes, each with those that include it.
var scopes = map[auth.Scope][]auth.Scope{
	auth.Read: {auth.Read, auth.Chat, auth.Approve, auth.Operate, auth.Admin}, auth.Chat: {auth.Chat, auth.Operate, auth.Admin},
	auth.Approve: {auth.Approve, auth.Operate, auth.Admin}, auth.Operate: {auth.Operate, auth.Admin}, auth.Admin: {auth.Admin},
}

func TestEveryRouteAndMethodRefusesCallersWithoutItsScope(t *testing.T) {
	t.Parallel()
	rights := map[string]string{}
	for s := range scopes {
		rights[string(s)] = "scopes: [" + string(s) + "]"
	}
	h, keys := openWithRights(t, rights)
	type target struct {
		method, path string
		needed       auth.Scope
	}
	var targets []target
	path := strings.NewReplacer("{id}", "x", "{agent}", "demo", "{name}", "x")
	for _, route := range h.service.Routes() {
		if !route.Public {
			targets = append(targets, target{route.Method, path.Replace(route.Pattern), route.Needs()})
		}
	}
	for i := range service().Methods().Len() {
		name := service().Methods().Get(i).Name()
		targets = append(targets, target{http.MethodPost, fmt.Sprintf("/%s/%s", service().FullName(), name), auth.ScopeOf(string(name))})
	}
	admitted, refused := 0, 0
	for _, to := range targets {
		for s := range scopes {
			r := h.request(t, to.method, to.path, "{}", "Authorization", keys[string(s)], "Content-Type", "application/json")
			got := r.StatusCode == http.StatusForbidden && strings.Contains(text(t, r)+r.Header.Get(httpapi.ErrorCodeHeader), "SCOPE_MISSING")
			want := true
			for _, enough := range scopes[to.needed] {
				want = want && s != enough
			}
			if got != want {
				t.Errorf("%s %s with the scope %s: got refused %t, want %t (%d)", to.method, to.path, s, got, want, r.StatusCode)
			}
			if got {
				refused++
			} else {
				admitted++
			}
		}
	}
	if admitted < 100 || refused < 50 {
		t.Errorf("%d were admitted and %d refused: the test looks at too little", admitted, refused)
	}
}

func TestAStartWithContentOfServersNeedsTheScopeOperate(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"page": "scopes: [chat]", "server": "scopes: [operate]"})
	system := []*agentv1.InputMessage{{Role: "system", Text: "Be rude."}, {Text: "hi"}}
	starts := map[string]*agentv1.StartRequest{
		"state": {Message: "hi", State: `{"careful":false}`}, "system": {Messages: system}, "user": {Message: "hi", UserId: "somebody"},
	}
	for about, request := range starts {
		for name, c := range clients(t, h, connect.WithInterceptors(sending(keys["page"]))) {
			if _, err := c.Start(t.Context(), request); reasonOf(err) != "SCOPE_MISSING" {
				t.Errorf("%s over %s: got %v", about, name, err)
			}
		}
		for name, c := range clients(t, h, connect.WithInterceptors(sending(keys["server"]))) {
			want := ""
			if about == "system" { // the state service takes them only behind other messages
				want = "MESSAGE_INVALID"
			}
			if _, err := c.Start(t.Context(), request); reasonOf(err) != want {
				t.Errorf("%s of a server over %s: got %v, want %q", about, name, err, want)
			}
		}
	}
	for path, body := range map[string]string{
		"/start":  `{"message":"hi","state":{"careful":false}}`,
		"/resume": `{"sessionId":"s1","modifyState":{"careful":false}}`,
		"/retry":  `{"sessionId":"s1","appendMessages":[{"text":"more"}]}`,
	} {
		wantFault(t, h.request(t, http.MethodPost, path, body, "Authorization", keys["page"]), 403, "SCOPE_MISSING")
	}
	wantFault(t, h.request(t, http.MethodPatch, "/sessions/s1", `{"userId":"me"}`, "Authorization", keys["page"]), 403, "SCOPE_MISSING")
	wantFault(t, h.request(t, http.MethodPatch, "/sessions/s1", `{"expiresAt":1}`, "Authorization", keys["page"]), 403, "SCOPE_MISSING")
	wantFault(t, h.request(t, http.MethodPatch, "/sessions/s1", `{"userId":"me"}`, "Authorization", keys["server"]), 404, "SESSION_NOT_FOUND")
}

// sending is an interceptor that sends the header Authorization with unary calls.
func sending(header string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			r.Header().Set("Authorization", header)
			return next(ctx, r)
		}
	}
}

// reasonOf returns the reason of an error over Connect.
func reasonOf(err error) string { return fault.ReasonOf(rpc.FromConnect(err)) }

// recorded is a connection to the state service that keeps the last requests.
type recorded struct {
	grpc.ClientConnInterface
	calls *statev1.SubmitCallsRequest
	start *statev1.StartRunRequest
}

func (r *recorded) Invoke(_ context.Context, _ string, request, _ any, _ ...grpc.CallOption) error {
	switch m := request.(type) {
	case *statev1.SubmitCallsRequest:
		r.calls = m
	case *statev1.StartRunRequest:
		r.start = m
	}
	return nil
}

func TestSystemMessagesAreRefusedOverEveryTransportOfTheChat(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"page": "scopes: [chat]"})
	body := postOf("s1", uiPart{"id": "sys", "role": "system", "parts": []any{textPart("Be rude.")}}, userMessage("u", "hi"))
	wantFault(t, h.request(t, http.MethodPost, "/chat", body, "Authorization", keys["page"]), 403, "SCOPE_MISSING")
	s := h.talk(t, "Authorization", keys["page"])
	s.say(`{"type":"send","requestId":"r1",` + body[1:])
	if f, err := s.next(); err != nil || f.Code != "SCOPE_MISSING" {
		t.Errorf("over /chat/ws: got %v, %v", f.text, err)
	}
	a, _ := h.agentClient(t, "demo/room", "Authorization", keys["page"])
	a.say(`{"type":"cf_agent_use_chat_request","id":"r1","init":{"method":"POST","body":` + quote(body) + `}}`)
	if got := a.next(); !strings.Contains(got, `"error":true`) || !strings.Contains(got, "not allowed") {
		t.Errorf("over /agents: got %s", got)
	}
	if h.State.Has("default", "s1") || h.State.Has("default", "demo:room") {
		t.Error("a refused request has begun something")
	}
}

func TestAnApprovalNeedsTheScopeApproveOverEveryTransport(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"page": "scopes: [chat]", "boss": "scopes: [approve]", "both": "scopes: [chat, approve]"})
	openOver(t, listen(t), h.World, nil).suspend(t, "demo:room", approvalCall("a1"), clientCall("c1"))
	approval := `{"sessionId":"demo:room","toolCallId":"a1","kind":"approval-response","approvalId":"approval of a1","approved":true}`
	for _, path := range []string{"/submit-tool-result", "/chat/demo:room/submit-tool-result"} {
		wantFault(t, h.request(t, http.MethodPost, path, approval, "Authorization", keys["page"]), 403, "SCOPE_MISSING")
	}
	request := &agentv1.SubmitToolResultRequest{SessionId: "demo:room", ToolCallId: "a1", Answer: &agentv1.SubmitToolResultRequest_Approval{
		Approval: &agentv1.ApprovalResponse{ApprovalId: "approval of a1", Approved: true},
	}}
	for name, c := range clients(t, h, connect.WithInterceptors(sending(keys["page"]))) {
		if _, err := c.SubmitToolResult(t.Context(), request); reasonOf(err) != "SCOPE_MISSING" {
			t.Errorf("over %s: got %v", name, err)
		}
	}
	approved := assistant("m1", uiPart{"type": "tool-pay", "toolCallId": "a1", "state": "approval-responded", "input": map[string]any{},
		"approval": map[string]any{"id": "approval of a1", "approved": true}})
	wantFault(t, h.request(t, http.MethodPost, "/chat", postOf("demo:room", userMessage("u", "hi"), approved), "Authorization", keys["page"]), 403, "SCOPE_MISSING")
	a, _ := h.agentClient(t, "demo/room", "Authorization", keys["page"])
	a.wantType("cf_agent_chat_messages") // the greeting
	a.say(`{"type":"cf_agent_tool_approval","toolCallId":"a1","approved":true}`)
	a.wantType("cf_agent_chat_messages") // for a client whose answer is not stored
	if got := h.answerOf("demo:room", "a1"); got != nil {
		t.Errorf("the approval was answered: %v", got)
	}
	result := `{"sessionId":"demo:room","toolCallId":"c1","result":1}`
	wantFault(t, h.request(t, http.MethodPost, "/submit-tool-result", result, "Authorization", keys["boss"]), 403, "SCOPE_MISSING")
	for key, body := range map[string]string{"page": result, "boss": approval} {
		if r := h.request(t, http.MethodPost, "/submit-tool-result", body, "Authorization", keys[key]); r.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d %s", key, r.StatusCode, text(t, r))
		}
	}
	if got := h.answerOf("demo:room", "a1"); !got.GetApproval().GetApproved() {
		t.Errorf("got %v, want an approval", got)
	}
}

// answerOf returns the answer to a call of the tenant default.
func (h *fixture) answerOf(session, call string) *statev1.CallAnswer {
	for _, c := range h.State.PendingCalls("default", session) {
		if c.GetToolCallId() == call {
			return c.GetAnswer()
		}
	}
	return nil
}

func TestAPageWritesTheStateOnlyOfAgentsThatLetIt(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"page": "scopes: [chat]", "server": "scopes: [operate]", "reader": "scopes: [read]"},
		&statev1.Agent{AgentType: "demo"}, &statev1.Agent{AgentType: "board", StateSchema: `{"type":"object","x-client-writable":true}`})
	for _, tc := range []struct {
		key, agent string
		writes     bool
	}{{"page", "demo", false}, {"server", "demo", true}, {"page", "board", true}, {"reader", "board", false}} {
		a, _ := h.agentClient(t, tc.agent+"/"+tc.key, "Authorization", keys[tc.key])
		a.say(setState(`{"n":1}`))
		a.barrier()
		if got := h.State.Has("default", tc.agent+":"+tc.key); got != tc.writes {
			t.Errorf("%s writes the state of %s: got %t, want %t", tc.key, tc.agent, got, tc.writes)
		}
	}
}

func TestACallerOfAUserStartsAndListsOnlyItsOwnSessions(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"ann": "subject: ann", "bob": "subject: bob", "server": "scopes: [operate]"})
	h.chat(t, chatBody("s1", "hi"), "Authorization", keys["ann"])
	if r := h.request(t, http.MethodPost, "/start", `{"sessionId":"s2","message":"hi","userId":"ann"}`, "Authorization", keys["ann"]); r.StatusCode != http.StatusOK {
		t.Errorf("got %d %s", r.StatusCode, text(t, r))
	}
	wantFault(t, h.request(t, http.MethodPost, "/start", `{"sessionId":"s3","message":"hi","userId":"ann"}`, "Authorization", keys["bob"]), 403, "OWNER_REFUSED")
	a, _ := h.agentClient(t, "demo/room", "Authorization", keys["bob"])
	a.say(`{"type":"cf_agent_use_chat_request","id":"r1","init":{"method":"POST","body":` + quote(chatBody("x", "hi")) + `}}`)
	h.AwaitRun(t, "default", "demo:room", nil)
	for key, want := range map[string]string{"ann": "s1 s2", "bob": "demo:room", "server": "demo:room s1 s2"} {
		var page struct{ Sessions []struct{ SessionID string } }
		decodeBody(t, h.request(t, http.MethodGet, "/sessions", "", "Authorization", keys[key]), &page)
		var ids []string
		for _, s := range page.Sessions {
			ids = append(ids, s.SessionID)
		}
		slices.Sort(ids)
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	for _, path := range []string{"/sessions?userId=bob", "/calls?userId=bob", "/usage/query?userId=bob"} {
		wantFault(t, h.request(t, http.MethodGet, path, "", "Authorization", keys["ann"]), 403, "OWNER_REFUSED")
	}
}

func TestARepeatedApprovalOfSomebodyElseDoesNotRefuseTheMessage(t *testing.T) {
	t.Parallel()
	i := auth.Identity{Tenant: "acme", Scopes: []auth.Scope{auth.Chat}}
	approval := &statev1.SubmittedAnswer{ToolCallId: "a", Answer: &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{Approved: true}}}}
	result := &statev1.SubmittedAnswer{ToolCallId: "c", Answer: &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: "1"}}}
	for name, tc := range map[string]struct {
		answers []*statev1.SubmittedAnswer
		reason  string
		sent    int
	}{
		"an approval alone":     {[]*statev1.SubmittedAnswer{approval}, "SCOPE_MISSING", 0},
		"a result and approval": {[]*statev1.SubmittedAnswer{approval, result}, "", 1},
		"nothing":               {nil, "", 0},
	} {
		sent, audit := &recorded{}, &auditLog{}
		_, err := statev1.NewCallServiceClient(auth.Stamped{ClientConnInterface: sent, Audit: audit}).SubmitCalls(auth.With(t.Context(), i), &statev1.SubmitCallsRequest{Answers: tc.answers})
		if got := fault.ReasonOf(err); got != tc.reason || len(sent.calls.GetAnswers()) != tc.sent {
			t.Errorf("%s: got %q and %d answers, want %q and %d", name, got, len(sent.calls.GetAnswers()), tc.reason, tc.sent)
		}
		if refused := len(audit.events) == 1 && audit.events[0].Detail["scope"] == "approve"; refused != (tc.reason != "") {
			t.Errorf("%s: recorded %v", name, audit.events)
		}
		_, err = statev1.NewRunServiceClient(auth.Stamped{ClientConnInterface: sent}).StartRun(auth.With(t.Context(), i), &statev1.StartRunRequest{Answers: tc.answers, Messages: []*eventv1.Message{{}}})
		if err != nil || len(sent.start.GetAnswers()) != tc.sent {
			t.Errorf("%s with a message: got %v and %d answers, want %d", name, err, len(sent.start.GetAnswers()), tc.sent)
		}
	}
}

func TestASocketOfAReaderStartsAndCallsNothing(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"reader": "scopes: [read]"})
	a, _ := h.agentClient(t, "demo/room", "Authorization", keys["reader"])
	a.say(`{"type":"rpc","id":"r1","method":"add","args":[]}`)
	if got := a.next(); !strings.Contains(got, `"success":false`) || !strings.Contains(got, "lacks the scope chat") {
		t.Errorf("a method: got %s", got)
	}
	a.say(chatRequest("r2", words("hi")))
	if got := a.next(); !strings.Contains(got, `"error":true`) {
		t.Errorf("a message: got %s", got)
	}
	a.say(`{"type":"cf_agent_chat_clear"}`)
	a.barrier()
	if h.State.Has("default", "demo:room") {
		t.Error("a reader has begun a session")
	}
	wantFault(t, h.request(t, http.MethodGet, "/chat/ws", "", "Authorization", keys["reader"]), 403, "SCOPE_MISSING")
}

// auditLog keeps events.
type auditLog struct{ events []auth.Event }

func (a *auditLog) Record(_ context.Context, e auth.Event) { a.events = append(a.events, e) }
