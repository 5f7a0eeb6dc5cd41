package openai_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

// stream returns an event stream of chunks with these first choices.
func stream(choices ...string) string {
	var out strings.Builder
	for _, c := range choices {
		out.WriteString(`data: {"choices":[` + c + "]}\n\n")
	}
	return out.String()
}

// deltaChoice is the first choice of a chunk.
func deltaChoice(fields string) string { return `{"index":0,"delta":{` + fields + `}}` }

func finishChoice(reason string) string {
	return `{"index":0,"delta":{},"finish_reason":"` + reason + `"}`
}

// collectChat returns the reply that the model reads from an event stream.
func collectChat(t *testing.T, body string, end modeltest.Scenario) modeltest.Reply {
	t.Helper()
	server := modeltest.ServeStream(t, []byte(body), end, modeltest.Encoding{})
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	return modeltest.Collect(t, connect(t, server, openai.Config{}).Generate(ctx, modeltest.NewRequest("m")))
}

// formatCalls returns the calls as ID NAME ARGUMENTS.
func formatCalls(h modeltest.Reply) []string {
	var out []string
	for _, c := range h.Calls {
		out = append(out, c.ID+" "+c.Name+" "+c.Arguments)
	}
	return out
}

// compatibleCalls are streams of calls as various servers send them.
var compatibleCalls = map[string]struct {
	stream string
	want   []string
}{
	"ids are missing": {
		stream(deltaChoice(`"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":1,"function":{"name":"g","arguments":"{}"}}]`), finishChoice("tool_calls")),
		[]string{"call_1_0 f {}", "call_1_1 g {}"},
	},
	"every call has the index 0": {
		stream(deltaChoice(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`), deltaChoice(`"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]`), finishChoice("tool_calls")),
		[]string{"a f {}", "b g {}"},
	},
	"no call has an index": {
		stream(deltaChoice(`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]`), finishChoice("tool_calls")),
		[]string{"a f {}", "b g {}"},
	},
	"id and name in every fragment": {
		stream(deltaChoice(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]`), deltaChoice(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":":1}"}}]`), finishChoice("tool_calls")),
		[]string{`a f {"x":1}`},
	},
	"the name comes after the arguments began": {
		stream(deltaChoice(`"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{\"x\""}}]`), deltaChoice(`"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]`), deltaChoice(`"tool_calls":[{"index":0,"function":{"name":"f","arguments":":1}"}}]`), finishChoice("tool_calls")),
		[]string{`a f {"x":1}`, "b g {}"},
	},
	"stop with calls": {
		stream(deltaChoice(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`), finishChoice("stop")),
		[]string{"a f {}"},
	},
	"blank arguments": {
		stream(deltaChoice(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":" "}}]`), finishChoice("stop")),
		[]string{"a f {}"},
	},
	"the finish reason with the last fragment": {
		stream(`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}`),
		[]string{"a f {}"},
	},
}

func TestCallsOfCompatibleServersAreParsed(t *testing.T) {
	t.Parallel()
	for name, test := range compatibleCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply := collectChat(t, test.stream, modeltest.Ended)
			if got := formatCalls(reply); !reflect.DeepEqual(got, test.want) || reply.Finish != model.FinishToolCalls || reply.Err != nil {
				t.Errorf("got  %q, finish %q, error %v\nwant %q, finish %q", got, reply.Finish, reply.Err, test.want, model.FinishToolCalls)
			}
		})
	}
}

