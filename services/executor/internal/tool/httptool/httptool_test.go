package httptool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

// echo answers with the received request.
func echo(t *testing.T) (string, httptool.Peers) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.RequestURI, body)
	}))
	t.Cleanup(web.Close)
	return web.URL, peers()
}

func peers() httptool.Peers {
	return httptool.Peers{
		Policy: outbound.Policy{Hosts: []string{"127.0.0.1"}},
		Lookup: func(name string) (string, error) {
			value, ok := map[string]string{"KEY": "s{ecret}", "EMPTY": ""}[name]
			if !ok {
				return "", errors.New("is not set")
			}
			return value, nil
		},
	}
}

func define(t *testing.T, tool agent.Tool, c httptool.Config, p httptool.Peers) agent.Tool {
	t.Helper()
	tool, err := httptool.New(tool, c, p)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return tool
}

func run(ctx context.Context, tool agent.Tool, input string) string {
	value, err := tool.Execute(ctx, &agent.Call{IdempotencyKey: "key 1", Input: json.RawMessage(input)})
	if err != nil {
		return "error: " + err.Error()
	}
	switch v := value.(type) {
	case string:
		return v
	case json.RawMessage:
		return "JSON " + string(v)
	}
	return fmt.Sprint(value)
}

func TestArgumentsBecomePartsOfARequest(t *testing.T) {
	t.Parallel()
	base, p := echo(t)
	template := json.RawMessage(`{"name":"{name}","text":"Hello {name}!","n":1.50,"list":["{name}","{none}"],"none":"{none}","more":{"all":"{list}"}}`)
	tests := []struct {
		config      httptool.Config
		input, want string
	}{
		{httptool.Config{URL: "/cities/{city}"}, `{"city":"São Paulo/X?y#z&=%2e"}`, "GET /cities/S%C3%A3o%20Paulo%2FX%3Fy%23z&=%252e "},
		{httptool.Config{URL: "/v1/{a}-{b}.json"}, `{"a":1.0,"b":true}`, "GET /v1/1.0-true.json "},
		{httptool.Config{URL: "/a%2Fb/{x}"}, `{"x":"y"}`, "GET /a%2Fb/y "},
		{httptool.Config{URL: "/?fixed=1", Query: map[string]string{"q": "{q}", "p": "x{q}", "key": "${KEY}"}}, `{"q":"a&b=c"}`, "GET /?fixed=1&key=s%7Becret%7D&p=xa%26b%3Dc&q=a%26b%3Dc "},
		{httptool.Config{URL: "/", Query: map[string]string{"q": "{q}", "o": "{o}"}}, `{"q":["a",2],"o":null}`, "GET /?q=a&q=2 "},
		{httptool.Config{URL: "/", Method: "post"}, `{"a":9007199254740993}`, `POST / {"a":9007199254740993}`},
		{httptool.Config{URL: "/", Method: "POST", Body: httptool.BodyNone}, `{"a":1}`, "POST / "},
		{httptool.Config{URL: "/", Method: "DELETE", Body: httptool.BodyInput}, `{"a":1}`, `DELETE / {"a":1}`},
		{httptool.Config{URL: "/", Method: "PUT", BodyTemplate: template}, `{"name":"A\"b","list":[1,{"x":2.0}]}`, `PUT / {"list":["A\"b"],"more":{"all":[1,{"x":2.0}]},"n":1.50,"name":"A\"b","text":"Hello A\"b!"}`},
		{httptool.Config{URL: "/"}, ``, "GET / "},
	}
	for _, test := range tests {
		test.config.URL = base + test.config.URL
		if got := run(t.Context(), define(t, agent.Tool{}, test.config, p), test.input); got != test.want {
			t.Errorf("%s of %s:\n got %s\nwant %s", test.input, test.config.URL, got, test.want)
		}
	}
}

