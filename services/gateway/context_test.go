package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// marker is in all rows of context of the tests, and nowhere else.
const marker = "between the runtime and the model"

// rowMessage is a stored row of context.
func rowMessage(step int32, id string, source agent.ContextSource) *eventv1.Message {
	row := agent.ContextRow{Kind: agent.ContextTools, Key: marker, Text: marker, Disable: []string{"add"}}.Message(id, source)
	return &eventv1.Message{
		Id: row.ID, Role: eventv1.Role_ROLE_CONTEXT, Hidden: true, Step: step, Metadata: row.Metadata,
		Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: row.Text()}}}},
	}
}

// Every route that reads, every reading method of the Connect service and every socket is asked, for the live run and for the
// ended one.
func TestNoReaderSeesRowsOfContext(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"reader": "scopes: [chat]", "operator": "scopes: [operate]"})
	start := fmt.Sprintf(`{"sessionId":"s1","message":"hi","context":[{"kind":"notice","key":%q,"text":%q}]}`, marker, marker)
	wantFault(t, h.request(t, http.MethodPost, "/start", start, "Authorization", keys["reader"]), http.StatusForbidden, "SCOPE_MISSING")
	if r := h.request(t, http.MethodPost, "/start", start, "Authorization", keys["operator"]); r.StatusCode != http.StatusOK {
		t.Fatal(text(t, r))
	}
	run := h.AwaitRun(t, "default", "s1", nil)
	run.Show(1, Started(), StepStarted(), Text("Let me add."))
	run.Commit(AssistantMessage(1, "Let me add.", "c1"), ToolMessage(1, "c1", "2"), rowMessage(1, "row-tool", agent.ContextOfTool))
	run.Show(1, StepCommitted())
	run.Show(2, StepStarted())
	run.Commit(rowMessage(2, "row-hook", agent.ContextOfHook))
	run.Show(2, StepCommitted())
	live := h.request(t, http.MethodGet, "/sse?sessionId=s1", "", "Authorization", keys["reader"])
	chat := h.request(t, http.MethodGet, "/chat/s1/stream", "", "Authorization", keys["reader"])
	socket := h.socket(t, "/ws?sessionId=s1", "Authorization", keys["reader"])
	run.Show(3, StepStarted(), Text("It is 2."))
	run.Complete(AssistantMessage(3, "It is 2."))
	row := fmt.Sprintf(`{"rows":[{"kind":"memory","text":%q}],"requestKey":"k"}`, marker)
	path := "/sessions/s1/context"
	wantFault(t, h.request(t, http.MethodPost, path, row, "Authorization", keys["reader"]), http.StatusForbidden, "SCOPE_MISSING")
	for range 2 { // a repetition writes nothing
		if got := text(t, h.request(t, http.MethodPost, path, row, "Authorization", keys["operator"])); !strings.Contains(got, `"messageCount":8`) {
			t.Errorf("got %s, want 8 messages", got)
		}
	}

	seen := map[string]string{"the live /sse": text(t, live), "the live useChat": text(t, chat)}
	for _, body := range seen {
		if !strings.Contains(body, "It is 2.") {
			t.Errorf("got %q, want the whole answer", body)
		}
	}
	for !strings.Contains(seen["the live /ws"], "It is 2.") {
		_, frame, err := socket.Conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen["the live /ws"] += string(frame)
	}
	ended := h.socket(t, "/ws?sessionId=s1&fromSequence=0", "Authorization", keys["reader"])
	for !strings.Contains(seen["the stored /ws"], "It is 2.") {
		_, frame, err := ended.Conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen["the stored /ws"] += string(frame)
	}
	for _, route := range h.service.Routes() {
		if route.Method != http.MethodGet || len(route.About.Frames) > 0 {
			continue
		}
		path := strings.NewReplacer("{id}", "s1", "{sessionId}", "s1", "{agent}", "demo", "{name}", "s1", "{$}", "").Replace(route.Pattern)
		seen[path] = text(t, h.request(t, http.MethodGet, path+"?sessionId=s1", "", "Authorization", keys["reader"]))
	}
	read := 0
	for _, method := range readingMethods {
		r := h.request(t, http.MethodPost, "/holdfast.agent.v1.AgentService/"+method, `{"sessionId":"s1"}`,
			"Authorization", keys["reader"], "Content-Type", "application/json")
		if r.StatusCode == http.StatusOK {
			read++
		}
		seen[method] = text(t, r)
	}
	if read < 10 || len(seen) < 40 {
		t.Errorf("%d methods have answered, and %d readers: the test asks too little", read, len(seen))
	}
	for who, body := range seen {
		if strings.Contains(body, marker) {
			t.Errorf("%s shows a row of context: %s", who, body)
		}
	}

	for key, want := range map[string]int{"reader": 0, "operator": 4} {
		shown := 0
		for offset := range 8 {
			body := text(t, h.request(t, http.MethodPost, "/holdfast.agent.v1.AgentService/ListMessages",
				fmt.Sprintf(`{"sessionId":"s1","offset":%d,"limit":1}`, offset), "Authorization", keys[key], "Content-Type", "application/json"))
			if strings.Contains(body, marker) {
				shown++
			}
			if !strings.Contains(body, `"total":"8"`) {
				t.Errorf("message %d: got %s", offset, body)
			}
		}
		if shown != want {
			t.Errorf("the %s sees %d rows of context, want %d", key, shown, want)
		}
	}
}

