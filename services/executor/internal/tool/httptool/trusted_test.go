package httptool_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

// trustedCall is a call of the user u/17.
func trustedCall(input string) *agent.Call {
	return &agent.Call{
		ID: "c1", IdempotencyKey: "k1", Tenant: "acme", SessionID: "s 1", ParentSessionID: "p1", RunID: "r1", AgentType: "clerk", UserID: "u/17",
		Metadata: map[string]string{"plan": "gold & more", "a.b": "dotted"}, Input: json.RawMessage(input),
	}
}

// seenRequest is a request as its server sees it.
type seenRequest struct {
	uri    string
	header http.Header
	body   string
}

// observe returns the address of a server, and a function that returns the requests since the last call.
func observe(t *testing.T) (base string, seen func() []seenRequest) {
	t.Helper()
	requests := make(chan seenRequest, 100)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- seenRequest{r.RequestURI, r.Header.Clone(), string(body)}
	}))
	t.Cleanup(web.Close)
	return web.URL, func() (list []seenRequest) {
		for {
			select {
			case r := <-requests:
				list = append(list, r)
			default:
				return list
			}
		}
	}
}

func TestPlaceholdersAreFilledByTheRuntime(t *testing.T) {
	t.Parallel()
	base, seen := observe(t)
	tool := define(t, agent.Tool{}, httptool.Config{
		Method: "POST", URL: base + `/{{tenant}}/{{ user.id }}/{id}/x-{{run.id}}/\{{user.id}}`,
		Query: map[string]string{"session": "{{session.id}}", "parent": "{{session.parentId}}", "plan": "{{session.metadata.plan}}", "key": "${KEY}{{call.id}}"},
		Headers: map[string]string{
			"X-User": "{{user.id}}", "X-Many": "{not} {{agent}} ${KEY} {{call.idempotencyKey}} \\{{", "X-Dotted": "{{session.metadata.a.b}}",
			"X-None": "{{session.metadata.none}}",
		},
		BodyTemplate: json.RawMessage(`{"user":"{{user.id}}","text":"{id} of {{user.id}}","none":"{{session.metadata.none}}","raw":"\\{{user.id}}"}`),
	}, peers())
	if _, err := tool.Execute(t.Context(), trustedCall(`{"id":"{{tenant}}"}`)); err != nil {
		t.Fatal(err)
	}
	got := seen()
	if len(got) != 1 {
		t.Fatalf("%d requests, want one", len(got))
	}
	uri := "/acme/u%2F17/%7B%7Btenant%7D%7D/x-r1/%7B%7Buser.id%7D%7D?key=s%7Becret%7Dc1&parent=p1&plan=gold+%26+more&session=s+1"
	if got[0].uri != uri {
		t.Errorf("URI = %s, want %s", got[0].uri, uri)
	}
	for name, want := range map[string]string{"X-User": "u/17", "X-Many": "{not} clerk s{ecret} k1 {{", "X-Dotted": "dotted", "X-None": ""} {
		if values := got[0].header.Values(name); len(values) != 1 || values[0] != want {
			t.Errorf("%s = %q, want %q", name, values, want)
		}
	}
	if want := `{"none":"","raw":"{{user.id}}","text":"{{tenant}} of u/17","user":"u/17"}`; got[0].body != want {
		t.Errorf("body = %s, want %s", got[0].body, want)
	}
}

func TestACallWithoutTheValueOfAPlaceholder(t *testing.T) {
	t.Parallel()
	base, seen := observe(t)
	for want, test := range map[string]struct {
		config httptool.Config
		change func(c *agent.Call)
	}{
		"": {httptool.Config{URL: base, Query: map[string]string{"user": "{{user.id}}"}, Headers: map[string]string{"X-User": "{{user.id}}"}},
			func(c *agent.Call) { c.UserID = "" }},
		"this run has no user.id, which the path of the request needs": {httptool.Config{URL: base + "/x-{{user.id}}-{a}"},
			func(c *agent.Call) { c.UserID = "" }},
		"the user.id of this run cannot be part of a path": {httptool.Config{URL: base + "/{{user.id}}/x"},
			func(c *agent.Call) { c.UserID = ".." }},
		"the value of the header X-User would have control characters": {httptool.Config{URL: base, Headers: map[string]string{"X-User": "{{user.id}}"}},
			func(c *agent.Call) { c.UserID = "u\r\nX-Admin: 1" }},
	} {
		call := trustedCall(`{"a":"b"}`)
		test.change(call)
		_, err := define(t, agent.Tool{}, test.config, peers()).Execute(t.Context(), call)
		requests := seen()
		if want != "" && (err == nil || err.Error() != want || len(requests) > 0) {
			t.Errorf("got %v after %v, want %q before any request", err, requests, want)
		}
		if want == "" && (err != nil || len(requests) != 1 || requests[0].uri != "/?user=" || requests[0].header.Get("X-User") != "") {
			t.Errorf("got %v after %v, want a request without the user", err, requests)
		}
	}
}