func TestArgumentsCannotLeaveTheirPlace(t *testing.T) {
	t.Parallel()
	base, p := echo(t)
	path := define(t, agent.Tool{}, httptool.Config{URL: base + "/users/{id}/posts"}, p)
	for _, id := range []string{`".."`, `"."`, `""`, `"../../admin"`, `"..\\admin"`, `"a/../../b"`, `"a\u0000b"`, `"a\nb"`, `null`, `{}`, `["a"]`} {
		if got := run(t.Context(), path, `{"id":`+id+`}`); !strings.HasPrefix(got, "error: the argument") {
			t.Errorf("id %s: %s, want a refusal", id, got)
		}
	}
	joined := define(t, agent.Tool{}, httptool.Config{URL: base + "/{a}{b}/x"}, p)
	if got := run(t.Context(), joined, `{"a":".","b":"."}`); !strings.HasPrefix(got, "error: the argument") {
		t.Errorf("a dot from two arguments: %s, want a refusal", got)
	}
	if got := run(t.Context(), path, `{"id":"@evil.test:80"}`); got != "GET /users/@evil.test:80/posts " {
		t.Errorf("got %s, want the same host", got)
	}
	if got := run(t.Context(), path, `{}`); got != `error: the argument "id" is missing` {
		t.Errorf("got %s, want that id is missing", got)
	}
}

func TestARequestCarriesHeadersTheKeyAndTheTrace(t *testing.T) {
	t.Parallel()
	var seen http.Header
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() }))
	t.Cleanup(web.Close)
	tool := define(t, agent.Tool{}, httptool.Config{Method: "POST", URL: web.URL, Headers: map[string]string{"authorization": "Bearer ${KEY}", "X-Fixed": "{not an argument}"}}, peers())
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if got := run(telemetry.WithTraceparent(t.Context(), traceparent, ""), tool, `{}`); got != "<nil>" {
		t.Errorf("got %s, want nothing for an empty response", got)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer s{ecret}", "X-Fixed": "{not an argument}", "Idempotency-Key": "key 1", "Traceparent": traceparent, "Content-Type": "application/json",
	} {
		if got := seen.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func TestAResponseBecomesAResult(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status     int
		kind, body string
		config     httptool.Config
		want       string
	}{
		"JSON":              {200, "application/json; charset=utf-8", `{"n":9007199254740993}`, httptool.Config{}, `JSON {"n":9007199254740993}`},
		"problem JSON":      {200, "application/problem+json", `{}`, httptool.Config{}, `JSON {}`},
		"text":              {200, "text/plain", "a\xffb", httptool.Config{}, "a\uFFFDb"},
		"JSON as text":      {200, "application/json", `{}`, httptool.Config{Result: httptool.ResultText}, `{}`},
		"text as JSON":      {200, "text/plain", `{"a":1}`, httptool.Config{Result: httptool.ResultJSON}, `JSON {"a":1}`},
		"broken JSON":       {200, "application/json", `{"a"`, httptool.Config{}, `error: the response is not JSON: {"a"`},
		"nothing":           {204, "", "", httptool.Config{}, "<nil>"},
		"not found":         {404, "text/plain", "no such city", httptool.Config{}, "error: HTTP status 404 Not Found: no such city"},
		"not found is fine": {404, "text/plain", "nobody", httptool.Config{Success: []string{"2xx", "404"}}, "nobody"},
		"created only":      {200, "text/plain", "x", httptool.Config{Success: []string{"201"}}, "error: HTTP status 200 OK: x"},
		"too large":         {200, "text/plain", strings.Repeat("x", 101), httptool.Config{MaxBytes: 100}, "error: the response has more than the 100 bytes that are allowed; ask for less"},
		"a long failure":    {500, "text/plain", strings.Repeat("x", 101), httptool.Config{MaxBytes: 100}, "error: HTTP status 500 Internal Server Error: " + strings.Repeat("x", 100)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			t.Cleanup(web.Close)
			test.config.URL = web.URL
			if got := run(t.Context(), define(t, agent.Tool{}, test.config, peers()), `{}`); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestAResponseThatCannotBeReadSaysThatTheRequestHasSucceeded(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	t.Cleanup(web.Close)
	const effect = "the request itself has succeeded, and may have taken effect"
	for _, c := range []httptool.Config{{Result: httptool.ResultJSON}, {MaxBytes: 3}} {
		for method, want := range map[string]bool{"POST": true, "DELETE": true, "GET": false} {
			c.URL, c.Method = web.URL, method
			if got := run(t.Context(), define(t, agent.Tool{}, c, peers()), `{}`); strings.Contains(got, effect) != want || !strings.HasPrefix(got, "error: ") {
				t.Errorf("%s: %s, want that it says so: %t", method, got, want)
			}
		}
	}
}

func TestOnlyASafeToolTriesAgain(t *testing.T) {
	t.Parallel()
	for retry, want := range map[agent.Retry]int{agent.RetrySafe: 2, agent.RetryNever: 1} {
		t.Run(string(retry), func(t *testing.T) {
			t.Parallel()
			calls := 0
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls++
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != `{"a":1}` {
					t.Errorf("body = %s, %v", body, err)
				}
				if calls == 1 {
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}))
			t.Cleanup(web.Close)
			got := run(t.Context(), define(t, agent.Tool{Retry: retry}, httptool.Config{Method: "POST", URL: web.URL}, peers()), `{"a":1}`)
			if calls != want || strings.HasPrefix(got, "error") != (retry == agent.RetryNever) {
				t.Errorf("%d calls, %s, want %d", calls, got, want)
			}
		})
	}
}

func TestARequestOnAConnectionThatBreaksIsMadeAgainForASafeToolOnly(t *testing.T) {
	t.Parallel()
	for retry, want := range map[agent.Retry]int64{agent.RetrySafe: 3, agent.RetryNever: 2} {
		for _, body := range []httptool.Body{httptool.BodyInput, httptool.BodyNone} {
			t.Run(fmt.Sprint(retry, " ", body), func(t *testing.T) {
				t.Parallel()
				var effects atomic.Int64
				web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Idempotency-Key") != "key 1" {
						t.Errorf("the request has the key %q", r.Header.Get("Idempotency-Key"))
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if effects.Add(1) == 2 {
						panic(http.ErrAbortHandler) // the effect happened without a response
					}
				}))
				t.Cleanup(web.Close)
				tool := define(t, agent.Tool{Retry: retry}, httptool.Config{Method: "POST", URL: web.URL, Body: body}, peers())
				run(t.Context(), tool, `{"a":1}`) // leaves an idle connection
				got := run(t.Context(), tool, `{"a":1}`)
				if effects.Load() != want || retry == agent.RetryNever && !strings.Contains(got, "it is not known whether it took effect") {
					t.Errorf("%d effects, %s, want %d", effects.Load(), got, want)
				}
			})
		}
	}
}

