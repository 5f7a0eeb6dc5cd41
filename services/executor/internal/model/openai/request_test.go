package openai_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

// Schemas: the first is accepted by constrained decoding, the others are not.
const (
	closed   = `{"type":"object","properties":{"not":{"enum":[{"not":1}]},"list":{"type":"array","items":{"type":"object","properties":{},"additionalProperties":false}}},"required":["not","list"],"additionalProperties":false}`
	open     = `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`
	optional = `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`
	bound    = `{"type":"object","properties":{"a":{"type":"string","maxLength":2}},"required":["a"],"additionalProperties":false}`
	within   = `{"type":"object","properties":{"a":{"anyOf":[{"type":"object"},{"type":"null"}]}},"required":["a"],"additionalProperties":false}`
)

// requestMembers returns the members of the request sent for r.
func requestMembers(t *testing.T, api string, r model.Request) map[string]string {
	t.Helper()
	server := modeltest.NewServer(t, "testdata/"+api+"/replies", modeltest.Text, modeltest.Encoding{})
	if reply := modeltest.Collect(t, connect(t, server, openai.Config{API: api}).Generate(t.Context(), r)); reply.Err != nil {
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

type members map[string]string

// withTools returns a change that sets strict tools with these schemas.
func withTools(schemas ...string) func(*model.Request) {
	return func(r *model.Request) {
		r.Tools = nil
		for _, schema := range schemas {
			r.Tools = append(r.Tools, model.Tool{Name: "f", InputSchema: json.RawMessage(schema), Strict: true})
		}
	}
}

func withOutput(schema string, strict bool) func(*model.Request) {
	return func(r *model.Request) {
		r.Output = &model.Output{Name: "o", Schema: json.RawMessage(schema), Strict: strict}
	}
}

// sentOptions are changes of a request and the members that they set.
var sentOptions = map[string]struct {
	change          func(*model.Request)
	chat, responses members
}{
	"defaults": {func(*model.Request) {}, members{"tool_choice": "", "response_format": ""}, members{"tool_choice": "", "text": "", "store": "false", "include": `["reasoning.encrypted_content"]`}},
	"a call":   {func(r *model.Request) { r.Choice = model.ChoiceRequired }, members{"tool_choice": `"required"`}, members{"tool_choice": `"required"`}},
	"no call":  {func(r *model.Request) { r.Choice = model.ChoiceNone }, members{"tool_choice": `"none"`}, members{"tool_choice": `"none"`}},
	"no call without tools": {
		func(r *model.Request) { r.Choice, r.Tools = model.ChoiceNone, nil },
		members{"tool_choice": ""}, members{"tool_choice": ""},
	},
	"JSON": {
		withOutput(closed, false),
		members{"response_format": `{"json_schema":{"name":"o","schema":` + sortMembers(closed) + `},"type":"json_schema"}`},
		members{"text": `{"format":{"name":"o","schema":` + sortMembers(closed) + `,"strict":false,"type":"json_schema"}}`},
	},
	"strict JSON": {
		withOutput(closed, true),
		members{"response_format": `{"json_schema":{"name":"o","strict":true,"schema":` + sortMembers(closed) + `},"type":"json_schema"}`},
		members{"text": `{"format":{"name":"o","schema":` + sortMembers(closed) + `,"strict":true,"type":"json_schema"}}`},
	},
	"strict JSON of an open schema": {
		withOutput(open, true),
		members{"response_format": `{"json_schema":{"name":"o","schema":` + sortMembers(open) + `},"type":"json_schema"}`},
		members{"text": `{"format":{"name":"o","schema":` + sortMembers(open) + `,"strict":false,"type":"json_schema"}}`},
	},
	"strict tools": {
		withTools(closed, open, optional, bound, within),
		members{"tools": `[{"function":{"name":"f","strict":true,"parameters":` + sortMembers(closed) + `},"type":"function"},` +
			`{"function":{"name":"f","parameters":` + sortMembers(open) + `},"type":"function"},` +
			`{"function":{"name":"f","parameters":` + sortMembers(optional) + `},"type":"function"},` +
			`{"function":{"name":"f","parameters":` + sortMembers(bound) + `},"type":"function"},` +
			`{"function":{"name":"f","parameters":` + sortMembers(within) + `},"type":"function"}]`},
		members{"tools": `[{"strict":true,"parameters":` + sortMembers(closed) + `,"name":"f","type":"function"},` +
			`{"strict":false,"parameters":` + sortMembers(open) + `,"name":"f","type":"function"},` +
			`{"strict":false,"parameters":` + sortMembers(optional) + `,"name":"f","type":"function"},` +
			`{"strict":false,"parameters":` + sortMembers(bound) + `,"name":"f","type":"function"},` +
			`{"strict":false,"parameters":` + sortMembers(within) + `,"name":"f","type":"function"}]`},
	},
	"options": {
		func(r *model.Request) {
			r.MaxOutputTokens = 7
			r.Options = json.RawMessage(`{"reasoning_effort":"low","max_tokens":1,"stream":false,"stream_options":{"include_usage":false,"x":1},"store":true,"model":"other","text":{"verbosity":"low"},"max_output_tokens":1}`)
		},
		members{"reasoning_effort": `"low"`, "max_tokens": "7", "stream": "true", "stream_options": `{"include_usage":true,"x":1}`, "store": "true", "model": `"m"`},
		members{"reasoning_effort": `"low"`, "max_output_tokens": "7", "stream": "true", "store": "false", "model": `"m"`, "text": `{"verbosity":"low"}`},
	},
	"a model without reasoning": {
		func(r *model.Request) { r.Model = "gpt-4.1-mini" },
		members{}, members{"include": "", "store": "false"},
	},
}

func TestRequestOptionsAreSent(t *testing.T) {
	t.Parallel()
	for name, test := range sentOptions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := modeltest.NewRequest("m")
			test.change(&r)
			for api, want := range map[string]members{openai.APIChat: test.chat, openai.APIResponses: test.responses} {
				got := requestMembers(t, api, r)
				for member, value := range want {
					if got[member] != value {
						t.Errorf("%s: got  %s %s\nwant %s", api, member, got[member], value)
					}
				}
			}
		})
	}
}