func TestASignedRequestCanBeVerified(t *testing.T) {
	t.Parallel()
	const former, current = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"
	p := peers()
	p.Lookup = func(name string) (string, error) {
		return map[string]string{"FORMER": former, "CURRENT": current}[name], nil
	}
	base, seen := observe(t)
	for _, config := range []httptool.Config{{URL: base}, {Method: "POST", URL: base}, {Method: "PUT", URL: base, BodyTemplate: json.RawMessage(`{"a":"{a}"}`)}} {
		config.Sign = &httptool.Sign{Secret: []string{"${CURRENT}", "${FORMER}"}}
		tool := define(t, agent.Tool{}, config, p)
		for range 2 {
			if _, err := tool.Execute(t.Context(), trustedCall(`{"a":"b"}`)); err != nil {
				t.Fatal(err)
			}
		}
		requests := seen()
		if len(requests) != 2 || requests[0].header.Get(webhook.IDHeader) == requests[1].header.Get(webhook.IDHeader) {
			t.Fatalf("requests = %+v, want two with different ids", requests)
		}
		for text, want := range map[string]string{former: "", current: "", "whsec_" + strings.Repeat("A", 32): "SIGNATURE_INVALID"} {
			secret, err := webhook.ParseSecret(text)
			if err != nil {
				t.Fatal(err)
			}
			verifier := webhook.Verifier{Secrets: []webhook.Secret{secret}}
			got := verifier.Verify(requests[0].header, []byte(requests[0].body), time.Now())
			if fault.ReasonOf(got) != want {
				t.Errorf("%s %s: Verify = %v, want %q", config.Method, requests[0].body, got, want)
			}
		}
	}
}

func TestASecretThatCannotSignIsAMistake(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]httptool.Config{
		"sign.secret: it is missing":                 {Sign: &httptool.Sign{}},
		"sign.secret: the environment variable NOPE": {Sign: &httptool.Sign{Secret: []string{"${NOPE}"}}},
		"sign.secret: a secret":                      {Sign: &httptool.Sign{Secret: []string{"hush-hush"}}},
		"headers.webhook-id: the header is of the":   {Sign: &httptool.Sign{Secret: []string{"x"}}, Headers: map[string]string{"webhook-id": "x"}},
	} {
		config.URL = "http://127.0.0.1"
		_, err := httptool.New(agent.Tool{}, config, peers())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%+v: %v, want %s without the secret", config, err, want)
		}
	}
}

// hostileText draws texts that a model may try as an argument.
func hostileText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			"{{user.id}}", "{{tenant}}", `\{{user.id}}`, "{user}", "${KEY}", "root", "u/17", "..", "../../admin", "x\r\nX-User: root", "&user=root", "?user=root#",
			`","user":"root`, "%2e%2e", "\x00", "/", `\`, "",
		}),
		rapid.String(),
	)
}

// No argument changes a value of the runtime, whatever it is called and whatever its text is.
func TestArgumentsCannotChangeWhatTheRuntimeFills(t *testing.T) {
	t.Parallel()
	base, seen := observe(t)
	tool := define(t, agent.Tool{}, httptool.Config{
		Method: "POST", URL: base + "/{{tenant}}/{a}/{{user.id}}",
		Query:        map[string]string{"user": "{{user.id}}", "q": "{q}", "mixed": "{{user.id}}"},
		Headers:      map[string]string{"X-User": "{{user.id}}", "X-Plan": "{{session.metadata.plan}}"},
		BodyTemplate: json.RawMessage(`{"user":"{{user.id}}","text":"{t}","tenant":{"id":"{{tenant}}"},"list":["{t}","{{user.id}}"]}`),
	}, peers())
	rapid.Check(t, func(t *rapid.T) {
		arguments := map[string]any{"a": hostileText().Draw(t, "a"), "q": hostileText().Draw(t, "q"), "t": hostileText().Draw(t, "t")}
		names := rapid.SampledFrom([]string{
			"user", "user.id", "{{user.id}}", "tenant", "session", "metadata", "session.metadata.plan", "call", "idempotencyKey", "X-User", "_meta", "context",
		})
		for _, name := range rapid.SliceOfN(names, 0, 4).Draw(t, "names") {
			arguments[name] = rapid.OneOf(
				rapid.Map(hostileText(), func(text string) any { return text }),
				rapid.Just[any](map[string]any{"id": "root", "user": map[string]any{"id": "root"}}),
				rapid.Just[any](nil),
			).Draw(t, "value")
		}
		input, err := json.Marshal(arguments)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tool.Execute(t.Context(), trustedCall(string(input)))
		requests := seen()
		if err != nil {
			if len(requests) > 0 || !strings.HasPrefix(err.Error(), "the argument") {
				t.Fatalf("%s: %v after %d requests, want a refused argument", input, err, len(requests))
			}
			return
		}
		if len(requests) != 1 {
			t.Fatalf("%s: %d requests, want one", input, len(requests))
		}
		got := requests[0]
		path, query, _ := strings.Cut(got.uri, "?")
		if segments := strings.Split(path, "/"); len(segments) != 4 || segments[1] != "acme" || segments[3] != "u%2F17" {
			t.Errorf("%s: path = %s", input, path)
		}
		if !strings.HasPrefix(query, "mixed=u%2F17&q=") || !strings.HasSuffix(query, "&user=u%2F17") || strings.Count(query, "&") != 2 {
			t.Errorf("%s: query = %s", input, query)
		}
		if user, plan := got.header.Values("X-User"), got.header.Values("X-Plan"); len(user) != 1 || user[0] != "u/17" || plan[0] != "gold & more" {
			t.Errorf("%s: headers = %v", input, got.header)
		}
		var body struct {
			User   string
			Text   string
			Tenant struct{ ID string }
			List   []string
		}
		if err := json.Unmarshal([]byte(got.body), &body); err != nil {
			t.Fatalf("%s: body %s: %v", input, got.body, err)
		}
		if body.User != "u/17" || body.Tenant.ID != "acme" || body.Text != arguments["t"] || len(body.List) != 2 || body.List[1] != "u/17" {
			t.Errorf("%s: body = %s", input, got.body)
		}
	})
}
