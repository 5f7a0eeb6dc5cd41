package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// act is a request that changes something, and its entry in the audit log. In texts, ID stands for the session of the act, and POINT
// for its checkpoint.
type act struct {
	none  string                    // why there is no entry; the rest is empty then
	on    condition                 // of the session before
	as    string                    // the key; "web" if empty
	body  string                    // or the frame
	query string                    // of the path
	entry string                    // the action
	done  func(session string) bool // whether a frame is done; nil for one whose entry tells
	kind  string                    // of its entry for hooks
}

// condition is how a session is before an act.
type condition string

// The conditions.
const (
	isAbsent      condition = ""
	isCompleted   condition = "completed"
	isInterrupted condition = "interrupted"
	isFailed      condition = "failed"
	isLive        condition = "live"
	isAsking      condition = "asking" // for the result of c1 and the approvals y1 and y2; others approve y2
)

const (
	actSession      = `{"sessionId":"ID"}`
	actRegenerate   = `{"id":"ID","trigger":"regenerate-message","messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"hi"}]}]}`
	actEdit         = `{"id":"ID","trigger":"submit-message","messageId":"u","messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"ho"}]}]}`
	actSend         = `"id":"ID","trigger":"submit-message","messages":[{"id":"v","role":"user","parts":[{"type":"text","text":"more"}]}]}`
	actApprovedPart = `{"id":"ID","trigger":"submit-message","messages":[{"id":"m","role":"assistant","parts":[` +
		`{"type":"tool-add","toolCallId":"y1","state":"approval-responded","input":{},"approval":{"id":"a-y1","approved":true}}]}]}`
	actResult    = `{"sessionId":"ID","toolCallId":"c1","result":1}`
	actApproval  = `{"sessionId":"ID","toolCallId":"y1","kind":"approval-response","approvalId":"a-y1","approved":true}`
	actDenial    = `{"sessionId":"ID","toolCallId":"y1","kind":"approval-response","approvalId":"a-y1","approved":false}`
	actOfOthers  = `{"sessionId":"ID","toolCallId":"y2","kind":"approval-response","approvalId":"a-y2","approved":true}`
	actFromPoint = `{"sessionId":"ID","checkpointId":"POINT"}`
)

