package gemini_test

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/gemini"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

// stream returns an event stream of chunks.
func stream(chunks ...string) string {
	var out strings.Builder
	for _, c := range chunks {
		out.WriteString("data: " + c + "\r\n\r\n")
	}
	return out.String()
}

// chunk returns a chunk with these parts, and with a finish reason unless it is empty.
func chunk(parts, finish string) string {
	end := ""
	if finish != "" {
		end = `,"finishReason":"` + finish + `"`
	}
	return `{"candidates":[{"content":{"role":"model","parts":[` + parts + `]}` + end + `}]}`
}

// collect returns the reply that the model reads from an event stream.
func collect(t *testing.T, body string, end modeltest.Scenario) modeltest.Reply {
	t.Helper()
	server := modeltest.ServeStream(t, []byte(body), end, modeltest.Encoding{})
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	return modeltest.Collect(t, connect(t, server, gemini.Config{}).Generate(ctx, modeltest.NewRequest("m")))
}

func TestFinishReasonsAreTranslated(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]model.FinishReason{
		"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content-filter", "RECITATION": "content-filter",
		"BLOCKLIST": "content-filter", "PROHIBITED_CONTENT": "content-filter", "SPII": "content-filter",
		"LANGUAGE": "other", "OTHER": "other", "TOO_MANY_TOOL_CALLS": "other", "SOMETHING_NEW": "other",
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			if h := collect(t, stream(chunk(`{"text":"a"}`, reason)), modeltest.Ended); h.Err != nil || h.Finish != want || h.Text != "a" {
				t.Errorf("got %+v, want finish %q", h, want)
			}
		})
	}
}

// madeBy matches the origin in provider data.
var madeBy = regexp.MustCompile(`,"origin":\{"host":"127[.0-9:]+","model":"m"\}`)

func TestSignaturesStayWithTheirPart(t *testing.T) {
	t.Parallel()
	h := collect(t, stream(
		chunk(`{"text":"hm","thought":true},{"text":"","thought":true,"thoughtSignature":"c2lnMQ=="}`, ""),
		chunk(`{"text":"Let me."},{"text":" look","thoughtSignature":"c2lnMg=="},{"text":"."}`, ""),
		chunk(`{"functionCall":{"name":"f","args":{"n":9007199254740993,"b":1,"a":2}},"thoughtSignature":"c2lnMw=="}`, ""),
		chunk(`{"functionCall":{"name":"g","args":{}}}`, ""),
		chunk(`{"text":"","thoughtSignature":"c2lnNA=="}`, "STOP"),
	), modeltest.Ended)
	if h.Err != nil || h.Text != "Let me. look." || h.Finish != model.FinishToolCalls || h.Calls[0].Arguments != `{"n":9007199254740993,"b":1,"a":2}` {
		t.Errorf("got %+v", h)
	}
	var got []string
	for _, data := range h.ProviderData {
		got = append(got, madeBy.ReplaceAllString(string(data), ""))
	}
	want := []string{
		`{"signature":"c2lnMQ==","of":"thought"}`,
		`{"signature":"c2lnMg==","of":"text","bytes":5}`,
		`{"signature":"c2lnMw==","of":"call"}`,
		`{"signature":"c2lnNA==","of":"text"}`,
	}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(h.Reasoning, []string{"hm", "", "", ""}) {
		t.Errorf("got  %q of %q\nwant %q", got, h.Reasoning, want)
	}
}

