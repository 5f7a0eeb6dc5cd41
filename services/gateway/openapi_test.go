package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/openapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/openapi/openapigen"
)

var update = flag.Bool("update", false, "write the generated files")

func TestTheOpenAPIDocumentDescribesTheRegisteredRoutes(t *testing.T) {
	t.Parallel()
	text, err := openapigen.Document(open(t, nil).service.Routes(), "../../proto")
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, "internal/openapi/openapi.json", text)
}

func TestTheTableOfThePublicAPIIsCurrent(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	rows := exchanges(t, h)
	tests := openapigen.Tests{}
	for _, route := range h.service.Routes() {
		name := route.Method + " " + route.Pattern
		if count := len(rows[name]); count > 0 {
			tests[name] = fmt.Sprintf("`TestEveryRouteAnswersAsTheOpenAPIDocumentSays/%s`, %d requests", strings.ReplaceAll(name, " ", "_"), count)
		} else if route.About.Name == "" {
			tests[name] = "`TestRoutesOutsideOfTheAPIAskForNoKey`"
		}
	}
	for name := range rpcCases {
		tests[name] = "`TestEveryRPCOfTheServiceAnswersOverEveryProtocol`, row " + name
	}
	service := agentv1.File_holdfast_agent_v1_agent_proto.Services().ByName("AgentService")
	text, err := openapigen.Table(h.service.Routes(), service, "../../proto", tests)
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, "../../docs/api.md", text)
}

func TestTheTableListsTheRefusalsOfMethodsAsThoseOfTheirRoutes(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string][]string{
		"| `Abort` |":              {"SESSION_NOT_FOUND", "RUN_NOT_FOUND", "STOP_NOT_OBSERVED", "TOO_MANY_STREAMS", "while it waits"},
		"| `Interrupt` |":          {"SESSION_NOT_FOUND", "QUOTA_STREAMS", "TOO_MANY_STREAMS"},
		"| `Start` |":              {"AGENT_NOT_FOUND", "SESSION_BUSY", "STATE_INVALID", "FILE_NOT_FOUND", "TOO_MANY_WAITING", "OWNER_REFUSED", "PRIORITY_DENIED", "QUOTA_BYTES", "QUOTA_QUEUED", "QUOTA_STARTS"},
		"| `Resume` |":             {"SESSION_COMPLETED", "CHECKPOINT_NOT_FOUND", "FILE_TOO_LARGE", "TOO_MANY_FILES", "QUOTA_STARTS"},
		"| `SubmitToolResult` |":   {"UNKNOWN_TOOL_CALL", "RESULT_TOO_LARGE", "CALL_NOT_OPEN", "APPROVER_REFUSED"},
		"| `Stream` |":             {"QUOTA_STREAMS", "TOO_MANY_STREAMS"},
		"| `ListSessions` |":       {"OWNER_REFUSED"},
		"| `POST /start` |":        {"403 CALLER_TOOLS_REFUSED, OWNER_REFUSED, PRIORITY_DENIED; 404", "QUOTA_STARTS"},
		"| `POST /chat` |":         {"403 APPROVER_REFUSED, CALLER_TOOLS_REFUSED; 404", "429 AUTH_THROTTLED, BODY_MEMORY_FULL, QUOTA_BYTES, QUOTA_QUEUED, QUOTA_STARTS, QUOTA_STREAMS"},
		"| `GET /sse` |":           {"QUOTA_STREAMS"},
		"| `POST /files` |":        {"body 20 MiB", "the bytes of a file", "QUOTA_BYTES"},
		"| `GET /agents/{agent}/":  {"400 ID_INVALID", "; 404 AGENT_NOT_FOUND"},
		"| `POST /interrupt` |":    {"while it waits"},
		"| `GET /sessions/{id}` |": {"PARAMETER_INVALID"},
	} {
		for line := range strings.Lines(string(table)) {
			if !strings.HasPrefix(line, row) || strings.Contains(line, "not part of the API") {
				continue
			}
			for _, text := range want {
				if !strings.Contains(line, text) {
					t.Errorf("%s lacks %s: %s", row, text, line)
				}
			}
		}
	}
}

// wantFile checks that a generated file is current. With -update it writes the file.
func wantFile(t *testing.T, name string, text []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%s is not current (%v): run make generate", name, err)
	}
}