// acts has each route, method and frame that changes something, and each refusal. Names are as in registeredActs. The session is
// that of the user mia, who has begun it.
var acts = map[string][]act{
	"POST /chat": {
		{on: isCompleted, body: "{" + actSend, entry: "run.started"}, {on: isCompleted, body: actRegenerate, entry: "message.regenerated"},
		{on: isCompleted, as: "mia", body: actEdit, entry: "message.edited"}, {on: isAsking, body: actApprovedPart, entry: "call.approved"},
	},
	"POST /start":                        {{body: `{"sessionId":"ID","userId":"mia","message":"hi"}`, entry: "run.started"}, {on: isCompleted, body: `{"sessionId":"ID","message":"hi"}`, entry: "run.started"}},
	"POST /resume":                       {{on: isInterrupted, as: "mia", body: actSession, entry: "run.resumed"}, {on: isCompleted, body: `{"sessionId":"ID","mode":"branch","checkpointId":"POINT"}`, entry: "session.branched"}},
	"POST /retry":                        {{on: isFailed, as: "mia", body: actSession, entry: "run.retried"}},
	"POST /abort":                        {{on: isLive, as: "mia", body: actSession, entry: "run.aborted"}},
	"POST /interrupt":                    {{on: isLive, as: "mia", body: actSession, entry: "run.interrupted"}},
	"POST /chat/{id}/abort":              {{on: isLive, as: "mia", entry: "run.aborted"}},
	"POST /chat/{id}/interrupt":          {{on: isLive, as: "mia", entry: "run.interrupted"}},
	"POST /chat/{id}/submit-tool-result": {{on: isAsking, body: actResult, entry: "call.answered"}, {on: isAsking, body: actApproval, entry: "call.approved"}},
	"POST /callbacks/{token}":            {{none: "it needs the URL of a call; TestAPostIsInTheAuditLog looks at its entry"}},
	"POST /submit-tool-result": {
		{on: isAsking, body: actResult, entry: "call.answered"}, {on: isAsking, as: "mia", body: actApproval, entry: "call.approved"}, {on: isAsking, as: "mia", body: actDenial, entry: "call.denied"},
		{on: isAsking, as: "mia", body: actOfOthers, entry: auth.ActionDenied}, {on: isAsking, as: "page", body: actApproval, entry: auth.ScopeMissing},
	},
	"POST /branch": {{on: isCompleted, as: "mia", body: actFromPoint, entry: "session.branched"}},
	"POST /rewind": {{on: isCompleted, as: "mia", body: actFromPoint, entry: "session.rewound"}},
	"POST /tokens": {{body: `{"subject":"ID"}`, entry: auth.TokenMinted}},
	"POST /files":  {{none: "a file is nobody's until a message refers to it"}},
	"PATCH /sessions/{id}": {
		{on: isCompleted, body: `{"title":"A title"}`, entry: "session.changed"}, {on: isCompleted, body: `{"userId":"leo"}`, entry: "session.owner_changed"},
		{on: isCompleted, body: `{"expiresAt":33333333333333}`, entry: "session.expiry_set"},
	},
	"PATCH /sessions/{id}/state":  {{on: isCompleted, body: `{"ops":[{"key":"k","replace":1}]}`, entry: "state.changed"}},
	"PATCH /sessions/{id}/status": {{on: isLive, body: `{"status":"failed","failure":{"error":"It failed."}}`, entry: "session.status_set"}, {on: isCompleted, as: "mia", body: `{"status":"paused"}`, entry: auth.ScopeMissing}},
	"POST /sessions/{id}/context": {{on: isCompleted, body: `{"rows":[{"kind":"notice","text":"It is noon."}]}`, entry: "messages.appended"}},
	"PUT /agents/{id}": {
		{body: clerkBody, entry: "agent.stored"}, {as: "page", body: clerkBody, entry: auth.ScopeMissing},
	},
	"DELETE /agents/{id}":         {{none: "agent.deleted: the state service tests it with an agent that is there"}, {as: "page", entry: auth.ScopeMissing}},
	"DELETE /sessions/{id}/store": {{on: isCompleted, query: "?keys=k", entry: "store.changed"}},
	"DELETE /sessions/{id}":       {{on: isCompleted, as: "mia", entry: "session.deleted"}},
	"DELETE /users/{id}":          {{as: "admin", entry: "user.erased"}, {as: "page", entry: auth.ScopeMissing}},
	"DELETE /tenant":              {{as: "gone", entry: "tenant.erased"}},
	"GET /audit/export":           {{as: "admin", entry: auth.AuditExported}},

	"GET /sse ping":       {{none: "it is answered with a pong"}},
	"GET /ws ping":        {{none: "it is answered with a pong"}},
	"GET /chat/ws send":   {{on: isCompleted, body: `{"type":"send","requestId":"r1",` + actSend, entry: "run.started"}},
	"GET /chat/ws resume": {{none: "it reads the answer of a run"}},
	"GET /chat/ws abort":  {{none: "it ends the delivery of an answer, and not the run"}},

	"GET /agents/{agent}/{name} cf_agent_state": {{on: isCompleted, body: `{"type":"cf_agent_state","state":{"careful":false}}`, entry: "state.changed"}},
	"POST /agents/{agent}/{name}/call/{method}": {{none: "a method is code of the app, and writes by calls that have entries of their own"}},
	"GET /agents/{agent}/{name} rpc":            {{none: "a method is code of the app, and writes by calls that have entries of their own"}},
	"GET /agents/{agent}/{name} cf_agent_use_chat_request": {
		{on: isCompleted, body: `{"type":"cf_agent_use_chat_request","id":"r1","init":{"method":"POST","body":` + quote("{"+actSend) + `}}`, entry: "run.started"},
	},
	"GET /agents/{agent}/{name} cf_agent_chat_request_cancel":   {{on: isLive, as: "mia", body: `{"type":"cf_agent_chat_request_cancel","id":"RUN"}`, entry: "run.interrupted"}},
	"GET /agents/{agent}/{name} cf_agent_stream_resume_request": {{none: "it asks for the stream of a run"}},
	"GET /agents/{agent}/{name} cf_agent_stream_resume_ack":     {{none: "it asks for the stream of a run"}},
	"GET /agents/{agent}/{name} cf_agent_tool_result":           {{on: isAsking, body: `{"type":"cf_agent_tool_result","toolCallId":"c1","output":1}`, entry: "call.answered"}},
	"GET /agents/{agent}/{name} cf_agent_tool_approval": {
		{on: isAsking, as: "mia", body: `{"type":"cf_agent_tool_approval","toolCallId":"y1","approved":true}`, entry: "call.approved"},
		{on: isAsking, as: "mia", body: `{"type":"cf_agent_tool_approval","toolCallId":"y2","approved":true}`, entry: auth.ActionDenied},
	},
	"GET /agents/{agent}/{name} cf_agent_chat_messages": {{on: isCompleted, as: "mia", body: `{"type":"cf_agent_chat_messages","messages":[]}`, entry: "session.rewound"}},
	"GET /agents/{agent}/{name} cf_agent_chat_clear":    {{on: isCompleted, as: "mia", body: `{"type":"cf_agent_chat_clear"}`, entry: "session.rewound"}},

	"Start":              {{on: isCompleted, body: `{"sessionId":"ID","message":"hi"}`, entry: "run.started"}},
	"Resume":             {{on: isInterrupted, as: "mia", body: actSession, entry: "run.resumed"}, {on: isFailed, body: `{"sessionId":"ID","mode":"RESUME_MODE_RETRY"}`, entry: "run.retried"}},
	"Interrupt":          {{on: isLive, as: "mia", body: actSession, entry: "run.interrupted"}},
	"Abort":              {{on: isLive, as: "mia", body: actSession, entry: "run.aborted"}},
	"SubmitToolResult":   {{on: isAsking, body: `{"sessionId":"ID","toolCallId":"c1","result":"1"}`, entry: "call.answered"}},
	"Branch":             {{on: isCompleted, as: "mia", body: actFromPoint, entry: "session.branched"}},
	"Rewind":             {{on: isCompleted, as: "mia", body: actFromPoint, entry: "session.rewound"}},
	"UpdateSession":      {{on: isCompleted, body: `{"sessionId":"ID","title":"A title"}`, entry: "session.changed"}},
	"MergeState":         {{on: isCompleted, body: `{"sessionId":"ID","ops":[{"key":"k","replace":"1"}]}`, entry: "state.changed"}},
	"DeleteStoreEntries": {{on: isCompleted, body: `{"sessionId":"ID","keys":["k"]}`, entry: "store.changed"}},
	"SetStatus":          {{on: isAsking, body: `{"sessionId":"ID","status":"paused"}`, entry: "session.status_set"}},
	"PutSubSession":      {{on: isCompleted, body: `{"sessionId":"ID","subSession":{"sessionId":"far","status":"active","remote":true}}`, entry: "session.sub_session_put"}},
	"RecordUsage":        {{on: isCompleted, body: `{"sessionId":"ID","usage":[{"custom":{"type":"host","name":"pages","value":3}}]}`, entry: "usage.recorded"}},
	"DeleteSession":      {{on: isCompleted, as: "mia", body: actSession, entry: "session.deleted"}},
	"AppendMessages":     {{on: isCompleted, body: `{"sessionId":"ID","messages":[{"role":"system","text":"Be brief."}]}`, entry: "messages.appended"}},
	"AddContext":         {{on: isCompleted, body: `{"sessionId":"ID","rows":[{"kind":"notice","text":"It is noon."}]}`, entry: "messages.appended"}},
	"TruncateMessages":   {{on: isCompleted, body: `{"sessionId":"ID","count":1}`, entry: "session.rewound"}},
	"EraseUser":          {{as: "admin", body: `{"userId":"ID"}`, entry: "user.erased"}},
	"EraseTenant":        {{as: "gone", body: `{}`, entry: "tenant.erased"}},
	"PutAgent":           {{body: `{"agentType":"ID","definition":"{model: anthropic/x}"}`, entry: "agent.stored"}},
	"DeleteAgent":        {{none: "as DELETE /agents/{id}"}},
	"CreateToken":        {{body: `{"subject":"ID"}`, entry: auth.TokenMinted}},
}

