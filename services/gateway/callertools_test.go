package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// permitting is an agent that takes tools and instructions of callers, and has a tool of its own.
func permitting() *statev1.Agent {
	return &statev1.Agent{AgentType: "demo", Rules: &statev1.AgentRules{
		CallerInstructions: true,
		CallerTools:        &statev1.CallerTools{Allow: []string{"page_*", "own"}, Max: 4, Taken: []string{"own"}},
	}}
}

const (
	pageTool     = `{"name":"page_open","description":"Opens a page.","inputSchema":{"type":"object","properties":{"url":{"type":"string"}}}}`
	pageInput    = `"tools":[` + pageTool + `],"instructions":"Speak French."`
	plainMessage = `"messages":[{"id":"u1","role":"user","parts":[{"type":"text","text":"hi"}]}]`
)

// verifyBrought checks what the first message of a session has brought.
func (h *fixture) verifyBrought(t *testing.T, session, instructions string) {
	t.Helper()
	got := h.State.Messages(t, "default", session)[0].GetCaller()
	want := &eventv1.CallerInput{Instructions: instructions, Tools: []*eventv1.CallerTool{{
		Name: "page_open", Description: "Opens a page.", InputSchema: `{"type":"object","properties":{"url":{"type":"string"}}}`,
	}}}
	if !proto.Equal(got, want) {
		t.Errorf("%s: the message has brought %s, want %s", session, protojson.Format(got), protojson.Format(want))
	}
}

func TestToolsOfACallerAreAcceptedOnEveryWay(t *testing.T) {
	t.Parallel()
	h := open(t, nil, permitting())
	start := h.request(t, http.MethodPost, "/start", `{"sessionId":"start","message":"hi",`+pageInput+`}`)
	if start.StatusCode != http.StatusOK {
		t.Fatalf("/start: %d %s", start.StatusCode, text(t, start))
	}
	h.verifyBrought(t, "start", "Speak French.")

	h.chat(t, `{"id":"chat",`+plainMessage+`,`+pageInput+`}`)
	h.verifyBrought(t, "chat", "Speak French.")

	socket := h.talk(t)
	socket.say(`{"type":"send","requestId":"r1","id":"socket",` + plainMessage + `,"body":{` + pageInput + `}}`)
	h.AwaitRun(t, "default", "socket", nil)
	h.verifyBrought(t, "socket", "Speak French.")

	page, _ := h.agentClient(t, "demo/room")
	body := `{` + plainMessage + `,"clientTools":[{"name":"page_open","description":"Opens a page.",` +
		`"parameters":{"type":"object","properties":{"url":{"type":"string"}}}},{"name":"own"}]}`
	page.say(toJSON(map[string]any{"id": "r1", "init": map[string]any{"method": "POST", "body": body}, "type": "cf_agent_use_chat_request"}))
	h.AwaitRun(t, "default", "demo:room", nil)
	h.verifyBrought(t, "demo:room", "")
}

func TestToolsWithoutPermissionAreRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, body := range []string{`"tools":[` + pageTool + `]`, `"instructions":"Speak French."`} {
		wantFault(t, h.request(t, http.MethodPost, "/start", `{"sessionId":"s","message":"hi",`+body+`}`), 403, "CALLER_TOOLS_REFUSED")
		wantFault(t, h.request(t, http.MethodPost, "/chat", `{"id":"s",`+plainMessage+`,`+body+`}`), 403, "CALLER_TOOLS_REFUSED")
	}
	refused := h.request(t, http.MethodPost, "/start", `{"message":"hi",`+pageInput+`}`)
	if got := text(t, refused); !strings.Contains(got, "callerInstructions: true") {
		t.Errorf("got %s, want what to set", got)
	}
	if got := h.State.Sessions(t, "default"); len(got) > 0 {
		t.Errorf("the sessions %q were created", got)
	}
	// Bodies of other forms belong to the app, as before.
	h.chat(t, `{"id":"app",`+plainMessage+`,"tools":{"open":{"parameters":{}}},"instructions":{"a":1}}`)
	if got := h.State.Messages(t, "default", "app")[0].GetCaller(); got != nil {
		t.Errorf("the message has brought %v", got)
	}
}

func TestToolsBelongToTheMessageThatHasBroughtThem(t *testing.T) {
	t.Parallel()
	h := open(t, nil, permitting())
	c := &uiClient{}
	stream := h.chat(t, `{"id":"s",`+plainMessage+`,`+pageInput+`}`)
	first := h.AwaitRun(t, "default", "s", nil)
	first.Show(1, Started(), StepStarted(), ClientCall("c1", `{"url":"/"}`), StepCommitted(), Suspended())
	first.Suspend([]*statev1.Call{{
		ToolCallId: "c1", SessionId: "s", RunId: first.GetRunId(), Step: 1, ToolName: "page_open", Input: `{"url":"/"}`,
		Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL,
	}}, AssistantMessage(1, "", "c1"))
	c.apply(t, stream.rest())
	// useChat sends its body with every request: a continuation has the tools of its turn, whatever it brings.
	body := strings.Replace(c.output("c1", map[string]any{"ok": true}).post("s"), `{`, `{"tools":[{"name":"other"}],"instructions":"No.",`, 1)
	answered := h.chat(t, body)
	second := h.AwaitRun(t, "default", "s", first)
	second.Show(2, StepStarted(), Text("Done."), StepCommitted(), Completed())
	second.Complete(AssistantMessage(2, "Done."))
	answered.rest()
	h.verifyBrought(t, "s", "Speak French.")
	h.chat(t, strings.ReplaceAll(`{"id":"s",`+plainMessage+`}`, `u1`, `u2`))
	messages := h.State.Messages(t, "default", "s")
	if got := messages[len(messages)-1]; got.GetId() != "u2" || got.GetCaller() != nil {
		t.Errorf("the next message is %v, want u2 without tools", got)
	}
}

func TestOnlyOperatorsSeeWhatAMessageHasBrought(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"operator": "scopes: [operate]", "user": "scopes: [chat, read]"})
	h.State.Announce(t, permitting())
	body := `{"sessionId":"s","message":"hi","agentType":"demo",` + pageInput + `}`
	start := h.request(t, http.MethodPost, "/start", body, "Authorization", keys["user"])
	if start.StatusCode != http.StatusOK {
		t.Fatalf("a user brings tools: %d %s", start.StatusCode, text(t, start))
	}
	for name, want := range map[string]bool{"operator": true, "user": false} {
		listed := h.request(t, http.MethodPost, "/holdfast.agent.v1.AgentService/ListMessages", `{"sessionId":"s"}`,
			"Authorization", keys[name], "Content-Type", "application/json")
		if got := text(t, listed); strings.Contains(got, "Speak French.") != want || !strings.Contains(got, "hi") {
			t.Errorf("%s: got %s, want the instructions: %v", name, got, want)
		}
	}
}
