package gemini_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/gemini"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

func TestTheRequestHoldsTheWholeConversation(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	sequence := connect(t, server, gemini.Config{}).Generate(t.Context(),
		modeltest.Conversation(json.RawMessage(`{"signature":"c2ln","of":"thought"}`)))
	if n := len(server.Requests()); n != 0 {
		t.Fatalf("got %d requests before the iteration", n)
	}
	modeltest.Collect(t, sequence)
	sent := server.Requests()
	if len(sent) != 1 {
		t.Fatalf("got %d requests, want 1", len(sent))
	}
	if got, want := sent[0].Method+" "+sent[0].Path, "POST /v1beta/models/some-model:streamGenerateContent"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for header, want := range map[string]string{"X-Goog-Api-Key": modeltest.Key, "Content-Type": "application/json", "Authorization": ""} {
		if got := sent[0].Header.Get(header); got != want {
			t.Errorf("got %s %q, want %q", header, got, want)
		}
	}
	modeltest.CompareGolden(t, "testdata/request.json", sent[0].Body)
}

func TestTheEnvironmentChangesNothing(t *testing.T) {
	for _, name := range []string{"GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_CLOUD_PROJECT"} {
		t.Setenv(name, "http://elsewhere.invalid")
	}
	t.Setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	modeltest.Collect(t, connect(t, server, gemini.Config{}).Generate(t.Context(), modeltest.NewRequest(modeltest.Text)))
	sent := server.Requests()
	if len(sent) != 1 || sent[0].Header.Get("X-Goog-Api-Key") != modeltest.Key {
		t.Fatalf("got requests %+v, want one with the key", sent)
	}
}

func TestAnInvalidBaseURLIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"api.example.com/v1", "ftp://example.com", "http://", "::"} {
		if _, err := gemini.New(gemini.Config{BaseURL: bad}, nil); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
	if _, err := gemini.New(gemini.Config{}, nil); err != nil {
		t.Errorf("the defaults: got error %v", err)
	}
}

func TestModelNamesBecomePaths(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"gemini-x":        "/v1beta/models/gemini-x:streamGenerateContent",
		"models/gemini-x": "/v1beta/models/gemini-x:streamGenerateContent",
		"tunedModels/x":   "/v1beta/tunedModels/x:streamGenerateContent",
		"a?b#c":           "/v1beta/models/a?b#c:streamGenerateContent",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
			reply := modeltest.Collect(t, connect(t, server, gemini.Config{}).Generate(t.Context(), model.Request{Model: name}))
			if sent := server.Requests(); reply.Err != nil || len(sent) != 1 || sent[0].Path != want {
				t.Errorf("got %v and error %v, want %s", sent, reply.Err, want)
			}
		})
	}
}