// readingMethods are the methods of the Connect service that change nothing.
var readingMethods = []string{
	"CanResume", "Get", "GetAgent", "GetCheckpoint", "GetRun", "GetSession", "GetUsage", "ListAgents", "ListAuditEvents", "ListCheckpoints", "ListKeys", "ListMessages",
	"ListPendingCalls", "ListRuns", "ListSessions", "ListUsage", "QueryUsage", "ReadStore", "Stream", "WaitRun",
}

// registeredActs returns what may change something: the registered routes but those of GET and HEAD, the frames of sockets, and the methods of
// the Connect service but those that read. may has the routes that read as well.
func registeredActs(t *testing.T, h *fixture) (must, may []string) {
	t.Helper()
	for _, route := range h.service.Routes() {
		name := route.Method + " " + route.Pattern
		for _, frame := range route.About.Frames {
			must = append(must, name+" "+frame)
		}
		if route.Method == http.MethodGet || route.Method == http.MethodHead {
			may = append(may, name)
		} else {
			must = append(must, name)
		}
		for _, answer := range route.About.Answers {
			if answer.Status == http.StatusSwitchingProtocols && len(route.About.Frames) == 0 {
				t.Errorf("%s opens a socket: its description must have the frames that a client may send", name)
			}
		}
	}
	for i := range service().Methods().Len() {
		if name := string(service().Methods().Get(i).Name()); !slices.Contains(readingMethods, name) {
			must = append(must, name)
		}
	}
	return must, append(may, must...)
}

