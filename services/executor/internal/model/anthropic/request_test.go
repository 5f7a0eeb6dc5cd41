package anthropic_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/anthropic"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

func TestTheRequestHoldsTheWholeConversation(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	sequence := connect(t, server, anthropic.Config{}).Generate(t.Context(),
		modeltest.Conversation(json.RawMessage(`{"type":"thinking","signature":"EqQBCgIYAhIM"}`)))
	if n := len(server.Requests()); n != 0 {
		t.Fatalf("got %d requests before the iteration", n)
	}
	modeltest.Collect(t, sequence)
	sent := server.Requests()
	if len(sent) != 1 {
		t.Fatalf("got %d requests, want 1", len(sent))
	}
	if got, want := sent[0].Method+" "+sent[0].Path, "POST /v1/messages"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for header, want := range map[string]string{"X-Api-Key": modeltest.Key, "Anthropic-Version": "2023-06-01", "Authorization": ""} {
		if got := sent[0].Header.Get(header); got != want {
			t.Errorf("got %s %q, want %q", header, got, want)
		}
	}
	modeltest.CompareGolden(t, "testdata/request.json", sent[0].Body)
}

func TestTheEnvironmentChangesNothing(t *testing.T) {
	for _, name := range []string{"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"} {
		t.Setenv(name, "http://elsewhere.invalid")
	}
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Custom: elsewhere")
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	modeltest.Collect(t, connect(t, server, anthropic.Config{}).Generate(t.Context(), modeltest.NewRequest(modeltest.Text)))
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
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Overloaded, modeltest.Encoding{})
	modeltest.Collect(t, connect(t, server, anthropic.Config{}).Generate(t.Context(), modeltest.NewRequest(modeltest.Text)))
	if n := len(server.Requests()); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
}

func TestAnInvalidBaseURLIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"api.example.com", "ftp://example.com", "http://", "::"} {
		if _, err := anthropic.New(anthropic.Config{BaseURL: bad}, nil); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
	if _, err := anthropic.New(anthropic.Config{}, nil); err != nil {
		t.Errorf("the defaults: got error %v", err)
	}
}

// sentBody returns the body of the request sent for r.
func sentBody(t *testing.T, r model.Request) (body struct {
	MaxTokens int             `json:"max_tokens"`
	Messages  json.RawMessage `json:"messages"`
}) {
	t.Helper()
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	reply := modeltest.Collect(t, connect(t, server, anthropic.Config{}).Generate(t.Context(), r))
	if reply.Err != nil {
		t.Fatalf("got error %v", reply.Err)
	}
	if err := json.Unmarshal(server.Requests()[0].Body, &body); err != nil {
		t.Fatal(err)
	}
	return body
}

func TestMaxTokensHasADefault(t *testing.T) {
	t.Parallel()
	if got := sentBody(t, modeltest.NewRequest("m")).MaxTokens; got != 4096 {
		t.Errorf("got max_tokens %d, want 4096", got)
	}
}

func message(role agent.Role, parts ...agent.Part) agent.Message {
	return agent.Message{ID: "m", Role: role, Parts: parts}
}

const (
	sentCall   = `{"id":"c","input":{},"name":"f","type":"tool_use"}`
	sentResult = `{"tool_use_id":"c","content":[{"text":"ok","type":"text"}],"type":"tool_result"}`
)

var (
	toolCall   = agent.ToolCall{ID: "c", Name: "f", Arguments: json.RawMessage(`{}`)}
	toolResult = agent.ToolResult{CallID: "c", Success: true, Result: json.RawMessage(`"ok"`)}
)