// sortMembers returns an object with sorted members, as schemas are sent.
func sortMembers(object string) string {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		panic(err)
	}
	out, _ := json.Marshal(members)
	return string(out)
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]model.Request{
		"a required call without tools":     {Choice: model.ChoiceRequired},
		"options that are not an object":    {Options: json.RawMessage(`[]`)},
		"an output without a schema object": {Output: &model.Output{Schema: json.RawMessage(`[]`)}},
		"a schema that is not an object":    {Tools: []model.Tool{{Name: "f", InputSchema: json.RawMessage(`[]`)}}},
		"an unknown role":                   {Messages: []agent.Message{message("narrator", agent.Text{Text: "x"})}},
		"a file over plain HTTP":            {Messages: []agent.Message{message(agent.RoleUser, agent.File{MediaType: "image/png", URL: "http://example.com/a.png"})}},
		"a text that is not UTF-8":          {Messages: []agent.Message{message(agent.RoleUser, agent.File{MediaType: "text/plain", URL: "data:text/plain,%ff"})}},
		"a text in broken base64":           {Messages: []agent.Message{message(agent.RoleUser, agent.File{MediaType: "text/plain", URL: "data:text/plain;base64,A*"})}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, api := range []string{openai.APIChat, openai.APIResponses} {
				m, err := openai.New(openai.Config{API: api}, nil)
				if err != nil {
					t.Fatal(err)
				}
				reply := modeltest.Collect(t, m.Generate(t.Context(), r))
				if e, ok := errors.AsType[*model.Error](reply.Err); !ok || e.Code != model.CodeInvalidRequest || e.Retryable {
					t.Errorf("%s: got error %v, want %s", api, reply.Err, model.CodeInvalidRequest)
				}
			}
		})
	}
	if _, err := openai.New(openai.Config{API: "assistants"}, nil); err == nil {
		t.Error("an unknown API: got no error")
	}
}