func TestEachActThatChangesSomethingHasAnEntryOrAReason(t *testing.T) {
	t.Parallel()
	must, may := registeredActs(t, open(t, nil))
	for _, name := range must {
		if len(acts[name]) == 0 {
			t.Errorf("%s may change something: add to acts its entry in the audit log, or why there is none", name)
		}
	}
	for name := range acts {
		if !slices.Contains(may, name) {
			t.Errorf("acts has %s, which is not registered", name)
		}
	}
}

func TestEachActHasItsEntryInTheAuditLog(t *testing.T) {
	t.Parallel()
	file, keys := actKeys(t)
	h := open(t, actConfig(file))
	played := playActs(t, h, keys, acts)
	h.report(t)
	entries := append(h.State.AuditLog(t, "default"), h.State.AuditLog(t, "gone")...)
	for _, p := range played {
		if !p.isIn(entries) {
			t.Errorf("%s on a session that is %q, by %q: the audit log has no %s of it", p.name, p.on, p.actor(), p.entry)
		}
	}
	t.Logf("%d acts", len(played))
}

// actKeys returns a file with the keys of acts, and the header Authorization for each.
func actKeys(t *testing.T) (path string, keys map[string]string) {
	t.Helper()
	keys = map[string]string{}
	var file strings.Builder
	for name, rights := range map[string]string{
		"web": "tenant: default, scopes: [operate]", "admin": "tenant: default, scopes: [admin]", "gone": "tenant: gone, scopes: [admin]",
		"mia": "tenant: default, subject: mia, scopes: [read, chat, approve]", "page": "tenant: default, scopes: [chat]",
	} {
		key, sum := gateway.NewAPIKey()
		keys[name] = "Bearer " + key
		fmt.Fprintf(&file, "- {name: %s, sha256: %s, %s}\n", name, sum, rights)
	}
	return keysFile(t, file.String()), keys
}

// actConfig is the configuration of a gateway for acts.
func actConfig(keys string) func(*gateway.Config) {
	return func(c *gateway.Config) {
		c.APIKeys, c.InsecureNoAuth, c.TokenSecrets, c.StatePatience = keys, false, []string{strings.Repeat("s", 32)}, 0
	}
}

// playActs plays each act on a session of its own.
func playActs(t *testing.T, h *fixture, keys map[string]string, acts map[string][]act) []*playedAct {
	t.Helper()
	var played []*playedAct
	for _, name := range slices.Sorted(maps.Keys(acts)) {
		for _, a := range acts[name] {
			if a.none != "" {
				continue
			}
			p := &playedAct{act: a, name: name, id: fmt.Sprintf("demo:act-%02d", len(played))}
			p.play(t, h, keys)
			played = append(played, p)
		}
	}
	return played
}