// translatedTurns are messages and their turns.
var translatedTurns = map[string]struct {
	messages []agent.Message
	want     string
}{
	"neighbours are merged": {
		[]agent.Message{message(agent.RoleUser, agent.Text{Text: "a"}), message(agent.RoleSystem, agent.Text{Text: "b"}), message(agent.RoleUser, agent.Text{Text: "c"})},
		`[{"content":[{"text":"a","type":"text"},{"text":"b","type":"text"},{"text":"c","type":"text"}],"role":"user"}]`,
	},
	"results come before the user's text": {
		[]agent.Message{message(agent.RoleAssistant, toolCall), message(agent.RoleTool, toolResult), message(agent.RoleUser, agent.Text{Text: "and?"})},
		`[{"content":[` + sentCall + `],"role":"assistant"},{"content":[` + sentResult + `,{"text":"and?","type":"text"}],"role":"user"}]`,
	},
	"empty messages are omitted": {
		[]agent.Message{
			message(agent.RoleUser, agent.Text{Text: "a"}), message(agent.RoleAssistant, agent.Text{Text: " \n"}, agent.Reasoning{Text: "unsigned"}),
			message(agent.RoleAssistant), message(agent.RoleUser, agent.Text{Text: "b"}),
		},
		`[{"content":[{"text":"a","type":"text"},{"text":"b","type":"text"}],"role":"user"}]`,
	},
	"thinking is sent back unchanged": {
		[]agent.Message{message(agent.RoleAssistant,
			agent.Reasoning{Text: "hm", ProviderData: json.RawMessage(`{"type":"thinking","signature":"s"}`)},
			agent.Reasoning{ProviderData: json.RawMessage(`{"type":"thinking","signature":"t"}`)},
			agent.Reasoning{ProviderData: json.RawMessage(`{"type":"redacted_thinking","data":"d"}`)},
			agent.Reasoning{Text: "another provider's", ProviderData: json.RawMessage(`["x"]`)},
			toolCall)},
		`[{"content":[{"signature":"s","thinking":"hm","type":"thinking"},{"signature":"t","thinking":"","type":"thinking"},{"data":"d","type":"redacted_thinking"},` + sentCall + `],"role":"assistant"}]`,
	},
	"a failed result": {
		[]agent.Message{message(agent.RoleTool, agent.ToolResult{CallID: "c", Error: "no", Result: json.RawMessage(`{"code":7}`)})},
		`[{"content":[{"tool_use_id":"c","is_error":true,"content":[{"text":"no","type":"text"},{"text":"{\"code\":7}","type":"text"}],"type":"tool_result"}],"role":"user"}]`,
	},
	"an empty result": {
		[]agent.Message{message(agent.RoleTool, agent.ToolResult{CallID: "c", Success: true, Result: json.RawMessage(`""`)})},
		`[{"content":[{"tool_use_id":"c","type":"tool_result"}],"role":"user"}]`,
	},
	"arguments that are not an object": {
		[]agent.Message{message(agent.RoleAssistant, agent.ToolCall{ID: "c", Name: "f", Arguments: json.RawMessage(`"{\"a"`)})},
		`[{"content":[{"id":"c","input":{"invalid_arguments":"{\"a"},"name":"f","type":"tool_use"}],"role":"assistant"}]`,
	},
	"invalid call ids": {
		[]agent.Message{
			message(agent.RoleAssistant, agent.ToolCall{ID: "run.1/2", Name: "f", Arguments: json.RawMessage(`{}`)}),
			message(agent.RoleTool, agent.ToolResult{CallID: "run.1/2", Success: true, Result: json.RawMessage(`"ok"`)}),
		},
		strings.ReplaceAll(`[{"content":[`+sentCall+`],"role":"assistant"},{"content":[`+sentResult+`],"role":"user"}]`, `"c"`, `"call_ID"`),
	},
}