// requestMembers returns the members of the request sent for r.
func requestMembers(t *testing.T, r model.Request) map[string]string {
	t.Helper()
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	if reply := modeltest.Collect(t, connect(t, server, gemini.Config{}).Generate(t.Context(), r)); reply.Err != nil {
		t.Fatalf("got error %v", reply.Err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(server.Requests()[0].Body, &members); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for key, value := range members {
		out[key] = string(value)
	}
	return out
}

func TestRequestOptionsAreSent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*model.Request)
		want   map[string]string
	}{
		"defaults":              {func(*model.Request) {}, map[string]string{"toolConfig": "", "generationConfig": ""}},
		"a call":                {func(r *model.Request) { r.Choice = model.ChoiceRequired }, map[string]string{"toolConfig": `{"functionCallingConfig":{"mode":"ANY"}}`}},
		"no call":               {func(r *model.Request) { r.Choice = model.ChoiceNone }, map[string]string{"toolConfig": `{"functionCallingConfig":{"mode":"NONE"}}`}},
		"no call without tools": {func(r *model.Request) { r.Choice, r.Tools = model.ChoiceNone, nil }, map[string]string{"toolConfig": "", "tools": ""}},
		"JSON": {
			func(r *model.Request) {
				r.Output = &model.Output{Name: "o", Schema: json.RawMessage(`{"type":"object","maxProperties":9007199254740993}`)}
			},
			map[string]string{"generationConfig": `{"responseJsonSchema":{"properties":{},"type":"object"},"responseMimeType":"application/json"}`},
		},
		"options": {
			func(r *model.Request) {
				r.MaxOutputTokens = 7
				r.Options = json.RawMessage(`{"generationConfig":{"maxOutputTokens":1,"thinkingConfig":{"includeThoughts":true}},"cachedContent":"c","contents":[]}`)
			},
			map[string]string{"generationConfig": `{"maxOutputTokens":7,"thinkingConfig":{"includeThoughts":true}}`, "cachedContent": `"c"`, "contents": `[{"role":"user","parts":[{"text":"How is the sea?"}]}]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := modeltest.NewRequest("m")
			test.change(&r)
			got := requestMembers(t, r)
			for member, want := range test.want {
				if got[member] != want {
					t.Errorf("got  %s %s\nwant %s", member, got[member], want)
				}
			}
		})
	}
}

func message(role agent.Role, parts ...agent.Part) agent.Message {
	return agent.Message{ID: "m", Role: role, Parts: parts}
}

func functionCall(arguments string) agent.ToolCall {
	return agent.ToolCall{ID: "c", Name: "f", Arguments: json.RawMessage(arguments)}
}

func resultMessage(r agent.ToolResult) agent.Message {
	r.CallID, r.Name = "c", "f"
	return message(agent.RoleTool, r)
}

// resultTurn returns the turn of a result.
func resultTurn(response string) string {
	return `[{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":` + response + `}}]}]`
}

func signed(data string) agent.Part {
	return agent.Reasoning{Text: "hm", ProviderData: json.RawMessage(data)}
}

// translatedTurns are messages and their turns.
var translatedTurns = map[string]struct {
	messages []agent.Message
	want     string
}{
	"turns of one role are joined": {
		[]agent.Message{message(agent.RoleUser, agent.Text{Text: "a"}), message(agent.RoleSystem, agent.Text{Text: "b"}), message(agent.RoleContext, agent.Text{Text: "c"}), message(agent.RoleUser)},
		`[{"role":"user","parts":[{"text":"a"},{"text":"b"},{"text":"c"}]}]`,
	},
	"results are a turn of their own": {
		[]agent.Message{resultMessage(agent.ToolResult{Success: true, Result: json.RawMessage(`1`)}), resultMessage(agent.ToolResult{Success: true, Result: json.RawMessage(`"fine"`)}), message(agent.RoleUser, agent.Text{Text: "and?"})},
		`[{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"output":1}}},{"functionResponse":{"id":"c","name":"f","response":{"output":"fine"}}}]},{"role":"user","parts":[{"text":"and?"}]}]`,
	},
	"an empty result":                  {[]agent.Message{resultMessage(agent.ToolResult{Success: true})}, resultTurn(`{"output":null}`)},
	"a result that is not JSON":        {[]agent.Message{resultMessage(agent.ToolResult{Success: true, Result: json.RawMessage(`{`)})}, resultTurn(`{"output":"{"}`)},
	"a failed result":                  {[]agent.Message{resultMessage(agent.ToolResult{Error: "no"})}, resultTurn(`{"error":"no"}`)},
	"a failure with a result":          {[]agent.Message{resultMessage(agent.ToolResult{Error: "no", Result: json.RawMessage(`[1]`)})}, resultTurn(`{"error":"no","output":[1]}`)},
	"arguments that are not an object": {[]agent.Message{message(agent.RoleAssistant, functionCall(`"{\"a"`))}, `[{"role":"model","parts":[{"functionCall":{"id":"c","name":"f","args":{"invalid_arguments":"{\"a"}}}]}]`},
	"arguments of any number":          {[]agent.Message{message(agent.RoleAssistant, functionCall(`{"b":9007199254740993,"a":1.0}`))}, `[{"role":"model","parts":[{"functionCall":{"id":"c","name":"f","args":{"b":9007199254740993,"a":1.0}}}]}]`},
	"another provider's reasoning":     {[]agent.Message{message(agent.RoleAssistant, signed(`{"type":"thinking","signature":"s"}`), signed(`["x"]`), signed(``), agent.Text{Text: "a"})}, `[{"role":"model","parts":[{"text":"a"}]}]`},
	"reasoning alone is no message":    {[]agent.Message{message(agent.RoleAssistant, signed(``))}, `[]`},
	"signatures are sent back on their parts": {
		[]agent.Message{message(agent.RoleAssistant,
			signed(`{"signature":"1","of":"thought"}`), agent.Text{Text: "Let me."},
			signed(`{"signature":"2","of":"text","bytes":5}`), agent.Text{Text: " look."},
			signed(`{"signature":"3","of":"call"}`), functionCall(`{}`), functionCall(`{}`),
			signed(`{"signature":"4","of":"text"}`),
		)},
		`[{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"1"},{"text":"Let me."},` +
			`{"text":" look","thoughtSignature":"2"},{"text":"."},` +
			`{"thoughtSignature":"3","functionCall":{"id":"c","name":"f","args":{}}},{"functionCall":{"id":"c","name":"f","args":{}}},` +
			`{"text":"","thoughtSignature":"4"}]}]`,
	},
	"a signature of a longer text": {
		[]agent.Message{message(agent.RoleAssistant, signed(`{"signature":"2","of":"text","bytes":5}`), agent.Text{Text: "a"}, signed(`{"signature":"3","of":"call"}`), agent.Text{Text: "b"}, functionCall(`{}`))},
		`[{"role":"model","parts":[{"text":"a"},{"text":"b"},{"functionCall":{"id":"c","name":"f","args":{}}}]}]`,
	},
	"an embedded file": {[]agent.Message{message(agent.RoleUser, agent.File{MediaType: "text/csv; charset=utf-8", URL: "data:text/csv,a%2Cb"})}, `[{"role":"user","parts":[{"inlineData":{"data":"YSxi","mimeType":"text/csv"}}]}]`},
	"a file URL":       {[]agent.Message{message(agent.RoleUser, agent.File{MediaType: "video/mp4", URL: "https://example.com/a.mp4"})}, `[{"role":"user","parts":[{"fileData":{"fileUri":"https://example.com/a.mp4","mimeType":"video/mp4"}}]}]`},
}

func TestMessagesBecomeTurns(t *testing.T) {
	t.Parallel()
	for name, test := range translatedTurns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := requestMembers(t, model.Request{Model: "gemini-2.5-flash", Messages: test.messages})["contents"]; got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestUnsignedCallsGetAPlaceholder(t *testing.T) {
	t.Parallel()
	call := agent.ToolCall{ID: "c", Name: "f", Arguments: json.RawMessage(`{}`)}
	signature := agent.Reasoning{ProviderData: json.RawMessage(`{"signature":"s","of":"call"}`)}
	r := model.Request{Messages: []agent.Message{
		message(agent.RoleAssistant, agent.Text{Text: "a"}, call, call),
		message(agent.RoleUser, agent.Text{Text: "b"}),
		message(agent.RoleAssistant, signature, call),
	}}
	for name, want := range map[string]int{"gemini-3-pro-preview": 1, "models/gemini-3.5-flash": 1, "gemini-2.5-pro": 0, "gemma-3": 0} {
		r.Model = name
		got := requestMembers(t, r)["contents"]
		if n := strings.Count(got, `{"thoughtSignature":"skip_thought_signature_validator","functionCall"`); n != want || strings.Count(got, `"thoughtSignature":"s"`) != 1 {
			t.Errorf("%s: got %d of\n%s\nwant %d", name, n, got, want)
		}
	}
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	m, err := gemini.New(gemini.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := func(media, address string) model.Request {
		return model.Request{Messages: []agent.Message{message(agent.RoleUser, agent.File{MediaType: media, URL: address})}}
	}
	for name, r := range map[string]model.Request{
		"a required call without tools":     {Choice: model.ChoiceRequired},
		"options that are not an object":    {Options: json.RawMessage(`[]`)},
		"an output without a schema object": {Output: &model.Output{Schema: json.RawMessage(`{`)}},
		"an unknown role":                   {Messages: []agent.Message{message("narrator", agent.Text{Text: "x"})}},
		"a file over plain HTTP":            file("image/png", "http://example.com/a.png"),
		"a file without a type":             file("", "https://example.com/a.png"),
		"broken base64":                     file("image/png", "data:image/png;base64,A*"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply := modeltest.Collect(t, m.Generate(t.Context(), r))
			if e, ok := errors.AsType[*model.Error](reply.Err); !ok || e.Code != model.CodeInvalidRequest || e.Retryable {
				t.Errorf("got error %v, want %s", reply.Err, model.CodeInvalidRequest)
			}
		})
	}
}

func TestARefusedFileIsFoundByItsPlace(t *testing.T) {
	t.Parallel()
	connect := func(client *http.Client) (model.Model, error) { return gemini.New(gemini.Config{}, client) }
	modeltest.RunRefusedFiles(t, connect,
		`"code":400,"status":"INVALID_ARGUMENT","message":"* GenerateContentRequest.contents[%d].parts[%d].inline_data.data: the data must not be empty"`,
		`"code":400,"status":"INVALID_ARGUMENT","message":"Invalid value at 'contents[%d].parts[%d]' (oneof), oneof field 'data' is already set."`,
	)
}

func TestNamesOfToolsBeginWithALetter(t *testing.T) {
	t.Parallel()
	const answer = `data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"_3d-render","args":{}}}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{}}` + "\n\n"
	server := modeltest.ServeStream(t, []byte(answer), modeltest.Ended, modeltest.Encoding{})
	reply := modeltest.Collect(t, connect(t, server, gemini.Config{}).Generate(t.Context(), modeltest.RequestOfTool("3d-render")))
	sent := string(server.Requests()[0].Body)
	if reply.Err != nil || len(reply.Calls) != 1 || reply.Calls[0].Name != "3d-render" || strings.Count(sent, `"_3d-render"`) != 3 || strings.Contains(sent, `"3d-render"`) {
		t.Errorf("got %+v for the request %s", reply, sent)
	}
}

func TestAChangeOfTheModelLosesWhatOnlyItsMakerReads(t *testing.T) {
	t.Parallel()
	for _, parts := range []string{
		`{"functionCall":{"name":"weather","args":{"x":1}},"thoughtSignature":"U0lHTg=="}`,
		`{"text":"hm","thought":true,"thoughtSignature":"U0lHTg=="},{"functionCall":{"name":"weather","args":{"x":1}}}`,
	} {
		modeltest.RunModelChange(t, func(base string, client *http.Client) (model.Model, error) {
			return gemini.New(gemini.Config{BaseURL: base}, client)
		}, `data: {"candidates":[{"content":{"parts":[`+parts+`],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{}}`+"\n\n", "U0lHTg==", false)
	}
}
