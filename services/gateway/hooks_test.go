package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// entryKinds are the kinds of the acts that are entries, by their action in the audit log.
var entryKinds = map[string]gateway.EntryKind{
	"run.started": gateway.KindStart, "message.edited": gateway.KindEdit, "message.regenerated": gateway.KindRegenerate,
	"run.resumed": gateway.KindResume, "run.retried": gateway.KindRetry, "session.branched": gateway.KindBranch,
	"session.rewound": gateway.KindRewind, "run.aborted": gateway.KindStop, "run.interrupted": gateway.KindStop,
	"call.answered": gateway.KindAnswer, "call.approved": gateway.KindAnswer, "call.denied": gateway.KindAnswer,
	auth.ActionDenied: gateway.KindAnswer, // the hook comes first
}

// noEntries are the actions of other acts: they change what is stored, and not what an agent does.
var noEntries = []string{
	auth.AuditExported, auth.ScopeMissing, auth.TokenMinted, "agent.stored", "messages.appended", "session.changed", "session.deleted",
	"session.expiry_set", "session.owner_changed", "session.status_set", "session.sub_session_put", "state.changed", "store.changed",
	"tenant.erased", "usage.recorded", "user.erased",
}

// hookLog has the entries that a hook has seen, by their session.
type hookLog struct {
	mu   sync.Mutex
	seen map[string][]gateway.EntryKind
}

func (l *hookLog) add(e *gateway.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string][]gateway.EntryKind{}
	}
	l.seen[e.SessionID] = append(l.seen[e.SessionID], e.Kind)
}

func (l *hookLog) of(session string) []gateway.EntryKind {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen[session])
}

func (l *hookLog) has(session string) bool { return len(l.of(session)) > 0 }

// openHooked opens a gateway with hooks.
func openHooked(t *testing.T, p gateway.Peers, change func(*gateway.Config)) *fixture {
	t.Helper()
	return openWith(t, listen(t), New(t), p, change)
}

// commands are the methods of the state service that entries become.
var commands = []string{
	statev1.RunService_StartRun_FullMethodName, statev1.RunService_RequestStop_FullMethodName, statev1.CallService_SubmitCall_FullMethodName,
	statev1.CallService_SubmitCalls_FullMethodName, statev1.CheckpointService_Rewind_FullMethodName,
	statev1.CheckpointService_Branch_FullMethodName, statev1.SessionService_TruncateMessages_FullMethodName,
}

// The acts are those of acts_test.go, which must have every route, method and frame: a new one without the hook fails here.
func TestARefusalOfAHookStartsNothingOverAnyTransportAndIsAudited(t *testing.T) {
	t.Parallel()
	file, keys := actKeys(t)
	var hook hookLog
	h := openHooked(t, gateway.Peers{BeforeEntry: func(_ context.Context, e *gateway.Entry) error {
		if e.Request == nil || e.Actor == "" || e.Caller.Tenant != "default" {
			t.Errorf("the entry %s of %q has the request %v, the actor %q and the tenant %q", e.Kind, e.SessionID, e.Request, e.Actor, e.Caller.Tenant)
		}
		hook.add(e)
		return &gateway.Refusal{Status: http.StatusForbidden, Code: "NOT_TODAY", Message: "Not today."}
	}}, actConfig(file))
	refused := map[string][]act{}
	for name, list := range acts {
		for _, a := range list {
			kind, is := entryKinds[a.entry]
			switch {
			case a.none != "":
			case is:
				a.entry, a.done, a.kind = auth.EntryRefused, hook.has, string(kind)
				refused[name] = append(refused[name], a)
			case !slices.Contains(noEntries, a.entry):
				t.Errorf("%s: say in entryKinds or noEntries whether the hooks are asked about the action %q", name, a.entry)
			}
		}
	}
	played := playActs(t, h, keys, refused)
	h.report(t)
	entries := h.State.AuditLog(t, "default")
	for _, p := range played {
		if !p.isIn(entries) {
			t.Errorf("%s on a session that is %q, by %q: the audit log has no refusal of it", p.name, p.on, p.actor())
		}
		if got, want := hook.of(p.id), []gateway.EntryKind{gateway.EntryKind(p.kind)}; !slices.Equal(got, want) {
			t.Errorf("%s on a session that is %q: the hook has seen %v, want %v", p.name, p.on, got, want)
		}
		if p.on == isAbsent && h.State.Has("default", p.id) {
			t.Errorf("%s has created its session", p.name)
		}
	}
	for _, method := range h.State.Methods() {
		if slices.Contains(commands, method) {
			t.Errorf("the gateway has called %s for a refused request", method)
		}
	}
	if len(played) < 30 {
		t.Errorf("%d acts are entries, want all", len(played))
	}
	t.Logf("%d acts", len(played))
}

