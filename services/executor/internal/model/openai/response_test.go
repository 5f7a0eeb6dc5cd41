package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// thought is an item of reasoning as the API gives it.
const thought = `{"id":"rs_1","type":"reasoning","encrypted_content":"gAAA","summary":[{"type":"summary_text","text":"I need both."}],"new":[1,{"x":null}]}`

func TestTheResponseRequestHoldsTheWholeConversation(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/responses/replies", modeltest.Text, modeltest.Wire{})
	modeltest.Listen(t, connect(t, server, openai.Config{API: openai.APIResponses}).Generate(t.Context(), modeltest.Conversation(json.RawMessage(thought))))
	sent := server.Requests()
	if len(sent) != 1 {
		t.Fatalf("got %d requests, want 1", len(sent))
	}
	if got, want := sent[0].Method+" "+sent[0].Path, "POST /v1/responses"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !contains(string(sent[0].Body), thought) {
		t.Errorf("the item of reasoning did not go back as it came:\n%s", sent[0].Body)
	}
	modeltest.Golden(t, "testdata/responses/request.json", sent[0].Body)
}

// input gives the items of the request for a conversation.
func input(t *testing.T, messages ...agent.Message) string {
	t.Helper()
	return asked(t, openai.APIResponses, model.Request{Model: "m", Messages: messages})["input"]
}

