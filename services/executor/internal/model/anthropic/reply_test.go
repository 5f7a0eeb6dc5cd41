package anthropic_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/anthropic"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

// event is one event of a stream; fields follow its type.
func event(name, fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return "event: " + name + "\ndata: {\"type\":\"" + name + `"` + fields + "}\n\n"
}

// messageStart starts a message of nine input tokens.
func messageStart() string {
	return event("message_start", `"message":{"usage":{"input_tokens":9,"output_tokens":1}}`)
}

// contentBlock is a complete content block.
func contentBlock(index int, content string, deltas ...string) string {
	var out strings.Builder
	out.WriteString(event("content_block_start", fmt.Sprintf(`"index":%d,"content_block":%s`, index, content)))
	for _, d := range deltas {
		out.WriteString(event("content_block_delta", fmt.Sprintf(`"index":%d,"delta":%s`, index, d)))
	}
	out.WriteString(event("content_block_stop", fmt.Sprintf(`"index":%d`, index)))
	return out.String()
}

const plainBlock = `{"type":"text","text":"a"}`

func stopReason(reason string) string {
	return event("message_delta", `"delta":{"stop_reason":"`+reason+`"},"usage":{"output_tokens":5}`)
}

func stop(reason string) string { return stopReason(reason) + event("message_stop", "") }

// collect returns the reply that the model reads from an event stream.
func collect(t *testing.T, body string, end modeltest.Scenario) modeltest.Reply {
	t.Helper()
	server := modeltest.ServeStream(t, []byte(body), end, modeltest.Encoding{})
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	return modeltest.Collect(t, connect(t, server, anthropic.Config{}).Generate(ctx, modeltest.NewRequest("m")))
}

func TestStopReasonsAreTranslated(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]model.FinishReason{
		"end_turn": model.FinishStop, "stop_sequence": model.FinishStop, "tool_use": model.FinishToolCalls,
		"max_tokens": model.FinishLength, "model_context_window_exceeded": model.FinishLength,
		"refusal": model.FinishContentFilter, "pause_turn": model.FinishOther, "something_new": model.FinishOther,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			if h := collect(t, messageStart()+contentBlock(0, plainBlock)+stop(reason), modeltest.Ended); h.Err != nil || h.Finish != want || h.Text != "a" {
				t.Errorf("got %+v, want finish %q", h, want)
			}
		})
	}
}

// madeBy matches the origin in provider data.
var madeBy = regexp.MustCompile(`,"origin":\{"host":"127[.0-9:]+","model":"m"\}`)

