package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// reasoningItem is a reasoning item as the API sends it.
const reasoningItem = `{"id":"rs_1","type":"reasoning","encrypted_content":"gAAA","summary":[{"type":"summary_text","text":"I need both."}],"new":[1,{"x":null}]}`

func TestTheResponseRequestHoldsTheWholeConversation(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/responses/replies", modeltest.Text, modeltest.Encoding{})
	modeltest.Collect(t, connect(t, server, openai.Config{API: openai.APIResponses}).Generate(t.Context(), modeltest.Conversation(json.RawMessage(reasoningItem))))
	sent := server.Requests()
	if len(sent) != 1 {
		t.Fatalf("got %d requests, want 1", len(sent))
	}
	if got, want := sent[0].Method+" "+sent[0].Path, "POST /v1/responses"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !contains(string(sent[0].Body), reasoningItem) {
		t.Errorf("the reasoning item was changed:\n%s", sent[0].Body)
	}
	modeltest.CompareGolden(t, "testdata/responses/request.json", sent[0].Body)
}

// inputItems returns the items of the request sent for a conversation.
func inputItems(t *testing.T, messages ...agent.Message) string {
	t.Helper()
	return requestMembers(t, openai.APIResponses, model.Request{Model: "m", Messages: messages})["input"]
}

// sentBrokenCall is brokenCall as an item.
const sentBrokenCall = `{"arguments":"{\"invalid_arguments\":\"{\\\"a\"}","call_id":"c","name":"f","type":"function_call"}`

var brokenCall = agent.ToolCall{ID: "c", Name: "f", Arguments: json.RawMessage(`"{\"a"`)}

func reasoning(data string) agent.Part {
	return agent.Reasoning{Text: "hm", ProviderData: json.RawMessage(data)}
}

// translatedItems are messages and their items.
var translatedItems = map[string]struct {
	message agent.Message
	want    string
}{
	"reasoning precedes its text or call": {
		message(agent.RoleAssistant, reasoning(reasoningItem), agent.Text{Text: "a"}, reasoning(reasoningItem), brokenCall),
		`[` + reasoningItem + `,{"content":"a","role":"assistant"},` + reasoningItem + `,` + sentBrokenCall + `]`,
	},
	"trailing reasoning": {message(agent.RoleAssistant, brokenCall, reasoning(reasoningItem)), `[` + sentBrokenCall + `]`},
	"unencrypted reasoning": {
		message(agent.RoleAssistant, reasoning(`{"type":"reasoning","id":"rs_1","summary":[]}`), brokenCall), `[` + sentBrokenCall + `]`,
	},
	"another provider's reasoning": {
		message(agent.RoleAssistant, reasoning(`{"type":"thinking","signature":"s"}`), reasoning(`["x"]`), reasoning(``), brokenCall), `[` + sentBrokenCall + `]`,
	},
	"a system message in the middle": {message(agent.RoleSystem, agent.Text{Text: "s"}), `[{"content":"s","role":"system"}]`},
	"a failed result": {
		message(agent.RoleTool, agent.ToolResult{CallID: "c", Error: "no"}),
		`[{"output":"{\"error\":\"no\"}","call_id":"c","type":"function_call_output"}]`,
	},
	"an image URL": {
		message(agent.RoleUser, agent.File{MediaType: "image/png", URL: "https://example.com/a.png"}),
		`[{"content":[{"detail":"auto","image_url":"https://example.com/a.png","type":"input_image"}],"role":"user"}]`,
	},
	"a file URL": {
		message(agent.RoleUser, agent.File{MediaType: "application/pdf", URL: "https://example.com/a.pdf"}),
		`[{"content":[{"file_url":"https://example.com/a.pdf","type":"input_file"}],"role":"user"}]`,
	},
	"an embedded file": {
		message(agent.RoleUser, agent.File{MediaType: "application/pdf", URL: "data:application/pdf;base64,JVBERg=="}),
		`[{"content":[{"file_data":"data:application/pdf;base64,JVBERg==","filename":"file","type":"input_file"}],"role":"user"}]`,
	},
	"a text": {
		message(agent.RoleUser, agent.File{MediaType: "text/csv", URL: "data:text/csv;base64,YSxi", Filename: "a.csv"}),
		`[{"content":[{"text":"a.csv:\n\na,b","type":"input_text"}],"role":"user"}]`,
	},
}