func TestARetryThatWouldComeTooLateIsNotMade(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(web.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Second) // shorter than the longest pause
	defer cancel()
	begin := time.Now()
	got := run(ctx, define(t, agent.Tool{Retry: agent.RetrySafe}, httptool.Config{URL: web.URL}, peers()), `{}`)
	if got != "error: HTTP status 503 Service Unavailable" || time.Since(begin) > 12*time.Second {
		t.Errorf("got %s after %v, want the 503 at once", got, time.Since(begin))
	}
}

func TestErrorsDoNotTellSecrets(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(web.Close)
	tool := define(t, agent.Tool{}, httptool.Config{URL: web.URL + "/{a}", Query: map[string]string{"key": "${KEY}"}}, peers())
	if got := run(t.Context(), tool, `{"a":"b"}`); !strings.HasPrefix(got, "error: the request failed") || strings.Contains(got, "ecret") || strings.Contains(got, web.URL) {
		t.Errorf("got %s, want a failure without the URL", got)
	}
}

func TestUsersSeeOfAFailedRequestOnlyItsStatus(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "panic in db-7.internal")
	}))
	t.Cleanup(web.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, test := range []struct {
		url, model, public string
		show               bool
	}{
		{web.URL, "db-7.internal", "The service answered with HTTP status 500.", false},
		{gone.URL, "127.0.0.1", "The service could not be reached.", false},
		{web.URL, "db-7.internal", "", true},
		{gone.URL, "127.0.0.1", "", true},
	} {
		tool := define(t, agent.Tool{}, httptool.Config{URL: test.url, ShowErrors: test.show}, peers())
		_, err := tool.Execute(t.Context(), &agent.Call{Input: json.RawMessage(`{}`)})
		if got := agent.PublicText(err); err == nil || !strings.Contains(err.Error(), test.model) || got != test.public {
			t.Errorf("the model sees %v and users see %q; want %s, %q", err, got, test.model, test.public)
		}
	}
}