func TestRepliesAreParsed(t *testing.T) {
	t.Parallel()
	const usage = `"usageMetadata":{"promptTokenCount":5,"toolUsePromptTokenCount":2,"candidatesTokenCount":1,"thoughtsTokenCount":3,"totalTokenCount":11}`
	for name, test := range map[string]struct {
		stream    string
		reasoning []string
		text      string
		finish    model.FinishReason
		usage     model.Usage
	}{
		"a blocked prompt": {
			stream(`{"promptFeedback":{"blockReason":"SAFETY"},` + usage + `}`), nil, "", "content-filter",
			model.Usage{PromptTokens: 7, CompletionTokens: 4, ReasoningTokens: 3, TotalTokens: 11},
		},
		"usage in a separate chunk": {
			stream(chunk(`{"text":"a"}`, "STOP"), `{`+usage+`}`), nil, "a", "stop",
			model.Usage{PromptTokens: 7, CompletionTokens: 4, ReasoningTokens: 3, TotalTokens: 11},
		},
		"no usage":                    {stream(chunk(`{"text":"a"}`, "STOP")), nil, "a", "stop", model.Usage{}},
		"unrequested kinds of parts":  {stream(chunk(`{"executableCode":{"code":"x"}},{"inlineData":{"mimeType":"image/png","data":"AA=="}},{"text":"a"}`, "STOP")), nil, "a", "stop", model.Usage{}},
		"a second candidate":          {stream(chunk(`{"text":"a"}`, ""), `{"candidates":[{"index":1,"content":{"parts":[{"text":"b"}]}}]}`, chunk("", "STOP")), nil, "a", "stop", model.Usage{}},
		"thoughts between texts":      {stream(chunk(`{"text":"a"},{"text":"x","thought":true},{"text":"b"}`, "STOP")), []string{"x"}, "ab", "stop", model.Usage{}},
		"thoughts only":               {stream(chunk(`{"text":"x","thought":true}`, "MAX_TOKENS")), []string{"x"}, "", "length", model.Usage{}},
		"an unspecified reason first": {stream(chunk(`{"text":"a"}`, "FINISH_REASON_UNSPECIFIED"), chunk(`{"text":"b"}`, "STOP")), nil, "ab", "stop", model.Usage{}},
		"events with names and ids":   {"event: message\nid: 1\nretry: 5\n" + stream(chunk(`{"text":"a"}`, "STOP")), nil, "a", "stop", model.Usage{}},
		"data of several lines":       {"data: {\"candidates\":\ndata: [{\"content\":{\"parts\":[{\"text\":\"a\"}]},\ndata:\"finishReason\":\"STOP\"}]}\n\n", nil, "a", "stop", model.Usage{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := collect(t, test.stream, modeltest.Ended)
			if h.Err != nil || h.Text != test.text || !reflect.DeepEqual(h.Reasoning, test.reasoning) || h.Finish != test.finish || h.Usage != test.usage {
				t.Errorf("got %+v", h)
			}
		})
	}
	// The reply must end at its usage: this server never closes the stream.
	h := collect(t, stream(chunk(`{"text":"a"}`, "STOP"), `{`+usage+`}`), modeltest.Slow)
	if h.Err != nil || h.Finish != model.FinishStop || h.Usage.TotalTokens != 11 {
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
	prefix := stream(chunk(`{"text":"a"}`, ""))
	for name, test := range map[string]struct {
		stream    string
		code      string
		retryable bool
	}{
		"a chunk that is not JSON":  {prefix + stream(`{"candidates`), model.CodeInvalidResponse, true},
		"a call without a name":     {prefix + stream(chunk(`{"functionCall":{"args":{}}}`, "STOP")), model.CodeInvalidResponse, true},
		"a malformed call":          {prefix + stream(chunk("", "MALFORMED_FUNCTION_CALL")), model.CodeInvalidResponse, true},
		"an unexpected call":        {prefix + stream(chunk("", "UNEXPECTED_TOOL_CALL")), model.CodeInvalidResponse, true},
		"a rate limit":              {prefix + stream(`{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}`), model.CodeRateLimited, true},
		"a deadline":                {prefix + stream(`{"error":{"code":504,"message":"slow","status":"DEADLINE_EXCEEDED"}}`), model.CodeTimeout, true},
		"an internal error":         {prefix + stream(`{"error":{"code":500,"message":"no","status":"INTERNAL"}}`), model.CodeUnavailable, true},
		"an invalid request":        {prefix + stream(`{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT"}}`), model.CodeInvalidRequest, false},
		"an error without a number": {prefix + stream(`{"error":{"message":"no"}}`), model.CodeUnavailable, true},
		"an error outside an event": {prefix + `{"error":{"code":503,` + "\n" + `"message":"busy","status":"UNAVAILABLE"}}` + "\n", model.CodeOverloaded, true},
		"a text outside an event":   {prefix + "<html>Bad gateway</html>\n", model.CodeInvalidResponse, true},
		"an event that is cut":      {prefix + "data: " + chunk(`{"text":"b"}`, "STOP")[:20], model.CodeUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, collect(t, test.stream, modeltest.Ended).Err, test.code, test.retryable)
		})
	}
}

func TestErrorResponsesAreClassified(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		response  string
		code      string
		retryable bool
		wait      time.Duration
		message   string
	}{
		"delay in the details": {
			"429 Too Many Requests\n\n" + `{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.07s"}]}}`,
			model.CodeRateLimited, true, 34070 * time.Millisecond, "slow",
		},
		"the longer of two delays": {
			"429 Too Many Requests\nRetry-After: 60\n\n" + `{"error":{"message":"slow","details":[{"retryDelay":"34s"}]}}`,
			model.CodeRateLimited, true, time.Minute, "slow",
		},
		"an invalid key": {
			"400 Bad Request\n\n" + `{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}`,
			model.CodeUnauthenticated, false, 0, "API key not valid. Please pass a valid API key.",
		},
		"an error in a list":       {"503 Unavailable\n\n" + `[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]`, model.CodeOverloaded, true, 0, "busy"},
		"an internal deadline":     {"504 Gateway Timeout\n\n" + `{"error":{"message":"slow","status":"DEADLINE_EXCEEDED"}}`, model.CodeTimeout, true, 0, "slow"},
		"a proxy's page":           {"502 Bad Gateway\nContent-Type: text/html\n\n<h1>502</h1>", model.CodeUnavailable, true, 0, "<h1>502</h1>"},
		"no body":                  {"504 Gateway Timeout\n\n", model.CodeUnavailable, true, 0, "Gateway Timeout"},
		"an error with status 200": {"200 OK\nContent-Type: application/json\n\n" + `{"error":{"message":"no","status":"PERMISSION_DENIED"}}`, model.CodeDenied, false, 0, "no"},
		"an unstreamed reply":      {"200 OK\nContent-Type: application/json\n\n" + `{"candidates":[]}`, model.CodeInvalidResponse, true, 0, `{"candidates":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := modeltest.ServeResponse(t, "HTTP/1.1 "+test.response)
			reply := modeltest.Collect(t, connect(t, server, gemini.Config{}).Generate(t.Context(), modeltest.NewRequest("m")))
			e := expect(t, reply.Err, test.code, test.retryable)
			if e.RetryAfter != test.wait || e.Message != test.message {
				t.Errorf("got wait %v and message %q, want %v and %q", e.RetryAfter, e.Message, test.wait, test.message)
			}
		})
	}
}