func TestMessagesBecomeItems(t *testing.T) {
	t.Parallel()
	for name, test := range translatedItems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := inputItems(t, test.message); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// event is one event of a response; fields follow its type.
func event(name, fields string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + `",` + fields + "}\n\n"
}

func responseEnd(status, more string) string {
	return event("response."+status, `"response":{"status":"`+status+`"`+more+`}`)
}

// itemDone ends an item with its whole content.
func itemDone(index int, item string) string {
	return event("response.output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, index, item))
}

// collectResponse returns the reply that the model reads from an event stream.
func collectResponse(t *testing.T, body string, end modeltest.Scenario) modeltest.Reply {
	t.Helper()
	server := modeltest.ServeStream(t, []byte(body), end, modeltest.Encoding{})
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	return modeltest.Collect(t, connect(t, server, openai.Config{API: openai.APIResponses}).Generate(ctx, modeltest.NewRequest("m")))
}

var (
	textItem  = event("response.output_text.delta", `"output_index":0,"delta":"a"`)
	callStart = event("response.output_item.added", `"output_index":0,"item":{"type":"function_call","call_id":"c","name":"f"}`)
)

// parsedResponses are event streams and their replies.
var parsedResponses = map[string]struct {
	stream string
	want   string // text | reasoning | calls | finish
}{
	"an unstreamed message": {itemDone(0, `{"type":"message","content":[{"type":"output_text","text":"a"}]}`) + responseEnd("completed", ""), "a||[]|stop"},
	"an unstreamed refusal": {itemDone(0, `{"type":"message","content":[{"type":"refusal","refusal":"no"}]}`) + responseEnd("completed", ""), "no||[]|content-filter"},
	"a refusal":             {event("response.refusal.delta", `"output_index":0,"delta":"no"`) + responseEnd("completed", ""), "no||[]|content-filter"},
	"an unstreamed call":    {itemDone(0, `{"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":1}"}`) + responseEnd("completed", ""), `||[c f {"x":1}]|tool-calls`},
	"a call cut by the limit": {
		callStart + event("response.function_call_arguments.delta", `"output_index":0,"delta":"{\"x"`) + responseEnd("incomplete", `,"incomplete_details":{"reason":"max_output_tokens"}`),
		`||[c f "{\"x"]|length`,
	},
	"a summary in paragraphs": {
		event("response.reasoning_summary_text.delta", `"output_index":0,"summary_index":0,"delta":"a"`) +
			event("response.reasoning_summary_text.delta", `"output_index":0,"summary_index":1,"delta":"b"`) +
			itemDone(0, reasoningItem) + textItem + responseEnd("completed", ""),
		"a|a\n\nb " + reasoningItem + "|[]|stop",
	},
	"unstreamed reasoning":      {itemDone(0, reasoningItem) + textItem + responseEnd("completed", ""), "a|I need both. " + reasoningItem + "|[]|stop"},
	"hidden reasoning":          {itemDone(0, `{"type":"reasoning","encrypted_content":"g","summary":[]}`) + textItem + responseEnd("completed", ""), `a| {"type":"reasoning","encrypted_content":"g","summary":[]}|[]|stop`},
	"empty reasoning":           {itemDone(0, `{"type":"reasoning","summary":[]}`) + textItem + responseEnd("completed", ""), "a||[]|stop"},
	"reasoning as a text":       {event("response.reasoning_text.delta", `"output_index":0,"content_index":0,"delta":"hm"`) + itemDone(0, `{"type":"reasoning","summary":[]}`) + textItem + responseEnd("completed", ""), "a|hm |[]|stop"},
	"reasoning without its end": {event("response.reasoning_text.delta", `"output_index":1,"content_index":0,"delta":"hm"`) + textItem + responseEnd("completed", ""), "a|hm |[]|stop"},
	"provider tools": {
		event("response.output_item.added", `"output_index":0,"item":{"type":"web_search_call","id":"ws"}`) + event("response.web_search_call.completed", `"output_index":0`) +
			itemDone(0, `{"type":"web_search_call","id":"ws"}`) + event("response.output_text.delta", `"output_index":1,"delta":"a"`) + responseEnd("completed", ""),
		"a||[]|stop",
	},
	"an unknown event":        {event("response.something.new", `"x":1`) + textItem + responseEnd("completed", ""), "a||[]|stop"},
	"an end without a status": {textItem + event("response.completed", `"response":{}`), "a||[]|stop"},
	"an end with null fields": {textItem + responseEnd("completed", `,"usage":null,"incomplete_details":null`), "a||[]|stop"},
}

// storedItem matches the provider data of a reasoning item.
var storedItem = regexp.MustCompile(`^\{"responses":\{"host":"127[.0-9:]+","model":"m"\},"item":(.*)\}$`)

func TestResponsesAreParsed(t *testing.T) {
	t.Parallel()
	for name, test := range parsedResponses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The reply must end at its last event: this server never closes the stream.
			h := collectResponse(t, test.stream, modeltest.Slow)
			var reasoning []string
			for i, text := range h.Reasoning {
				reasoning = append(reasoning, text+" "+storedItem.ReplaceAllString(string(h.ProviderData[i]), "$1"))
			}
			got := fmt.Sprintf("%s|%s|%s|%s", h.Text, strings.Join(reasoning, ";"), formatCalls(h), h.Finish)
			if h.Err != nil || got != test.want {
				t.Errorf("got  %s, %v\nwant %s", got, h.Err, test.want)
			}
		})
	}
}