func TestMessagesBecomeItems(t *testing.T) {
	t.Parallel()
	call := agent.ToolCall{ID: "c", Name: "f", Arguments: json.RawMessage(`"{\"a"`)}
	const called = `{"arguments":"{\"invalid_arguments\":\"{\\\"a\"}","call_id":"c","name":"f","type":"function_call"}`
	reasoning := func(data string) agent.Part { return agent.Reasoning{Text: "hm", ProviderData: json.RawMessage(data)} }
	for name, test := range map[string]struct {
		message agent.Message
		want    string
	}{
		"reasoning goes before what it led to": {
			message(agent.RoleAssistant, reasoning(thought), agent.Text{Text: "a"}, reasoning(thought), call),
			`[` + thought + `,{"content":"a","role":"assistant"},` + thought + `,` + called + `]`,
		},
		"reasoning that nothing follows": {message(agent.RoleAssistant, call, reasoning(thought)), `[` + called + `]`},
		"reasoning that was not encrypted": {
			message(agent.RoleAssistant, reasoning(`{"type":"reasoning","id":"rs_1","summary":[]}`), call), `[` + called + `]`,
		},
		"another provider's reasoning": {
			message(agent.RoleAssistant, reasoning(`{"type":"thinking","signature":"s"}`), reasoning(`["x"]`), reasoning(``), call), `[` + called + `]`,
		},
		"a system message in the middle": {message(agent.RoleSystem, agent.Text{Text: "s"}), `[{"content":"s","role":"system"}]`},
		"a failed result": {
			message(agent.RoleTool, agent.ToolResult{CallID: "c", Error: "no"}),
			`[{"output":"{\"error\":\"no\"}","call_id":"c","type":"function_call_output"}]`,
		},
		"an image by its address": {
			message(agent.RoleUser, agent.File{MediaType: "image/png", URL: "https://example.com/a.png"}),
			`[{"content":[{"detail":"auto","image_url":"https://example.com/a.png","type":"input_image"}],"role":"user"}]`,
		},
		"a file by its address": {
			message(agent.RoleUser, agent.File{MediaType: "application/pdf", URL: "https://example.com/a.pdf"}),
			`[{"content":[{"file_url":"https://example.com/a.pdf","type":"input_file"}],"role":"user"}]`,
		},
		"a file that is embedded": {
			message(agent.RoleUser, agent.File{MediaType: "application/pdf", URL: "data:application/pdf;base64,JVBERg=="}),
			`[{"content":[{"file_data":"data:application/pdf;base64,JVBERg==","filename":"file","type":"input_file"}],"role":"user"}]`,
		},
		"a text": {
			message(agent.RoleUser, agent.File{MediaType: "text/csv", URL: "data:text/csv;base64,YSxi", Filename: "a.csv"}),
			`[{"content":[{"text":"a.csv:\n\na,b","type":"input_text"}],"role":"user"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := input(t, test.message); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// event is one event of a response; fields come after its type.
func event(name, fields string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + `",` + fields + "}\n\n"
}

func ended(status, more string) string {
	return event("response."+status, `"response":{"status":"`+status+`"`+more+`}`)
}

// done ends an item that is given whole.
func done(index int, item string) string {
	return event("response.output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, index, item))
}

// hearResponse is what comes out of an event stream.
func hearResponse(t *testing.T, body string, end modeltest.Reply) modeltest.Heard {
	t.Helper()
	server := modeltest.ServeStream(t, []byte(body), end, modeltest.Wire{})
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	return modeltest.Listen(t, connect(t, server, openai.Config{API: openai.APIResponses}).Generate(ctx, modeltest.Ask("m")))
}

func TestResponsesAreUnderstood(t *testing.T) {
	t.Parallel()
	said := event("response.output_text.delta", `"output_index":0,"delta":"a"`)
	began := event("response.output_item.added", `"output_index":0,"item":{"type":"function_call","call_id":"c","name":"f"}`)
	for name, test := range map[string]struct {
		stream string
		want   string // text | reasoning | calls | finish
	}{
		"a message in one piece": {done(0, `{"type":"message","content":[{"type":"output_text","text":"a"}]}`) + ended("completed", ""), "a||[]|stop"},
		"a refusal in one piece": {done(0, `{"type":"message","content":[{"type":"refusal","refusal":"no"}]}`) + ended("completed", ""), "no||[]|content-filter"},
		"a refusal":              {event("response.refusal.delta", `"output_index":0,"delta":"no"`) + ended("completed", ""), "no||[]|content-filter"},
		"a call in one piece":    {done(0, `{"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}`) + ended("completed", ""), `||[c f {"x":1}]|tool-calls`},
		"a call that the limit cut": {
			began + event("response.function_call_arguments.delta", `"output_index":0,"delta":"{\"x"`) + ended("incomplete", `,"incomplete_details":{"reason":"max_output_tokens"}`),
			`||[c f "{\"x"]|length`,
		},
		"a summary in paragraphs": {
			event("response.reasoning_summary_text.delta", `"output_index":0,"summary_index":0,"delta":"a"`) +
				event("response.reasoning_summary_text.delta", `"output_index":0,"summary_index":1,"delta":"b"`) +
				done(0, thought) + said + ended("completed", ""),
			"a|a\n\nb " + thought + "|[]|stop",
		},
		"reasoning in one piece":    {done(0, thought) + said + ended("completed", ""), "a|I need both. " + thought + "|[]|stop"},
		"reasoning that is hidden":  {done(0, `{"type":"reasoning","encrypted_content":"g","summary":[]}`) + said + ended("completed", ""), `a| {"type":"reasoning","encrypted_content":"g","summary":[]}|[]|stop`},
		"reasoning of nothing":      {done(0, `{"type":"reasoning","summary":[]}`) + said + ended("completed", ""), "a||[]|stop"},
		"reasoning as a text":       {event("response.reasoning_text.delta", `"output_index":0,"content_index":0,"delta":"hm"`) + done(0, `{"type":"reasoning","summary":[]}`) + said + ended("completed", ""), "a|hm |[]|stop"},
		"reasoning without its end": {event("response.reasoning_text.delta", `"output_index":1,"content_index":0,"delta":"hm"`) + said + ended("completed", ""), "a|hm |[]|stop"},
		"tools of the provider": {
			event("response.output_item.added", `"output_index":0,"item":{"type":"web_search_call","id":"ws"}`) + event("response.web_search_call.completed", `"output_index":0`) +
				done(0, `{"type":"web_search_call","id":"ws"}`) + event("response.output_text.delta", `"output_index":1,"delta":"a"`) + ended("completed", ""),
			"a||[]|stop",
		},
		"an unknown event":         {event("response.something.new", `"x":1`) + said + ended("completed", ""), "a||[]|stop"},
		"an end without a status":  {said + event("response.completed", `"response":{}`), "a||[]|stop"},
		"an end with a blank part": {said + ended("completed", `,"usage":null,"incomplete_details":null`), "a||[]|stop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The server waits for ever: nothing is to be waited for behind the end.
			h := hearResponse(t, test.stream, modeltest.Slow)
			var reasoning []string
			for i, text := range h.Reasoning {
				reasoning = append(reasoning, text+" "+string(h.ProviderData[i]))
			}
			got := fmt.Sprintf("%s|%s|%s|%s", h.Text, strings.Join(reasoning, ";"), calls(h), h.Finish)
			if h.Err != nil || got != test.want {
				t.Errorf("got  %s, %v\nwant %s", got, h.Err, test.want)
			}
		})
	}
}

func TestBrokenResponsesAreClassified(t *testing.T) {
	t.Parallel()
	said := event("response.output_text.delta", `"output_index":0,"delta":"a"`)
	failed := func(e string) string { return said + ended("failed", `,"error":`+e) }
	for name, test := range map[string]struct {
		stream    string
		code      string
		retryable bool
	}{
		"a rate limit":                {failed(`{"code":"rate_limit_exceeded","message":"slow"}`), model.CodeRateLimited, true},
		"an inner error":              {failed(`{"code":"server_error","message":"no"}`), model.CodeUnavailable, true},
		"a bad prompt":                {failed(`{"code":"invalid_prompt","message":"no"}`), model.CodeInvalidRequest, false},
		"a failure without an error":  {failed(`null`), model.CodeUnavailable, true},
		"an error event":              {said + event("error", `"code":"context_length_exceeded","message":"long","param":"input"`), model.CodeInvalidRequest, false},
		"an error within an event":    {said + event("error", `"error":{"type":"invalid_request_error","code":"x","message":"no"}`), model.CodeInvalidRequest, false},
		"arguments of no call":        {event("response.function_call_arguments.delta", `"output_index":3,"delta":"{}"`), model.CodeInvalidResponse, true},
		"a call without a name":       {event("response.output_item.added", `"output_index":0,"item":{"type":"function_call","call_id":"c"}`), model.CodeInvalidResponse, true},
		"an event that is not JSON":   {said + "event: x\ndata: {\"type\n\n", model.CodeInvalidResponse, true},
		"[DONE] and no end":           {said + "data: [DONE]\n\n", model.CodeUnavailable, true},
		"a message that is not ended": {said, model.CodeUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, hearResponse(t, test.stream, modeltest.Ended).Err, test.code, test.retryable)
		})
	}
}