// The same acts without a refusal: AfterEntry is called once for each that the state service does.
func TestEachEntryThatIsDoneIsTold(t *testing.T) {
	t.Parallel()
	file, keys := actKeys(t)
	var hook hookLog
	h := openHooked(t, gateway.Peers{AfterEntry: func(_ context.Context, e gateway.Entered) { hook.add(e.Entry) }}, actConfig(file))
	done := map[string][]act{}
	for name, list := range acts {
		for _, a := range list {
			if kind, is := entryKinds[a.entry]; is && a.none == "" && a.entry != auth.ActionDenied {
				a.done, a.kind = hook.has, string(kind)
				done[name] = append(done[name], a)
			}
		}
	}
	for _, p := range playActs(t, h, keys, done) {
		if got := hook.of(p.id); len(got) == 0 || got[len(got)-1] != gateway.EntryKind(p.kind) {
			t.Errorf("%s on a session that is %q: the hook was told of %v, want %v at the end", p.name, p.on, got, p.kind)
		}
	}
}

func TestARefusalHasTheStatusTheCodeAndTheBodyOfTheHook(t *testing.T) {
	t.Parallel()
	h := openHooked(t, gateway.Peers{BeforeEntry: func(_ context.Context, e *gateway.Entry) error {
		r := &gateway.Refusal{Status: http.StatusPaymentRequired, Code: "NO_CREDIT", Message: "Your credit is used up."}
		if e.SessionID == "body" {
			r.Body = json.RawMessage(`{"pay":"https://shop.example/pay"}`)
		}
		return r
	}}, nil)
	reply := h.request(t, http.MethodPost, "/start", `{"sessionId":"s","message":"hi"}`)
	if got, want := text(t, reply), `{"error":"Your credit is used up.","code":"NO_CREDIT","retryable":false}`+"\n"; reply.StatusCode != 402 || got != want {
		t.Errorf("POST /start: got %d %s, want 402 %s", reply.StatusCode, got, want)
	}
	reply = h.request(t, http.MethodPost, "/start", `{"sessionId":"body","message":"hi"}`)
	if got, want := text(t, reply), `{"pay":"https://shop.example/pay"}`+"\n"; reply.StatusCode != 402 || got != want {
		t.Errorf("a refusal with a body: got %d %s, want 402 %s", reply.StatusCode, got, want)
	}
	reply = h.request(t, http.MethodPost, "/chat", chatBody("s", "hi"))
	if got := text(t, reply); reply.StatusCode != 402 || got != "Your credit is used up." || reply.Header.Get(httpapi.ErrorCodeHeader) != "NO_CREDIT" {
		t.Errorf("POST /chat: got %d %q, want the sentence for users", reply.StatusCode, got)
	}
	for name, client := range clients(t, h) {
		_, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: "s", Message: "hi"})
		wantReason(t, name, err, "NO_CREDIT")
		if got := connect.CodeOf(err); got != connect.CodePermissionDenied {
			t.Errorf("%s: got %v, want permission_denied", name, got)
		}
	}
	if h.State.Has("default", "s") {
		t.Error("a refused request has created its session")
	}
}

// A refusal may have a code of this system. Code that looks for it must not go on without the hook.
func TestTheCodeOfARefusalIsNotTakenForOneOfThisSystem(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"SESSION_NOT_FOUND", "ANSWERS_UNKNOWN", "MESSAGE_EXISTS", "RUN_STALE", "CALL_NOT_OPEN"} {
		h := openHooked(t, gateway.Peers{BeforeEntry: func(context.Context, *gateway.Entry) error {
			return &gateway.Refusal{Status: http.StatusNotFound, Code: code}
		}}, nil)
		const history = `{"id":"s","trigger":"submit-message","messages":[` +
			`{"id":"a","role":"user","parts":[{"type":"text","text":"one"}]},{"id":"b","role":"assistant","parts":[{"type":"text","text":"two"}]},` +
			`{"id":"c","role":"user","parts":[{"type":"text","text":"three"}]}]}`
		wantFault(t, h.request(t, http.MethodPost, "/chat", history, "Accept", "application/json"), 404, code)
		if h.State.Has("default", "s") {
			t.Errorf("the refusal %s has started a run", code)
		}
	}
}