func TestMessagesBecomeTurns(t *testing.T) {
	t.Parallel()
	for name, test := range translatedTurns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := strings.ReplaceAll(test.want, "call_ID", "call_8cfaaf9d3955ca0eb20136f7ea07b567")
			if got := string(sentBody(t, model.Request{Model: "m", Messages: test.messages}).Messages); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestFilesAreTranslated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file agent.File
		want string
	}{
		"an image": {
			agent.File{MediaType: "image/png", URL: "data:image/png;base64,AQID"},
			`{"source":{"data":"AQID","media_type":"image/png","type":"base64"},"type":"image"}`,
		},
		"an image in base64url without padding": {
			agent.File{MediaType: "image/png", URL: "data:image/png;base64,_-8"},
			`{"source":{"data":"/+8=","media_type":"image/png","type":"base64"},"type":"image"}`,
		},
		"an image that is not in base64": {
			agent.File{MediaType: "image/gif; x=y", URL: "data:image/gif,%01%02%03"},
			`{"source":{"data":"AQID","media_type":"image/gif","type":"base64"},"type":"image"}`,
		},
		"an image URL": {
			agent.File{MediaType: "image/png", URL: "https://example.com/a.png"},
			`{"source":{"url":"https://example.com/a.png","type":"url"},"type":"image"}`,
		},
		"a PDF": {
			agent.File{MediaType: "application/pdf", URL: "data:application/pdf;base64,JVBERg==", Filename: "a.pdf"},
			`{"source":{"data":"JVBERg==","media_type":"application/pdf","type":"base64"},"title":"a.pdf","type":"document"}`,
		},
		"a PDF URL": {
			agent.File{MediaType: "application/pdf", URL: "https://example.com/a.pdf"},
			`{"source":{"url":"https://example.com/a.pdf","type":"url"},"type":"document"}`,
		},
		"a text": {
			agent.File{MediaType: "text/csv; charset=utf-8", URL: "data:text/csv;base64,YSxi"},
			`{"source":{"data":"a,b","media_type":"text/plain","type":"text"},"type":"document"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := string(sentBody(t, model.Request{Model: "m", Messages: []agent.Message{message(agent.RoleUser, test.file)}}).Messages)
			if want := `[{"content":[` + test.want + `],"role":"user"}]`; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestUnsupportedContentIsRefused(t *testing.T) {
	t.Parallel()
	m, err := anthropic.New(anthropic.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, refused := range map[string]agent.Message{
		"an audio file":               message(agent.RoleUser, agent.File{MediaType: "audio/wav", URL: "data:audio/wav;base64,AQID"}),
		"a text that is not embedded": message(agent.RoleUser, agent.File{MediaType: "text/plain", URL: "https://example.com/a.txt"}),
		"a text that is not UTF-8":    message(agent.RoleUser, agent.File{MediaType: "text/plain", URL: "data:text/plain,%ff"}),
		"a file over plain HTTP":      message(agent.RoleUser, agent.File{MediaType: "image/png", URL: "http://example.com/a.png"}),
		"broken base64":               message(agent.RoleUser, agent.File{MediaType: "image/png", URL: "data:image/png;base64,A*"}),
		"a data: URL without data":    message(agent.RoleUser, agent.File{MediaType: "image/png", URL: "data:image/png;base64"}),
		"an unknown role":             message("narrator", agent.Text{Text: "x"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply := modeltest.Collect(t, m.Generate(t.Context(), model.Request{Messages: []agent.Message{refused}}))
			if e, ok := errors.AsType[*model.Error](reply.Err); !ok || e.Code != model.CodeInvalidRequest || e.Retryable {
				t.Errorf("got error %v, want %s", reply.Err, model.CodeInvalidRequest)
			}
		})
	}
}

// requestMembers returns the members of the request sent for r.
func requestMembers(t *testing.T, r model.Request) map[string]string {
	t.Helper()
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	if reply := modeltest.Collect(t, connect(t, server, anthropic.Config{}).Generate(t.Context(), r)); reply.Err != nil {
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

const (
	openSchema   = `{"type":"object","properties":{"maximum":{"type":"object","properties":{"n":{"const":9007199254740993,"maximum":2}}},"list":{"type":"array","maxItems":3}}}`
	boundSchema  = `{"type":"object","properties":{"a":{"type":"string","maxLength":2}},"additionalProperties":false}`
	closedSchema = `{"type":"object","properties":{"additional":{"type":"string"}},"additionalProperties":false}`
)

var (
	thinkingOptions = json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":10000},"metadata":{"user_id":"u"}}`)
	plainTurn       = []agent.Message{
		message(agent.RoleUser, agent.Text{Text: "a"}),
		message(agent.RoleAssistant, toolCall),
		message(agent.RoleTool, toolResult),
	}
	thinkingTurn = []agent.Message{
		plainTurn[0],
		message(agent.RoleAssistant, agent.Reasoning{Text: "hm", ProviderData: json.RawMessage(`{"type":"thinking","signature":"s"}`)}, toolCall),
		plainTurn[2],
	}
)