// exchange is a request for a route, and the expected answer.
type exchange struct {
	about   string
	path    string // with the query
	body    string
	headers []string
	status  int
	code    string // of a refusal
	during  func() // runs before the body of the answer is read
}

// refused reports whether the document alone refuses the request.
func (e exchange) refused() bool {
	return e.code == "PARAMETER_INVALID" || e.code == "CURSOR_INVALID" && strings.Contains(e.path, "fromSequence=") && !strings.HasPrefix(e.path, "/chat/")
}

func TestEveryRouteAnswersAsTheOpenAPIDocumentSays(t *testing.T) {
	t.Parallel()
	h, _ := openWithMethods(t)
	locked, acme, other := openWithKeys(t)
	locked.chat(t, chatBody("ended", "hi"), "Authorization", acme)
	playAnswer(locked.AwaitRun(t, "acme", "ended", nil))
	playAsking(t, locked, "waiting")
	locked.State.RecordTokens(t, "acme", "ended", 7)
	doc, strict := document(t), document(t)
	forbidOtherFields(strict)
	rows := exchanges(t, h)
	for _, route := range h.service.Routes() {
		name := route.Method + " " + route.Pattern
		if route.About.Name == "" {
			if !route.Public || rows[name] != nil {
				t.Errorf("%s has no description", name)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := described{doc: doc, strict: strict, route: route}
			good, bad := false, route.About.Body == nil && len(route.About.Parameters) == 0
			for _, e := range rows[name] {
				d.check(t, h, e)
				good, bad = good || e.code == "", bad || e.code != ""
			}
			if !good || !bad {
				t.Errorf("exchanges has a successful request: %v, a refused one: %v; add the missing", good, bad)
			}
			if !route.Public {
				d.check(t, locked, exchange{about: "no key", path: anyPath(route.Pattern), status: http.StatusUnauthorized, code: "API_KEY_MISSING"})
				d.checkStranger(t, locked, acme, other, rows[name])
			}
		})
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("there is no route %s", name)
	}
}

func TestRoutesOutsideOfTheAPIAskForNoKey(t *testing.T) {
	t.Parallel()
	h, _, _ := openWithKeys(t)
	for _, route := range h.service.Routes() {
		if route.About.Name != "" {
			continue
		}
		path := strings.TrimSuffix(anyPath(route.Pattern), "{$}")
		if got := h.request(t, route.Method, path, "").StatusCode; got == http.StatusUnauthorized || got >= http.StatusInternalServerError {
			t.Errorf("%s: got %d", path, got)
		}
	}
}

// anyPath fills the wildcards of a pattern.
func anyPath(pattern string) string {
	return strings.NewReplacer("{id}", "s1", "{agent}", "demo", "{name}", "room", "{method}", "add").Replace(pattern)
}

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// forbidOtherFields lets schemas allow no other fields than those described.
func forbidOtherFields(doc *openapi3.T) {
	for _, schema := range doc.Components.Schemas {
		if schema.Value.AdditionalProperties.Has == nil {
			no := false
			schema.Value.AdditionalProperties.Has = &no
		}
	}
}

// described is a route and its description.
type described struct {
	doc    *openapi3.T
	strict *openapi3.T // for answers
	route  httpapi.Route
}

func (d described) check(t *testing.T, h *fixture, e exchange) {
	t.Helper()
	answer := h.request(t, d.route.Method, e.path, e.body, append([]string{"Accept", "application/json"}, e.headers...)...)
	if e.during != nil {
		e.during()
	}
	var body []byte
	if answer.StatusCode != http.StatusSwitchingProtocols {
		var err error
		if body, err = io.ReadAll(answer.Body); err != nil {
			t.Errorf("%s: %v", e.about, err)
		}
	}
	_ = answer.Body.Close()
	if answer.StatusCode != e.status {
		t.Errorf("%s: got %d %s, want %d", e.about, answer.StatusCode, body, e.status)
		return
	}
	if e.code != "" {
		var refusal struct{ Code string }
		if err := json.Unmarshal(body, &refusal); err != nil || refusal.Code != e.code {
			t.Errorf("%s: got %s, want %s", e.about, body, e.code)
		}
		if reasons := d.route.AllFaults()[e.status]; !slices.Contains(reasons, e.code) {
			t.Errorf("%s: the description of %d lists %v, not %s", e.about, e.status, reasons, e.code)
		}
	}
	asked := d.request(t, d.doc, e)
	if err := openapi3filter.ValidateRequest(t.Context(), asked); e.code == "" && err != nil || e.refused() && err == nil {
		t.Errorf("%s: by the document, the request is %v", e.about, err)
	}
	d.checkAnswer(t, e, d.request(t, d.strict, e), answer, body)
}

