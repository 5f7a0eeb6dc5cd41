package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

func TestTheRequestHoldsTheWholeConversation(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/chat/replies", modeltest.Text, modeltest.Encoding{})
	sequence := connect(t, server, openai.Config{}).Generate(t.Context(), modeltest.Conversation(json.RawMessage(`{"type":"thinking"}`)))
	if n := len(server.Requests()); n != 0 {
		t.Fatalf("got %d requests before the iteration", n)
	}
	modeltest.Collect(t, sequence)
	sent := server.Requests()
	if len(sent) != 1 {
		t.Fatalf("got %d requests, want 1", len(sent))
	}
	if got, want := sent[0].Method+" "+sent[0].Path, "POST /v1/chat/completions"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := sent[0].Header.Get("Authorization"), "Bearer "+modeltest.Key; got != want {
		t.Errorf("got authorization %q, want %q", got, want)
	}
	modeltest.CompareGolden(t, "testdata/chat/request.json", sent[0].Body)
}

func TestTheEnvironmentChangesNothing(t *testing.T) {
	for _, name := range []string{"OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"} {
		t.Setenv(name, "http://elsewhere.invalid")
	}
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: elsewhere")
	server := modeltest.NewServer(t, "testdata/chat/replies", modeltest.Text, modeltest.Encoding{})
	modeltest.Collect(t, connect(t, server, openai.Config{}).Generate(t.Context(), modeltest.NewRequest(modeltest.Text)))
	sent := server.Requests()
	if len(sent) != 1 {
		t.Fatalf("got %d requests, want 1", len(sent))
	}
	for name, values := range sent[0].Header {
		if strings.Contains(strings.Join(values, " "), "elsewhere") {
			t.Errorf("the header %s comes from the environment: %q", name, values)
		}
	}
}

func TestErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/chat/replies", modeltest.ServerError, modeltest.Encoding{})
	modeltest.Collect(t, connect(t, server, openai.Config{}).Generate(t.Context(), modeltest.NewRequest(modeltest.Text)))
	if n := len(server.Requests()); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
}

func TestAnInvalidBaseURLIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"api.example.com/v1", "ftp://example.com", "http://", "::"} {
		if _, err := openai.New(openai.Config{BaseURL: bad}, nil); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
	if _, err := openai.New(openai.Config{}, nil); err != nil {
		t.Errorf("the defaults: got error %v", err)
	}
}

// sentMessages returns the messages of the request sent for a conversation.
func sentMessages(t *testing.T, messages ...agent.Message) string {
	t.Helper()
	server := modeltest.NewServer(t, "testdata/chat/replies", modeltest.Text, modeltest.Encoding{})
	reply := modeltest.Collect(t, connect(t, server, openai.Config{}).Generate(t.Context(), model.Request{Model: "m", Messages: messages}))
	if reply.Err != nil {
		t.Fatalf("got error %v", reply.Err)
	}
	var body struct {
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(server.Requests()[0].Body, &body); err != nil {
		t.Fatal(err)
	}
	return string(body.Messages)
}

func message(role agent.Role, parts ...agent.Part) agent.Message {
	return agent.Message{ID: "m", Role: role, Parts: parts}
}

func callMessage(arguments string) agent.Message {
	return message(agent.RoleAssistant, agent.ToolCall{ID: "c", Name: "f", Arguments: json.RawMessage(arguments)})
}

// sentCall returns callMessage as it is sent.
func sentCall(arguments string) string {
	text, _ := json.Marshal(arguments)
	return `[{"content":"Continue.","role":"user"},{"content":"","role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":` + string(text) + `}}]}]`
}

func resultMessage(r agent.ToolResult) agent.Message {
	r.CallID = "c"
	return message(agent.RoleTool, r)
}

// translatedMessages are messages and their form in chat completions.
var translatedMessages = map[string]struct {
	message agent.Message
	want    string
}{
	"texts of a message are joined": {
		message(agent.RoleUser, agent.Text{Text: "a"}, agent.Text{Text: "b"}),
		`[{"content":"ab","role":"user"}]`,
	},
	"an image URL": {
		message(agent.RoleUser, agent.File{MediaType: "image/png", URL: "https://example.com/a.png"}),
		`[{"content":[{"image_url":{"url":"https://example.com/a.png"},"type":"image_url"}],"role":"user"}]`,
	},
	"a text file": {
		message(agent.RoleUser, agent.File{MediaType: "text/csv; charset=utf-8", URL: "data:text/csv;base64,YSxi", Filename: "a.csv"}, agent.Text{Text: "Sum?"}),
		`[{"content":"a.csv:\n\na,b\n\nSum?","role":"user"}]`,
	},
	"reasoning alone is no message": {
		message(agent.RoleAssistant, agent.Reasoning{Text: "hm"}), ``,
	},
	"arguments that are an object":     {callMessage(`{"a": 1.0}`), sentCall(`{"a": 1.0}`)},
	"arguments that are not JSON":      {callMessage(`"{\"a"`), sentCall(`{"invalid_arguments":"{\"a"}`)},
	"arguments that are not an object": {callMessage(`[1]`), sentCall(`{"invalid_arguments":[1]}`)},
	"arguments that are null":          {callMessage(`null`), sentCall(`{"invalid_arguments":null}`)},
	"arguments that are missing":       {callMessage(``), sentCall(`{}`)},
	"a string result":                  {resultMessage(agent.ToolResult{Success: true, Result: json.RawMessage(`"fine"`)}), `[{"content":"fine","role":"tool","tool_call_id":"c"}]`},
	"a number result":                  {resultMessage(agent.ToolResult{Success: true, Result: json.RawMessage(`3`)}), `[{"content":"3","role":"tool","tool_call_id":"c"}]`},
	"an empty result":                  {resultMessage(agent.ToolResult{Success: true}), `[{"content":"(no output)","role":"tool","tool_call_id":"c"}]`},
	"a failure with a result":          {resultMessage(agent.ToolResult{Error: "no", Result: json.RawMessage(`[1]`)}), `[{"content":"{\"error\":\"no\",\"result\":[1]}","role":"tool","tool_call_id":"c"}]`},
	"a system message in the middle":   {message(agent.RoleSystem, agent.Text{Text: "s"}), `[{"content":"s","role":"system"}]`},
	"a call id that is too long": {
		message(agent.RoleTool, agent.ToolResult{CallID: strings.Repeat("x", 41), Success: true, Result: json.RawMessage(`1`)}),
		`[{"content":"1","role":"tool","tool_call_id":"0fMJfBX2fZiI4Li31LrR7zrc5Izgcl2W"}]`,
	},
}

func TestMessagesAreTranslated(t *testing.T) {
	t.Parallel()
	for name, test := range translatedMessages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sentMessages(t, test.message); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestChatRefusesFileURLs(t *testing.T) {
	t.Parallel()
	m, err := openai.New(openai.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := model.Request{Messages: []agent.Message{message(agent.RoleUser, agent.File{MediaType: "application/pdf", URL: "https://example.com/a.pdf"})}}
	expect(t, modeltest.Collect(t, m.Generate(t.Context(), r)).Err, model.CodeInvalidRequest, false)
}