// sentOptions are changes of a request and the members that they set.
var sentOptions = map[string]struct {
	change func(*model.Request)
	want   map[string]string
}{
	"defaults":              {func(*model.Request) {}, map[string]string{"tool_choice": "", "output_config": "", "thinking": ""}},
	"a call":                {func(r *model.Request) { r.Choice = model.ChoiceRequired }, map[string]string{"tool_choice": `{"type":"any"}`}},
	"no call":               {func(r *model.Request) { r.Choice = model.ChoiceNone }, map[string]string{"tool_choice": `{"type":"none"}`}},
	"no call without tools": {func(r *model.Request) { r.Choice, r.Tools = model.ChoiceNone, nil }, map[string]string{"tool_choice": ""}},
	"JSON of an open schema": {
		func(r *model.Request) { r.Output = &model.Output{Name: "o", Schema: json.RawMessage(openSchema)} },
		map[string]string{"output_config": `{"format":{"type":"json_schema","schema":{"additionalProperties":false,"properties":{"list":{"type":"array"},"maximum":{"additionalProperties":false,"properties":{"n":{"const":9007199254740993}},"type":"object"}},"type":"object"}}}`},
	},
	"JSON of a closed schema": {
		func(r *model.Request) {
			r.Output = &model.Output{Name: "o", Schema: json.RawMessage(closedSchema), Strict: true}
		},
		map[string]string{"output_config": `{"format":{"type":"json_schema","schema":` + closedSchema + `}}`},
	},
	"JSON and an effort": {
		func(r *model.Request) {
			r.Output = &model.Output{Name: "o", Schema: json.RawMessage(closedSchema)}
			r.Options = json.RawMessage(`{"output_config":{"effort":"low","format":1}}`)
		},
		map[string]string{"output_config": `{"effort":"low","format":{"type":"json_schema","schema":` + closedSchema + `}}`},
	},
	"strict tools": {
		func(r *model.Request) {
			r.Tools = []model.Tool{{Name: "f", InputSchema: json.RawMessage(closedSchema), Strict: true}, {Name: "g", InputSchema: json.RawMessage(openSchema), Strict: true}, {Name: "h", InputSchema: json.RawMessage(boundSchema), Strict: true}}
		},
		map[string]string{"tools": `[{"input_schema":` + closedSchema + `,"name":"f","strict":true},{"input_schema":` + openSchema + `,"name":"g"},{"input_schema":` + boundSchema + `,"name":"h"}]`},
	},
	"thinking": {
		func(r *model.Request) { r.Options = thinkingOptions },
		map[string]string{"thinking": `{"type":"enabled","budget_tokens":10000}`, "max_tokens": "14096", "metadata": `{"user_id":"u"}`},
	},
	"thinking with a required call": {
		func(r *model.Request) { r.Options, r.Choice = thinkingOptions, model.ChoiceRequired },
		map[string]string{"thinking": `{"type":"disabled"}`, "metadata": `{"user_id":"u"}`},
	},
	"thinking in a turn begun without it": {
		func(r *model.Request) { r.Options, r.Messages = thinkingOptions, plainTurn },
		map[string]string{"thinking": `{"type":"disabled"}`},
	},
	"thinking in a turn begun with it": {
		func(r *model.Request) { r.Options, r.Messages = thinkingOptions, thinkingTurn },
		map[string]string{"thinking": `{"type":"enabled","budget_tokens":10000}`},
	},
	"max_tokens in the options": {
		func(r *model.Request) { r.Options = json.RawMessage(`{"max_tokens":64000,"stream":false}`) },
		map[string]string{"max_tokens": "64000", "stream": "true"},
	},
	"max_tokens in both": {
		func(r *model.Request) { r.Options, r.MaxOutputTokens = json.RawMessage(`{"max_tokens":64000}`), 7 },
		map[string]string{"max_tokens": "7"},
	},
}