func TestAHookThatFailsPanicsOrHangsStartsNothing(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for name, hook := range map[string]func(context.Context, *gateway.Entry) error{
		"an error":        func(context.Context, *gateway.Entry) error { return errors.New("the database is down") },
		"a panic":         func(context.Context, *gateway.Entry) error { panic("oh") },
		"a hang":          func(context.Context, *gateway.Entry) error { <-release; return nil },
		"a slow hook":     func(ctx context.Context, _ *gateway.Entry) error { <-ctx.Done(); return ctx.Err() },
		"a wrong status":  func(context.Context, *gateway.Entry) error { return &gateway.Refusal{Status: 200} },
		"a wrong code":    func(context.Context, *gateway.Entry) error { return &gateway.Refusal{Status: 400, Code: "no credit"} },
		"a wrong policy":  func(_ context.Context, e *gateway.Entry) error { e.Run.OnBusy = "sing"; return nil },
		"no run any more": func(_ context.Context, e *gateway.Entry) error { e.Run = nil; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := openHooked(t, gateway.Peers{BeforeEntry: hook}, func(c *gateway.Config) { c.HookTimeout = 50 * time.Millisecond })
			wantFault(t, h.request(t, http.MethodPost, "/start", `{"sessionId":"s","message":"hi"}`), 500, "INTERNAL")
			for name, client := range clients(t, h) {
				_, err := client.Start(t.Context(), &agentv1.StartRequest{SessionId: "s", Message: "hi"})
				if got := connect.CodeOf(err); got != connect.CodeInternal || strings.Contains(err.Error(), "database") {
					t.Errorf("%s: got %v, want internal without the cause", name, err)
				}
			}
			if h.State.Has("default", "s") {
				t.Error("a run was started")
			}
		})
	}
}

func TestAHookChangesARequestAndTheChangeIsChecked(t *testing.T) {
	t.Parallel()
	h := openHooked(t, gateway.Peers{BeforeEntry: func(ctx context.Context, e *gateway.Entry) error {
		if s, err := e.Session(ctx); err != nil || (s == nil) != (e.SessionID != "known") {
			t.Errorf("the session of %q: got %v, %v", e.SessionID, s, err)
		}
		switch e.SessionID {
		case "tags":
			e.Run.Tags = []string{strings.Repeat("x", 10_000)}
		case "state":
			e.Run.State = json.RawMessage(`[]`)
		case "role":
			e.Run.Messages[0].Role = "assistant"
		case "agent":
			e.Run.AgentType = "nobody"
		case "good":
			e.Run.AgentType, e.Run.UserID, e.Run.State = "other", "ann", json.RawMessage(`{"plan":"free"}`)
			e.Run.Metadata = map[string]string{"from": e.Request.Header.Get("X-Shop")}
			e.Run.Messages[0].Text = strings.ReplaceAll(e.Run.Messages[0].Text, "4111", "****")
		}
		return nil
	}}, nil)
	for session, code := range map[string]string{"tags": "TAGS_INVALID", "state": "STATE_INVALID", "role": "MESSAGE_INVALID"} {
		wantFault(t, h.request(t, http.MethodPost, "/start", fmt.Sprintf(`{"sessionId":%q,"message":"hi"}`, session)), 400, code)
	}
	wantFault(t, h.request(t, http.MethodPost, "/start", `{"sessionId":"agent","message":"hi"}`), 404, "AGENT_NOT_FOUND")
	body := strings.Replace(chatBody("good", "my card is 4111"), `"id":"good"`, `"id":"good","agentType":"demo"`, 1)
	stream := h.chat(t, body, "X-Shop", "north")
	playAnswer(h.AwaitRun(t, "default", "good", nil))
	stream.rest()
	s := h.State.Get("default", "good").GetSession()
	if s.GetAgentType() != "other" || s.GetUserId() != "ann" || s.GetCustomState() != `{"plan":"free"}` || s.GetMetadata()["from"] != "north" {
		t.Errorf("the session is %v", s)
	}
	if got := h.State.Messages(t, "default", "good")[0]; got.GetParts()[0].GetText().GetText() != "my card is ****" || got.GetId() == "" {
		t.Errorf("the message is %v", got)
	}
}