func TestThinkingKeepsItsProviderData(t *testing.T) {
	t.Parallel()
	h := collect(t, messageStart()+
		contentBlock(0, `{"type":"thinking","thinking":"","signature":""}`, `{"type":"thinking_delta","thinking":"hm"}`, `{"type":"signature_delta","signature":"Eq"}`, `{"type":"signature_delta","signature":"QB"}`)+
		contentBlock(1, `{"type":"thinking","thinking":""}`, `{"type":"signature_delta","signature":"hidden"}`)+
		contentBlock(2, `{"type":"redacted_thinking","data":"EmwKAhgB"}`)+
		contentBlock(3, `{"type":"thinking","thinking":"unsigned"}`)+
		contentBlock(4, plainBlock)+stop("end_turn"), modeltest.Ended)
	if want := []string{"hm", "", "", "unsigned"}; !reflect.DeepEqual(h.Reasoning, want) || h.Text != "a" || h.Err != nil {
		t.Errorf("got %+v, want the reasoning %q", h, want)
	}
	var got []string
	for _, data := range h.ProviderData {
		got = append(got, string(data))
	}
	for i := range got {
		got[i] = madeBy.ReplaceAllString(got[i], "")
	}
	want := []string{`{"type":"thinking","signature":"EqQB"}`, `{"type":"thinking","signature":"hidden"}`, `{"type":"redacted_thinking","data":"EmwKAhgB"}`, ""}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestProviderToolsAndUnknownEventsAreIgnored(t *testing.T) {
	t.Parallel()
	h := collect(t, messageStart()+event("ping", "")+
		contentBlock(0, `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`, `{"type":"input_json_delta","partial_json":"{}"}`)+
		contentBlock(1, `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}`)+
		contentBlock(2, `{"type":"something_new"}`, `{"type":"something_new_delta","x":1}`)+
		contentBlock(3, plainBlock, `{"type":"citations_delta","citation":{"type":"char_location"}}`)+
		event("something_new", `"x":1`)+stop("end_turn"), modeltest.Ended)
	if h.Err != nil || h.Text != "a" || len(h.Calls) != 0 || len(h.Reasoning) != 0 || h.Finish != model.FinishStop {
		t.Errorf("got %+v", h)
	}
}

func TestArgumentsMayComeWithTheStart(t *testing.T) {
	t.Parallel()
	h := collect(t, messageStart()+contentBlock(0, `{"type":"tool_use","id":"t","name":"f","input":{"x":1}}`)+stop("tool_use"), modeltest.Ended)
	if h.Err != nil || len(h.Calls) != 1 || h.Calls[0].ID != "t" || h.Calls[0].Arguments != `{"x":1}` {
		t.Errorf("got %+v", h)
	}
}

func TestUsageIsCumulative(t *testing.T) {
	t.Parallel()
	h := collect(t, event("message_start", `"message":{"usage":{"input_tokens":9,"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"output_tokens":1}}`)+
		contentBlock(0, plainBlock)+
		event("message_delta", `"delta":{"stop_reason":null},"usage":{"output_tokens":3}`)+
		event("message_delta", `"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}`)+
		event("message_stop", ""), modeltest.Ended)
	want := model.Usage{PromptTokens: 329, CompletionTokens: 5, CachedTokens: 300, TotalTokens: 334}
	if h.Usage != want || h.Err != nil {
		t.Errorf("got %+v, %v, want %+v", h.Usage, h.Err, want)
	}
}

func TestAReplyIsCompleteAfterItsStopReason(t *testing.T) {
	t.Parallel()
	for _, end := range []modeltest.Scenario{modeltest.Cut, modeltest.Ended} {
		if h := collect(t, messageStart()+contentBlock(0, plainBlock)+stopReason("end_turn"), end); h.Err != nil || h.Finish != model.FinishStop {
			t.Errorf("%s: got %+v", end, h)
		}
	}
	// The reply must end at message_stop: this server never closes the stream.
	if h := collect(t, messageStart()+contentBlock(0, plainBlock)+stop("end_turn"), modeltest.Slow); h.Err != nil || h.Finish != model.FinishStop {
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
	prefix := messageStart() + contentBlock(0, plainBlock)
	open := event("content_block_start", `"index":1,"content_block":{"type":"text","text":"b"}`)
	for name, test := range map[string]struct {
		stream    string
		code      string
		retryable bool
	}{
		"no event":                         {"", model.CodeUnavailable, true},
		"an open block at the end":         {prefix + open + stop("end_turn"), model.CodeUnavailable, true},
		"message_stop without stop_reason": {prefix + event("message_stop", ""), model.CodeUnavailable, true},
		"an event that is not JSON":        {prefix + "event: message_delta\ndata: {\"type\n\n", model.CodeInvalidResponse, true},
		"a delta without a block":          {prefix + event("content_block_delta", `"index":4,"delta":{"type":"text_delta","text":"x"}`), model.CodeInvalidResponse, true},
		"a call without a name":            {prefix + contentBlock(1, `{"type":"tool_use","id":"t"}`), model.CodeInvalidResponse, true},
		"overloaded":                       {prefix + event("error", `"error":{"type":"overloaded_error","message":"Overloaded"}`), model.CodeOverloaded, true},
		"a rate limit":                     {prefix + event("error", `"error":{"type":"rate_limit_error","message":"slow"}`), model.CodeRateLimited, true},
		"a timeout":                        {prefix + event("error", `"error":{"type":"timeout_error","message":"slow"}`), model.CodeTimeout, true},
		"an invalid request":               {prefix + event("error", `"error":{"type":"invalid_request_error","message":"no"}`), model.CodeInvalidRequest, false},
		"an unknown error":                 {prefix + event("error", `"error":{"type":"something_new","message":"no"}`), model.CodeUnavailable, true},
		"an error without a type":          {prefix + event("error", `"message":"no"`), model.CodeUnavailable, true},
		"an error that is not JSON":        {prefix + "event: error\ndata: oops\n\n", model.CodeUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, collect(t, test.stream, modeltest.Ended).Err, test.code, test.retryable)
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
		"delay until a date":       {"529 Overloaded\n" + date + "Retry-After: Sat, 21 Nov 2026 08:00:30 GMT\n\nbusy", model.CodeOverloaded, true, 30 * time.Second, "busy"},
		"delay in milliseconds":    {"429 Slow\nRetry-After-Ms: 1500\nRetry-After: 2\n\nbusy", model.CodeRateLimited, true, 1500 * time.Millisecond, "busy"},
		"a proxy's page":           {"502 Bad Gateway\nContent-Type: text/html\n\n<h1>502</h1>", model.CodeUnavailable, true, 0, "<h1>502</h1>"},
		"no body":                  {"504 Gateway Timeout\n\n", model.CodeUnavailable, true, 0, "Gateway Timeout"},
		"no credit":                {"402 Payment Required\n\n" + `{"error":{"type":"billing_error","message":"pay"}}`, model.CodeDenied, false, 0, "pay"},
		"too large":                {"413 Too Large\n\n" + `{"error":{"type":"request_too_large","message":"large"}}`, model.CodeInvalidRequest, false, 0, "large"},
		"a conflict":               {"409 Conflict\n\nx", model.CodeUnavailable, true, 0, "x"},
		"told not to retry":        {"500 Oops\nX-Should-Retry: false\n\nx", model.CodeUnavailable, false, 0, "x"},
		"an unstreamed message":    {"200 OK\nContent-Type: application/json\n\n" + `{"type":"message"}`, model.CodeInvalidResponse, true, 0, `{"type":"message"}`},
		"an error with status 200": {"200 OK\nContent-Type: application/json\n\n" + `{"error":{"type":"authentication_error","message":"no"}}`, model.CodeUnauthenticated, false, 0, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := modeltest.ServeResponse(t, "HTTP/1.1 "+test.response)
			reply := modeltest.Collect(t, connect(t, server, anthropic.Config{}).Generate(t.Context(), modeltest.NewRequest("m")))
			e := expect(t, reply.Err, test.code, test.retryable)
			if e.RetryAfter != test.wait || e.Message != test.message {
				t.Errorf("got wait %v and message %q, want %v and %q", e.RetryAfter, e.Message, test.wait, test.message)
			}
		})
	}
}

func TestAnUnreachableServerIsUnavailable(t *testing.T) {
	t.Parallel()
	server := modeltest.NewServer(t, "testdata/replies", modeltest.Text, modeltest.Encoding{})
	m := connect(t, server, anthropic.Config{})
	server.Close()
	expect(t, modeltest.Collect(t, m.Generate(t.Context(), modeltest.NewRequest("m"))).Err, model.CodeUnavailable, true)
}

func TestCallsTimeOutWhenIdle(t *testing.T) {
	t.Parallel()
	modeltest.RunIdleTimeout(t, func(t *testing.T, client *http.Client, idle time.Duration) model.Model {
		m, err := anthropic.New(anthropic.Config{IdleTimeout: idle}, client)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}, messageStart()+contentBlock(0, plainBlock))
}