func TestInvalidRequestErrorsAreClassified(t *testing.T) {
	t.Parallel()
	const hint = "The conversation exceeds the model's context"
	for message, want := range map[string]string{
		`"param":"response_format","message":"Invalid schema for response_format 'o'"`: model.CodeUnsupported,
		`"param":"tool_choice","code":"unsupported_value","message":"no"`:              model.CodeUnsupported,
		`"message":"deepseek-reasoner does not support this tool_choice"`:              model.CodeUnsupported,
		`"message":"response_format.type json_schema is unavailable: not supported"`:   model.CodeUnsupported,
		`"param":"messages","message":"Invalid value"`:                                 model.CodeInvalidRequest,
		`"message":"This endpoint's maximum context length is 9 tokens"`:               hint,
		`"message":"prompt is too long"`:                                               hint,
		`"code":"context_length_exceeded","message":"no"`:                              hint,
		`"param":null,"message":"Unknown parameter: 'x'. It is not supported."`:        model.CodeInvalidRequest,
	} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			server := modeltest.ServeResponse(t, "HTTP/1.1 400 Bad Request\n\n"+`{"error":{`+message+`}}`)
			reply := modeltest.Collect(t, connect(t, server, openai.Config{}).Generate(t.Context(), modeltest.NewRequest("m")))
			e, ok := errors.AsType[*model.Error](reply.Err)
			if !ok || e.Retryable || (e.Code != want && !(want == hint && e.Code == model.CodeInvalidRequest && contains(e.Message, hint))) {
				t.Errorf("got error %v, want %s", reply.Err, want)
			}
		})
	}
}

func TestARefusedFileIsFoundByItsPlace(t *testing.T) {
	t.Parallel()
	for _, name := range profile.Names() {
		if !profileOf(t, name).Accepts(profile.MediaImage) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connect := func(client *http.Client) (model.Model, error) {
				return openai.New(openai.Config{Profile: name}, client)
			}
			modeltest.RunRefusedFiles(t, connect,
				`"param":"messages[%d].content[%d].image_url","code":"invalid_image_url","message":"Error while downloading a file."`,
				`"param":"messages.[%d].content.[%d].image_url.url","code":"string_above_max_length","message":"String too long. Expected a string with maximum length 20971520."`,
				`"message":"[{'type': 'value_error', 'loc': ('body', 'messages', %d, 'content', %d, 'image_url'), 'msg': 'Value error'}]"`,
				`"message":"messages.%d.content.%d: the content was flagged by a content filter","code":"content_filter"`,
			)
		})
	}
	t.Run("responses", func(t *testing.T) {
		t.Parallel()
		connect := func(client *http.Client) (model.Model, error) {
			return openai.New(openai.Config{API: openai.APIResponses}, client)
		}
		modeltest.RunRefusedFiles(t, connect,
			`"param":"input[%d].content[%d].image_url","code":"invalid_value","message":"Invalid value."`,
			`"code":"invalid_base64","message":"Invalid 'input[%d].content[%d].image_url'. Expected a base64-encoded data URL."`,
		)
	})
}

func TestAChangeOfTheModelLosesWhatOnlyItsMakerReads(t *testing.T) {
	t.Parallel()
	const call = `"tool_calls":[{"index":0,"id":"c","function":{"name":"weather","arguments":"{}"}`
	for name, test := range map[string]struct {
		api, reply string
		shared     bool
	}{
		"plain reasoning":       {openai.APIChat, stream(deltaChoice(`"reasoning_content":"U0lHTg=="`), deltaChoice(call+`}]`), finishChoice("tool_calls")), true},
		"the extra of a call":   {openai.APIChat, stream(deltaChoice(call+`,"extra_content":{"google":{"thought_signature":"U0lHTg=="}}}]`), finishChoice("tool_calls")), false},
		"reasoning of a router": {openai.APIChat, stream(deltaChoice(`"reasoning_details":[{"type":"reasoning.encrypted","data":"U0lHTg=="}]`), deltaChoice(call+`}]`), finishChoice("tool_calls")), false},
		"an item of responses": {openai.APIResponses, event("response.output_item.done", `"output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"U0lHTg=="}`) +
			event("response.output_item.done", `"output_index":1,"item":{"type":"function_call","call_id":"c","name":"weather","arguments":"{}"}`) + responseEnd("completed", ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modeltest.RunModelChange(t, func(base string, client *http.Client) (model.Model, error) {
				return openai.New(openai.Config{BaseURL: base, API: test.api}, client)
			}, test.reply, "U0lHTg==", test.shared)
		})
	}
}