func TestResponsesOfManyItemsAreBounded(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	for n := range 300 {
		fmt.Fprintf(&body, "%s", event("response.output_item.added", fmt.Sprintf(`"output_index":%d,"item":{"type":"message"}`, n)))
	}
	expect(t, hearResponse(t, body.String(), modeltest.Ended).Err, model.CodeInvalidResponse, true)
}

func TestSilenceOfResponses(t *testing.T) {
	t.Parallel()
	modeltest.RunSilence(t, func(t *testing.T, client *http.Client, idle time.Duration) model.Model {
		m, err := openai.New(openai.Config{API: openai.APIResponses, IdleTimeout: idle}, client)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}, event("response.output_text.delta", `"output_index":0,"delta":"a"`))
}

func TestCallsWithoutIDsAndIndexesAreToldApart(t *testing.T) {
	t.Parallel()
	h := hear(t, stream(
		delta(`"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]`),
		delta(`"tool_calls":[{"index":0,"function":{"name":"g","arguments":"{\"x\""}}]`),
		delta(`"tool_calls":[{"index":0,"function":{"name":"g","arguments":":1}"}}]`),
		delta(`"tool_calls":[{"index":0,"function":{"name":"g","arguments":""}}]`),
		finish("tool_calls")), modeltest.Ended)
	if want := []string{"call_1_0 f {}", `call_1_1 g {"x":1}`}; !reflect.DeepEqual(calls(h), want) || h.Err != nil {
		t.Errorf("got %q, %v, want %q", calls(h), h.Err, want)
	}
}