func TestAFailureSaysWhetherTheRequestMayHaveHadAnEffect(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(web.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, test := range []struct {
		method, url string
		unknown     bool
	}{{"POST", web.URL, true}, {"GET", web.URL, false}, {"POST", gone.URL, false}} {
		got := run(t.Context(), define(t, agent.Tool{}, httptool.Config{Method: test.method, URL: test.url}, peers()), `{}`)
		if !strings.HasPrefix(got, "error: the request failed") || strings.Contains(got, "not known whether it took effect") != test.unknown {
			t.Errorf("%s %s: %s, want an unknown effect = %v", test.method, test.url, got, test.unknown)
		}
	}
}

func TestEveryMistakeNamesItsField(t *testing.T) {
	t.Parallel()
	tool := agent.Tool{InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{}}}`)}
	for want, c := range map[string]httptool.Config{
		"url: it must begin with a fixed https://host":             {URL: "https://{host}/x"},
		"url: it must begin with a fixed":                          {URL: "/x"},
		"url: the host":                                            {URL: "https://evil.test/"},
		"url: it must not hold credentials":                        {URL: "http://u:p@127.0.0.1/"},
		"url: it must not have a fragment":                         {URL: "http://127.0.0.1/#x"},
		"url: arguments of the query":                              {URL: "http://127.0.0.1/?a={a}"},
		`url: the input schema has no property "b"`:                {URL: "http://127.0.0.1/{b}"},
		"url: {a is not {name}":                                    {URL: "http://127.0.0.1/{a"},
		"method: ":                                                 {URL: "http://127.0.0.1", Method: "CONNECT"},
		"query.q: the environment variable NOPE":                   {URL: "http://127.0.0.1", Query: map[string]string{"q": "${NOPE}"}},
		"headers.X: the environment variable EMPTY":                {URL: "http://127.0.0.1", Headers: map[string]string{"X": "${EMPTY}"}},
		"headers.Host: ":                                           {URL: "http://127.0.0.1", Headers: map[string]string{"Host": "x"}},
		"headers.X: a header":                                      {URL: "http://127.0.0.1", Headers: map[string]string{"X": "a\r\nb: c"}},
		"body: give either one":                                    {URL: "http://127.0.0.1", Body: httptool.BodyNone, BodyTemplate: json.RawMessage(`{}`)},
		"body: it is not JSON":                                     {URL: "http://127.0.0.1", BodyTemplate: json.RawMessage(`{`)},
		"body: the input schema":                                   {URL: "http://127.0.0.1", BodyTemplate: json.RawMessage(`{"x":["{b}"]}`)},
		"url: {{user.name}} is not one of {{user.id}}, {{tenant}}": {URL: "http://127.0.0.1/{{user.name}}/x"},
		"url: {{user is not one of":                                {URL: "http://127.0.0.1/{{user"},
		"url: it must begin with a fixed https":                    {URL: "http://{{tenant}}.test/x"},
		"query.q: {{session.metadata.}} is not one of":             {URL: "http://127.0.0.1", Query: map[string]string{"q": "{{session.metadata.}}"}},
		"headers.X: {{input.user}} is not one of":                  {URL: "http://127.0.0.1", Headers: map[string]string{"X": "{{input.user}}"}},
		"headers.X: {{user.id} is not one of":                      {URL: "http://127.0.0.1", Headers: map[string]string{"X": "{{user.id}"}},
		"body: {{{a}}} is not one of":                              {URL: "http://127.0.0.1", BodyTemplate: json.RawMessage(`{"x":"{{{a}}}"}`)},
		"result: ":                                                 {URL: "http://127.0.0.1", Result: "xml"},
		"success: ":                                                {URL: "http://127.0.0.1", Success: []string{"2x"}},
		"maxBytes: ":                                               {URL: "http://127.0.0.1", MaxBytes: -1},
	} {
		_, err := httptool.New(tool, c, peers())
		if f, ok := fault.From(err); !ok || f.Reason != "HTTP_TOOL_INVALID" || !strings.Contains(f.Detail, want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
}