// report lets the gateway send what it has for the audit log, as at its end. It serves no streams afterwards.
func (h *fixture) report(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.service.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// playedAct is an act on a session of its own.
type playedAct struct {
	act
	name, id   string
	point, run string
}

func (p *playedAct) actor() string {
	switch p.as {
	case "":
		return "key:web"
	case "mia":
		return "user:mia"
	default:
		return "key:" + p.as
	}
}

// isIn reports whether the log has the entry. One of the tenant, and of what the gateway refuses, names no session.
func (p *playedAct) isIn(entries []*eventv1.AuditEvent) bool {
	return slices.ContainsFunc(entries, func(e *eventv1.AuditEvent) bool {
		about := strings.Contains(e.GetSessionId()+" "+e.GetTargetId()+" "+e.GetDetail(), p.id)
		return e.GetAction() == p.entry && e.GetActor() == p.actor() &&
			(about || p.entry == auth.ScopeMissing || p.entry == auth.AuditExported || p.entry == "tenant.erased")
	})
}

// play prepares the session and performs the act. An act over a socket is done when its entry is written, or when the socket is
// answered.
func (p *playedAct) play(t *testing.T, h *fixture, keys map[string]string) {
	t.Helper()
	p.prepare(t, h)
	credential := keys[strings.SplitN(p.actor(), ":", 2)[1]]
	fill := strings.NewReplacer("ID", p.id, "POINT", p.point, "RUN", p.run).Replace
	in := strings.NewReplacer("{id}", p.id, "{agent}", "demo", "{name}", strings.TrimPrefix(p.id, "demo:"))
	method, pattern, isRoute := strings.Cut(p.name, " ")
	if !isRoute {
		method, pattern = http.MethodPost, fmt.Sprintf("/%s/%s", service().FullName(), p.name)
	}
	pattern, frame, isFrame := strings.Cut(pattern, " ")
	if !isFrame {
		answer := h.request(t, method, in.Replace(pattern)+p.query, fill(p.body), "Authorization", credential, "Content-Type", "application/json", "Accept", "application/json")
		refused := p.entry == auth.ActionDenied || p.entry == auth.ScopeMissing || p.entry == auth.EntryRefused
		if refused != (answer.StatusCode == http.StatusForbidden) || !refused && answer.StatusCode/100 != 2 {
			t.Errorf("%s on a session that is %q: got %d %s", p.name, p.on, answer.StatusCode, text(t, answer))
		}
		_ = answer.Body.Close()
		return
	}
	conn, _, err := h.upgrade(t, in.Replace(pattern), nil, "Authorization", credential) //nolint:bodyclose // the body is the socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(fill(p.body))); err != nil {
		t.Fatal(err)
	}
	if p.done != nil {
		waitFor(t, frame+" is done", func() bool { return p.done(p.id) })
		return
	}
	if p.entry != auth.ActionDenied {
		waitFor(t, frame+" has its entry", func() bool { return p.isIn(h.State.AuditLog(t, "default")) })
		return
	}
	s := &agentSocket{conn, t}
	s.until(mcpFrame)
	for range 2 { // the greeting, and the conversation for a client whose answer is not stored
		s.until(`"type":"cf_agent_chat_messages"`)
	}
}

// prepare brings the session into its condition.
func (p *playedAct) prepare(t *testing.T, h *fixture) {
	t.Helper()
	if p.on == isAbsent {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if _, err := h.State.StartRun(ctx, &statev1.StartRunRequest{
		Tenant: "default", SessionId: p.id, AgentType: "demo", UserId: "mia", Caller: &statev1.Caller{Actor: "user:mia", Owner: "mia"},
		Messages: []*eventv1.Message{{Id: "u", Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "hi"}}}}}},
	}); err != nil {
		t.Fatal(err)
	}
	run := h.AwaitRun(t, "default", p.id, nil)
	p.run = run.GetRunId()
	switch p.on {
	case isLive:
		run.Show(1, Started(), Text("One"))
		return
	case isFailed:
		run.Show(1, Started(), Text("One"))
		run.Fail("It failed.", "model_error")
		return
	case isAsking:
		call := func(id string, kind statev1.CallKind, by statev1.Approvers) *statev1.Call {
			return &statev1.Call{ToolCallId: id, ToolName: "add", Kind: kind, ApprovalId: "a-" + id, Input: `{}`, Approvers: by}
		}
		run.Show(1, Started(), StepStarted(), ClientCall("c1", `{}`), ApprovalRequest("y1", `{}`), ApprovalRequest("y2", `{}`), StepCommitted(), Suspended())
		asked := []*statev1.Call{
			call("c1", statev1.CallKind_CALL_KIND_CLIENT_TOOL, 0), call("y1", statev1.CallKind_CALL_KIND_APPROVAL, 0),
			call("y2", statev1.CallKind_CALL_KIND_APPROVAL, statev1.Approvers_APPROVERS_OTHERS),
		}
		asked[0].ApprovalId = ""
		run.Suspend(asked, AssistantMessage(1, "", "c1", "y1", "y2"))
	case isInterrupted:
		run.Show(1, Started(), StepStarted(), Text("One"), StepCommitted(), Interrupted())
		run.Interrupt(AssistantMessage(1, "One"))
	default:
		run.Show(1, Started(), StepStarted(), Text("One"), StepCommitted(), Completed())
		run.Complete(AssistantMessage(1, "One"))
	}
	p.point = run.Checkpoint()
}