func TestTextsOfCompatibleServersAreParsed(t *testing.T) {
	t.Parallel()
	usage := `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}` + "\n\n"
	for name, test := range map[string]struct {
		stream    string
		reasoning []string
		text      string
		finish    model.FinishReason
		total     int64
	}{
		"reasoning in the other field":       {stream(deltaChoice(`"reasoning":"hm"`), deltaChoice(`"content":"a"`), finishChoice("stop")), []string{"hm"}, "a", "stop", 0},
		"reasoning in both fields":           {stream(deltaChoice(`"reasoning":"hm","reasoning_content":"hm"`), deltaChoice(`"content":"a"`), finishChoice("stop")), []string{"hm"}, "a", "stop", 0},
		"null reasoning":                     {stream(deltaChoice(`"reasoning_content":null,"content":"a"`), finishChoice("stop")), nil, "a", "stop", 0},
		"reasoning only":                     {stream(deltaChoice(`"reasoning_content":"hm"`), finishChoice("length")), []string{"hm"}, "", "length", 0},
		"reasoning twice":                    {stream(deltaChoice(`"reasoning":"a"`), deltaChoice(`"content":"b"`), deltaChoice(`"reasoning":"c"`), finishChoice("stop")), []string{"a", "c"}, "b", "stop", 0},
		"a refusal":                          {stream(deltaChoice(`"refusal":"I will"`), deltaChoice(`"refusal":" not"`), finishChoice("stop")), nil, "I will not", "content-filter", 0},
		"an unknown finish reason":           {stream(deltaChoice(`"content":"a"`), finishChoice("abort")), nil, "a", "other", 0},
		"tool_calls without any":             {stream(deltaChoice(`"content":"a"`), finishChoice("tool_calls")), nil, "a", "other", 0},
		"error as a finish reason":           {stream(deltaChoice(`"content":"a"`), finishChoice("error")), nil, "a", "error", 0},
		"a second choice":                    {stream(deltaChoice(`"content":"a"`), `{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}`, finishChoice("stop")), nil, "a", "stop", 0},
		"text after the finish reason":       {stream(deltaChoice(`"content":"a"`), finishChoice("stop"), deltaChoice(`"content":""`), finishChoice("length")), nil, "a", "stop", 0},
		"usage before the finish reason":     {usage + stream(deltaChoice(`"content":"a"`), finishChoice("stop")), nil, "a", "stop", 3},
		"usage and no [DONE]":                {stream(deltaChoice(`"content":"a"`), finishChoice("stop")) + usage, nil, "a", "stop", 3},
		"[DONE] and no finish reason":        {stream(deltaChoice(`"content":"a"`)) + "data: [DONE]\n\n", nil, "a", "stop", 0},
		"chunks of thinking and text":        {stream(deltaChoice(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]`), deltaChoice(`"content":[{"type":"thinking","thinking":"m"},{"type":"text","text":"a"}]`), finishChoice("stop")), []string{"hm"}, "a", "stop", 0},
		"[DONE] and no usage":                {stream(deltaChoice(`"content":"a"`), finishChoice("stop")) + "data: [DONE]\n\n", nil, "a", "stop", 0},
		"names of events and unknown fields": {"event: message\nid: 1\nretry: 5\n" + stream(deltaChoice(`"content":"a"`), finishChoice("stop")), nil, "a", "stop", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := collectChat(t, test.stream, modeltest.Ended)
			if h.Err != nil || h.Text != test.text || !reflect.DeepEqual(h.Reasoning, test.reasoning) || h.Finish != test.finish || h.Usage.TotalTokens != test.total {
				t.Errorf("got %+v", h)
			}
		})
	}
}

func TestAReplyIsCompleteAfterItsFinishReason(t *testing.T) {
	t.Parallel()
	for _, end := range []modeltest.Scenario{modeltest.Cut, modeltest.Ended} {
		h := collectChat(t, stream(deltaChoice(`"content":"a"`), finishChoice("stop")), end)
		if h.Err != nil || h.Finish != model.FinishStop {
			t.Errorf("%s: got %+v", end, h)
		}
	}
	// The reply must end at its usage without [DONE]: this server never closes the stream.
	h := collectChat(t, stream(deltaChoice(`"content":"a"`), finishChoice("stop"))+`data: {"choices":[],"usage":{"total_tokens":3}}`+"\n\n", modeltest.Slow)
	if h.Err != nil || h.Finish != model.FinishStop || h.Usage.TotalTokens != 3 {
		t.Errorf("got %+v", h)
	}
}

// expect compares the code of an error and whether it is retryable.
func expect(t *testing.T, err error, code string, retryable bool) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != code || e.Retryable != retryable || e.Message == "" {
		t.Fatalf("got error %#v, want %s, retryable %t", err, code, retryable)
	}
	return e
}

func TestBrokenStreamsAreClassified(t *testing.T) {
	t.Parallel()
	prefix := stream(deltaChoice(`"content":"a"`))
	for name, test := range map[string]struct {
		stream    string
		code      string
		retryable bool
	}{
		"no chunk":                   {"", model.CodeUnavailable, true},
		"[DONE] without any content": {"data: [DONE]\n\n", model.CodeUnavailable, true},
		"[DONE] within a call":       {stream(deltaChoice(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}]`)) + "data: [DONE]\n\n", model.CodeUnavailable, true},
		"a chunk that is not JSON":   {prefix + "data: {\"choices\n\n", model.CodeInvalidResponse, true},
		"a call without a name":      {stream(deltaChoice(`"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]`), finishChoice("tool_calls")), model.CodeInvalidResponse, true},
		"an error with a status":     {prefix + `data: {"error":{"message":"slow down","code":429}}` + "\n\n", model.CodeRateLimited, true},
		"an error with a type":       {prefix + `data: {"error":{"message":"too long","type":"invalid_request_error","code":null}}` + "\n\n", model.CodeInvalidRequest, false},
		"an error that is a string":  {prefix + `data: {"error":"out of memory"}` + "\n\n", model.CodeUnavailable, true},
		"an error after the finish":  {prefix + stream(finishChoice("stop")) + `data: {"error":{"message":"no"}}` + "\n\n", model.CodeUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, collectChat(t, test.stream, modeltest.Ended).Err, test.code, test.retryable)
		})
	}
}