// emptyLists are the answers of lists, by path, to a tenant without sessions.
var emptyLists = map[string]string{
	"/calls": `{"calls":[],"nextCursor":""}`, "/usage/query": `{"buckets":[]}`,
	"/sessions":                 `{"sessions":[],"total":0,"totalIsMinimum":false,"nextCursor":""}`,
	"/messages?sessionId=ended": noMessages(0, 50), "/messages?sessionId=ended&limit=200&offset=1&includeReasoning=false&includeToolResults=false": noMessages(1, 200),
}

func noMessages(offset, limit int) string {
	return fmt.Sprintf(`{"messages":[],"total":0,"offset":%d,"limit":%d,"hasMore":false}`, offset, limit)
}

// checkStranger checks that another tenant's key opens no session: requests that the owner's key
// serves are refused, or find nothing.
func (d described) checkStranger(t *testing.T, h *fixture, owner, key string, rows []exchange) {
	t.Helper()
	for _, e := range rows {
		empty, list := emptyLists[e.path]
		if e.code != "" || e.during != nil || !list && !strings.Contains(e.path+e.body, "ended") || slices.Contains(e.headers, "Upgrade") {
			continue
		}
		answer := h.request(t, d.route.Method, e.path, e.body, append([]string{"Authorization", key}, e.headers...)...)
		body := text(t, answer)
		if list {
			own := text(t, h.request(t, d.route.Method, e.path, "", "Authorization", owner))
			if body != empty+"\n" || own == body {
				t.Errorf("another tenant, %s: got %s; the owner got %s", e.about, body, own)
			}
			continue
		}
		nothing := answer.StatusCode == http.StatusNotFound || answer.StatusCode == http.StatusNoContent
		if !nothing && body != `{"buckets":[]}`+"\n" {
			t.Errorf("another tenant, %s: got %d %s", e.about, answer.StatusCode, body)
		}
	}
}

func (d described) checkAnswer(t *testing.T, e exchange, asked *openapi3filter.RequestValidationInput, answer *reply, body []byte) {
	t.Helper()
	described := asked.Route.Operation.Responses.Status(e.status)
	if described == nil {
		t.Errorf("%s: %d is not described", e.about, e.status)
		return
	}
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	if described.Value.Content.Get(kind) == nil && len(body) > 0 {
		t.Errorf("%s: the content type %q is not described", e.about, kind)
	}
	options := &openapi3filter.Options{ExcludeResponseBody: kind != "application/json", MultiError: true}
	response := &openapi3filter.ResponseValidationInput{RequestValidationInput: asked, Status: e.status, Header: answer.Header, Options: options}
	response.SetBodyBytes(body)
	if err := openapi3filter.ValidateResponse(context.Background(), response); err != nil {
		t.Errorf("%s: %s: %v", e.about, body, err)
	}
}

// request returns the request for the validator.
func (d described) request(t *testing.T, doc *openapi3.T, e exchange) *openapi3filter.RequestValidationInput {
	t.Helper()
	path := doc.Paths.Find(d.route.Pattern)
	r, err := http.NewRequestWithContext(t.Context(), d.route.Method, e.path, strings.NewReader(e.body))
	if err != nil {
		t.Fatal(err)
	}
	if e.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(e.headers); i += 2 {
		r.Header.Set(e.headers[i], e.headers[i+1])
	}
	values := map[string]string{}
	got := strings.Split(r.URL.EscapedPath(), "/")
	for i, segment := range strings.Split(d.route.Pattern, "/") {
		if name, wildcard := strings.CutPrefix(segment, "{"); wildcard {
			values[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(got[i])
		}
	}
	return &openapi3filter.RequestValidationInput{
		Request: r, PathParams: values,
		Route:   &routers.Route{Spec: doc, Path: d.route.Pattern, PathItem: path, Method: d.route.Method, Operation: path.GetOperation(d.route.Method)},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, MultiError: true},
	}
}