func TestRequestOptionsAreSent(t *testing.T) {
	t.Parallel()
	for name, test := range sentOptions {
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

func TestCacheBreakpointsAreSet(t *testing.T) {
	t.Parallel()
	r := modeltest.Conversation(nil)
	r.Cache = agent.CacheAuto
	r.Messages = r.Messages[:2]
	r.Messages[1].Parts = append(r.Messages[1].Parts, agent.Reasoning{ProviderData: json.RawMessage(`{"type":"redacted_thinking","data":"d"}`)})
	got := requestMembers(t, r)
	const breakpoint = `"cache_control":{"type":"ephemeral"}`
	for member, want := range map[string]string{
		"system":   `.",` + breakpoint + `,"type":"text"}]`,
		"tools":    `"name":"clock",` + breakpoint + `}]`,
		"messages": `"name":"weather",` + breakpoint + `,"type":"tool_use"},{"data":"d","type":"redacted_thinking"}],"role":"assistant"}]`,
	} {
		if !strings.HasSuffix(got[member], want) || strings.Count(got[member], breakpoint) != 1 {
			t.Errorf("got %s %s\nwant …%s", member, got[member], want)
		}
	}
	r.Cache = agent.CacheNone
	for member, value := range requestMembers(t, r) {
		if strings.Contains(value, "cache_control") {
			t.Errorf("without a cache: got %s %s", member, value)
		}
	}
	r = modeltest.NewRequest("m")
	r.Cache, r.Messages, r.Tools = agent.CacheAuto, nil, nil
	requestMembers(t, r) // nothing to mark is no error
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	m, err := anthropic.New(anthropic.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]model.Request{
		"a required call without tools":     {Choice: model.ChoiceRequired},
		"options that are not an object":    {Options: json.RawMessage(`[]`)},
		"options that are null":             {Options: json.RawMessage(`null`)},
		"max_tokens that is not a number":   {Options: json.RawMessage(`{"max_tokens":"x"}`)},
		"an output without a schema object": {Output: &model.Output{Schema: json.RawMessage(`{`)}, Options: json.RawMessage(`{}`)},
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
	connect := func(client *http.Client) (model.Model, error) { return anthropic.New(anthropic.Config{}, client) }
	modeltest.RunRefusedFiles(t, connect,
		`"type":"invalid_request_error","message":"messages.%d.content.%d.image.source.base64: image exceeds 5 MB maximum: 9000000 bytes > 5242880 bytes"`,
		`"type":"invalid_request_error","message":"messages.%d.content.%d.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels"`,
		`"type":"invalid_request_error","message":"messages.%d.content.%d: Input should be a valid dictionary"`,
		`"type":"request_too_large","message":"messages.%d.content.%d: Request exceeds the maximum size"`,
	)
}

func TestAChangeOfTheModelLosesWhatOnlyItsMakerReads(t *testing.T) {
	t.Parallel()
	for block, secret := range map[string]string{
		contentBlock(0, `{"type":"thinking","thinking":"hm"}`, `{"type":"signature_delta","signature":"U0lHTg=="}`): "U0lHTg==",
		contentBlock(0, `{"type":"redacted_thinking","data":"UkVEQUNU"}`):                                           "UkVEQUNU",
	} {
		modeltest.RunModelChange(t, func(base string, client *http.Client) (model.Model, error) {
			return anthropic.New(anthropic.Config{BaseURL: base}, client)
		}, messageStart()+block+contentBlock(1, `{"type":"tool_use","id":"t","name":"weather","input":{"x":1}}`)+stop("tool_use"), secret, false)
	}
}