// A user stays the owner of what it creates, whatever a hook writes.
func TestAHookCannotGiveTheSessionOfAUserToAnother(t *testing.T) {
	t.Parallel()
	file, keys := actKeys(t)
	h := openHooked(t, gateway.Peers{BeforeEntry: func(_ context.Context, e *gateway.Entry) error {
		e.Run.UserID = "leo"
		return nil
	}}, actConfig(file))
	wantFault(t, h.request(t, http.MethodPost, "/start", `{"sessionId":"s","message":"hi"}`, "Authorization", keys["mia"]), 403, "OWNER_REFUSED")
	if h.State.Has("default", "s") {
		t.Error("a session was created")
	}
}

func TestAHookChangesAnswersAndStops(t *testing.T) {
	t.Parallel()
	h := openHooked(t, gateway.Peers{BeforeEntry: func(_ context.Context, e *gateway.Entry) error {
		for i := range e.Answers {
			e.Answers[i].Result = json.RawMessage(`"checked"`)
		}
		if e.Stop != nil {
			e.Stop.Abort, e.Stop.Reason = true, "by rule"
		}
		return nil
	}}, nil)
	h.suspend(t, "s", &statev1.Call{ToolCallId: "c1", ToolName: "add", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL, Input: `{}`})
	reply := h.request(t, http.MethodPost, "/submit-tool-result", `{"sessionId":"s","toolCallId":"c1","result":1}`)
	if reply.StatusCode != http.StatusOK {
		t.Fatalf("got %d %s", reply.StatusCode, text(t, reply))
	}
	if got := h.answered(t, "s").GetResult(); got != `"checked"` {
		t.Errorf("the result is %s, want that of the hook", got)
	}
	h.request(t, http.MethodPost, "/start", `{"sessionId":"t","message":"hi"}`)
	h.AwaitRun(t, "default", "t", nil)
	h.request(t, http.MethodPost, "/interrupt", `{"sessionId":"t"}`)
	if stops := h.State.Stops(); len(stops) != 1 || stops[0].GetKind() != statev1.StopKind_STOP_KIND_ABORT || stops[0].GetReason() != "by rule" {
		t.Errorf("the stops are %v", stops)
	}
}

// A repetition within one request is not asked about again. A repetition by the client is another request.
func TestAHookIsAskedOncePerRequest(t *testing.T) {
	t.Parallel()
	var hook hookLog
	var told atomic.Int32
	h := openHooked(t, gateway.Peers{
		BeforeEntry: func(_ context.Context, e *gateway.Entry) error { hook.add(e); return nil },
		AfterEntry: func(_ context.Context, e gateway.Entered) {
			told.Add(1)
			if e.RunID == "" || e.Created == e.Repeated {
				t.Errorf("told of %+v", e)
			}
		},
	}, nil)
	h.State.FailNext(2)
	for n := 1; n <= 2; n++ {
		reply := h.request(t, http.MethodPost, "/start", `{"sessionId":"s","message":"hi","requestKey":"k"}`)
		if got := len(hook.of("s")); reply.StatusCode != http.StatusOK || got != n || int(told.Load()) != n {
			t.Errorf("request %d: got %d, the hook was asked %d times and told %d times", n, reply.StatusCode, got, told.Load())
		}
	}
}

func TestAHookAfterAnEntryChangesNothing(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(context.Context, gateway.Entered){
		"a panic": func(context.Context, gateway.Entered) { panic("oh") },
		"a hang":  func(ctx context.Context, _ gateway.Entered) { <-ctx.Done() },
	} {
		h := openHooked(t, gateway.Peers{AfterEntry: hook}, func(c *gateway.Config) { c.HookTimeout = 50 * time.Millisecond })
		if reply := h.request(t, http.MethodPost, "/start", `{"sessionId":"s","message":"hi"}`); reply.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d %s", name, reply.StatusCode, text(t, reply))
		}
	}
}