func TestBrokenResponsesAreClassified(t *testing.T) {
	t.Parallel()
	prefix := event("response.output_text.delta", `"output_index":0,"delta":"a"`)
	failed := func(e string) string { return prefix + responseEnd("failed", `,"error":`+e) }
	for name, test := range map[string]struct {
		stream    string
		code      string
		retryable bool
	}{
		"a rate limit":               {failed(`{"code":"rate_limit_exceeded","message":"slow"}`), model.CodeRateLimited, true},
		"an internal error":          {failed(`{"code":"server_error","message":"no"}`), model.CodeUnavailable, true},
		"an invalid prompt":          {failed(`{"code":"invalid_prompt","message":"no"}`), model.CodeInvalidRequest, false},
		"a failure without an error": {failed(`null`), model.CodeUnavailable, true},
		"an error event":             {prefix + event("error", `"code":"context_length_exceeded","message":"long","param":"input"`), model.CodeInvalidRequest, false},
		"an error within an event":   {prefix + event("error", `"error":{"type":"invalid_request_error","code":"x","message":"no"}`), model.CodeInvalidRequest, false},
		"arguments without a call":   {event("response.function_call_arguments.delta", `"output_index":3,"delta":"{}"`), model.CodeInvalidResponse, true},
		"a call without a name":      {event("response.output_item.added", `"output_index":0,"item":{"type":"function_call","call_id":"c"}`), model.CodeInvalidResponse, true},
		"an event that is not JSON":  {prefix + "event: x\ndata: {\"type\n\n", model.CodeInvalidResponse, true},
		"[DONE] and no end":          {prefix + "data: [DONE]\n\n", model.CodeUnavailable, true},
		"an unfinished message":      {prefix, model.CodeUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, collectResponse(t, test.stream, modeltest.Ended).Err, test.code, test.retryable)
		})
	}
}

func TestOpenItemsAreLimited(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	for n := range 300 {
		fmt.Fprintf(&body, "%s", event("response.output_item.added", fmt.Sprintf(`"output_index":%d,"item":{"type":"message"}`, n)))
	}
	expect(t, collectResponse(t, body.String(), modeltest.Ended).Err, model.CodeInvalidResponse, true)
}

func TestResponsesTimeOutWhenIdle(t *testing.T) {
	t.Parallel()
	modeltest.RunIdleTimeout(t, func(t *testing.T, client *http.Client, idle time.Duration) model.Model {
		m, err := openai.New(openai.Config{API: openai.APIResponses, IdleTimeout: idle}, client)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}, event("response.output_text.delta", `"output_index":0,"delta":"a"`))
}

func TestCallsWithoutIDsAndIndexesAreDistinguished(t *testing.T) {
	t.Parallel()
	h := collectChat(t, stream(
		deltaChoice(`"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]`),
		deltaChoice(`"tool_calls":[{"index":0,"function":{"name":"g","arguments":"{\"x\""}}]`),
		deltaChoice(`"tool_calls":[{"index":0,"function":{"name":"g","arguments":":1}"}}]`),
		deltaChoice(`"tool_calls":[{"index":0,"function":{"name":"g","arguments":""}}]`),
		finishChoice("tool_calls")), modeltest.Ended)
	if want := []string{"call_1_0 f {}", `call_1_1 g {"x":1}`}; !reflect.DeepEqual(formatCalls(h), want) || h.Err != nil {
		t.Errorf("got %q, %v, want %q", formatCalls(h), h.Err, want)
	}
}