func TestRowsOfContextAreChecked(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.begin(t, "s1", "hi", nil).Complete(AssistantMessage(1, "Yes."))
	text := func(n int) string { return strings.Repeat("x", n) }
	rows := func(n int) string { return strings.TrimSuffix(strings.Repeat(`{"kind":"notice","text":"x"},`, n), ",") }
	for _, c := range []struct {
		rows   string
		status int
		code   string
	}{
		{`{"kind":"notice","text":"` + text(agent.MaxContextRow) + `"}`, http.StatusOK, ""},
		{`{"kind":"notice","text":"` + text(agent.MaxContextRow+1) + `"}`, http.StatusRequestEntityTooLarge, "CONTEXT_TOO_LARGE"},
		{rows(agent.MaxContextRows), http.StatusOK, ""},
		{rows(agent.MaxContextRows + 1), http.StatusRequestEntityTooLarge, "CONTEXT_TOO_MANY"},
		{`{"kind":"order","text":"x"}`, http.StatusBadRequest, "CONTEXT_INVALID"},
		{`{"kind":"notice","text":" "}`, http.StatusBadRequest, "CONTEXT_INVALID"},
		{`{"kind":"notice","text":"x","disable":["add"]}`, http.StatusBadRequest, "CONTEXT_INVALID"},
		{`{"kind":"tools","disable":["no such name"]}`, http.StatusBadRequest, "CONTEXT_INVALID"},
		{`{"kind":"tools","disable":["__finish__"]}`, http.StatusBadRequest, "CONTEXT_INVALID"},
		{`{"kind":"tools"}`, http.StatusBadRequest, "CONTEXT_INVALID"},
		{`{"kind":"notice","text":"x","key":"` + text(agent.MaxContextKey+1) + `"}`, http.StatusBadRequest, "CONTEXT_INVALID"},
		{``, http.StatusBadRequest, "CONTEXT_INVALID"},
	} {
		r := h.request(t, http.MethodPost, "/sessions/s1/context", `{"rows":[`+c.rows+`]}`)
		if c.code == "" {
			if r.StatusCode != c.status {
				t.Errorf("%.80s: got %d", c.rows, r.StatusCode)
			}
			continue
		}
		wantFault(t, r, c.status, c.code)
	}
	wantFault(t, h.request(t, http.MethodPost, "/sessions/none/context", `{"rows":[`+rows(1)+`]}`), http.StatusNotFound, "SESSION_NOT_FOUND")
	wantFault(t, h.request(t, http.MethodPost, "/resume", `{"sessionId":"s1","message":"x","context":[{"kind":"x"}]}`), http.StatusBadRequest, "CONTEXT_INVALID")
}