func TestErrorResponsesAreClassified(t *testing.T) {
	t.Parallel()
	const date = "Date: Sat, 21 Nov 2026 08:00:00 GMT\n"
	for name, test := range map[string]struct {
		response  string
		code      string
		retryable bool
		wait      time.Duration
		message   string
	}{
		"no credit":                 {"429 Too Many Requests\n\n" + `{"error":{"message":"pay","code":"insufficient_quota"}}`, model.CodeRateLimited, false, 0, "pay"},
		"delay in milliseconds":     {"429 Too Many Requests\nRetry-After-Ms: 1500\nRetry-After: 2\n\n{}", model.CodeRateLimited, true, 1500 * time.Millisecond, "{}"},
		"delay of a fraction":       {"503 Unavailable\nRetry-After: 0.25\n\nbusy", model.CodeOverloaded, true, 250 * time.Millisecond, "busy"},
		"delay until a date":        {"503 Unavailable\n" + date + "Retry-After: Sat, 21 Nov 2026 08:00:30 GMT\n\nbusy", model.CodeOverloaded, true, 30 * time.Second, "busy"},
		"delay until a past date":   {"503 Unavailable\n" + date + "Retry-After: Sat, 21 Nov 2026 07:00:30 GMT\n\nbusy", model.CodeOverloaded, true, 0, "busy"},
		"excessive delay":           {"503 Unavailable\nRetry-After: 1e300\n\nbusy", model.CodeOverloaded, true, 24 * time.Hour, "busy"},
		"invalid delay":             {"503 Unavailable\nRetry-After: -3\n\nbusy", model.CodeOverloaded, true, 0, "busy"},
		"a proxy's page":            {"502 Bad Gateway\nContent-Type: text/html\n\n<h1>502</h1>", model.CodeUnavailable, true, 0, "<h1>502</h1>"},
		"no body":                   {"504 Gateway Timeout\n\n", model.CodeUnavailable, true, 0, "Gateway Timeout"},
		"an error that is a string": {"400 Bad Request\n\n" + `{"error":"bad"}`, model.CodeInvalidRequest, false, 0, "bad"},
		"a detail":                  {"422 Unprocessable\n\n" + `{"detail":[{"loc":1}]}`, model.CodeInvalidRequest, false, 0, `[{"loc":1}]`},
		"too large":                 {"413 Too Large\n\n" + `{"message":"large"}`, model.CodeInvalidRequest, false, 0, "large"},
		"a conflict":                {"409 Conflict\n\nx", model.CodeUnavailable, true, 0, "x"},
		"told not to retry":         {"500 Oops\nX-Should-Retry: false\n\nx", model.CodeUnavailable, false, 0, "x"},
		"told to retry":             {"400 Oops\nX-Should-Retry: true\n\nx", model.CodeInvalidRequest, true, 0, "x"},
		"an error with status 200":  {"200 OK\nContent-Type: application/json\n\n" + `{"error":{"message":"no","type":"authentication_error"}}`, model.CodeUnauthenticated, false, 0, "no"},
		"an unstreamed completion":  {"200 OK\nContent-Type: application/json\n\n" + `{"choices":[]}`, model.CodeInvalidResponse, true, 0, `{"choices":[]}`},
		"a page with status 200":    {"200 OK\nContent-Type: text/html\n\nWelcome", model.CodeInvalidResponse, true, 0, "Welcome"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := modeltest.ServeResponse(t, "HTTP/1.1 "+test.response)
			reply := modeltest.Collect(t, connect(t, server, openai.Config{}).Generate(t.Context(), modeltest.NewRequest("m")))
			e := expect(t, reply.Err, test.code, test.retryable)
			if e.RetryAfter != test.wait || e.Message != test.message {
				t.Errorf("got wait %v and message %q, want %v and %q", e.RetryAfter, e.Message, test.wait, test.message)
			}
		})
	}
}

func TestErrorBodiesAreLimited(t *testing.T) {
	t.Parallel()
	server := modeltest.ServeResponse(t, "HTTP/1.1 500 Oops\n\n"+strings.Repeat("x", 1<<20))
	reply := modeltest.Collect(t, connect(t, server, openai.Config{}).Generate(t.Context(), modeltest.NewRequest("m")))
	if e := expect(t, reply.Err, model.CodeUnavailable, true); len(e.Message) != 64<<10 {
		t.Errorf("got %d bytes of message", len(e.Message))
	}
}

func TestAnUnreachableServerIsUnavailable(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/chat/replies", modeltest.Text, modeltest.Encoding{})
	m := connect(t, server, openai.Config{})
	server.Close()
	expect(t, modeltest.Collect(t, m.Generate(t.Context(), modeltest.NewRequest("m"))).Err, model.CodeUnavailable, true)
}

func TestCallsTimeOutWhenIdle(t *testing.T) {
	t.Parallel()
	modeltest.RunIdleTimeout(t, func(t *testing.T, client *http.Client, idle time.Duration) model.Model {
		m, err := openai.New(openai.Config{IdleTimeout: idle}, client)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}, stream(deltaChoice(`"content":"a"`)))
}
