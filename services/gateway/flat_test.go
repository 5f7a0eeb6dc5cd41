package gateway_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// flatExchanges are requests for the routes that serve the methods of the Connect service.
func flatExchanges(t *testing.T, h *fixture, checkpoint string) map[string][]exchange {
	t.Helper()
	h.begin(t, "interrupted", "hi", nil).Interrupt()
	h.begin(t, "failed", "hi", nil).Fail("No.", "provider_failed")
	playAnswer(h.begin(t, "doomed", "hi", nil))
	runs, sessions, checkpoints, usage := runExchanges(checkpoint), sessionExchanges(), checkpointExchanges(checkpoint), usageExchanges()
	for _, more := range []map[string][]exchange{sessions, checkpoints, usage, auditExchanges(), accessExchanges()} {
		for route, exchanges := range more {
			runs[route] = exchanges
		}
	}
	return runs
}

// ofSession returns requests for a route with a sessionId.
func ofSession(path string, more ...exchange) []exchange {
	return append([]exchange{
		{about: "an ended session", path: path + "?sessionId=ended", status: http.StatusOK},
		{about: "no session", path: path, status: http.StatusBadRequest, code: "ID_INVALID"},
		{about: "an unknown session", path: path + "?sessionId=unknown", status: http.StatusNotFound, code: "SESSION_NOT_FOUND"},
	}, more...)
}

// pageOf returns requests for a route with pages.
func pageOf(path string) []exchange {
	return ofSession(path,
		exchange{about: "the largest page", path: path + "?sessionId=ended&limit=200", status: http.StatusOK},
		exchange{about: "a larger page", path: path + "?sessionId=ended&limit=201", status: http.StatusBadRequest, code: "PARAMETER_INVALID"})
}

// sent is a request with a body.
func sent(path, body string, status int, code string) exchange {
	return exchange{about: body[:min(len(body), 60)], path: path, body: body, status: status, code: code}
}

func accessExchanges() map[string][]exchange {
	return map[string][]exchange{
		"POST /tokens": {
			sent("/tokens", `{"subject":"ann"}`, http.StatusOK, ""),
			sent("/tokens", `{"subject":"ann","scopes":["chat","read"],"ttlSeconds":86400}`, http.StatusOK, ""),
			sent("/tokens", `{}`, http.StatusBadRequest, "ID_INVALID"),
			sent("/tokens", `{"subject":"ann","scopes":["root"]}`, http.StatusBadRequest, "SCOPE_UNKNOWN"),
			sent("/tokens", `{"subject":"ann","ttlSeconds":86401}`, http.StatusBadRequest, "TTL_INVALID"),
			sent("/tokens", `{"subject":"ann","ttlSeconds":-1}`, http.StatusBadRequest, "TTL_INVALID"),
		},
		"GET /keys": {
			{about: "the keys", path: "/keys", status: http.StatusOK},
		},
	}
}

func runExchanges(checkpoint string) map[string][]exchange {
	whole := `{"sessionId":"new start","message":"hi","messages":[{"text":"first"}],"state":{"a":[1]},"metadata":{"k":"v"},"tags":["t"],"userId":"u",` +
		`"requestKey":"k","timeoutMs":60000}`
	lost := `{"parts":[{"file":{"mediaType":"image/png","url":"/files/` + unknownFile + `"}}]}`
	return map[string][]exchange{
		"POST /start": {
			sent("/start", `{"agentType":"demo","message":"hi"}`, http.StatusOK, ""),
			sent("/start", whole, http.StatusOK, ""),
			sent("/start", whole, http.StatusOK, ""),
			sent("/start", `{"sessionId":"live","message":"hi","onBusy":"reject"}`, http.StatusConflict, "SESSION_BUSY"),
			sent("/start", `{"sessionId":"ended","agentType":"nobody","message":"hi"}`, http.StatusConflict, "AGENT_MISMATCH"),
			sent("/start", `{"agentType":"unknown","message":"hi"}`, http.StatusNotFound, "AGENT_NOT_FOUND"),
			sent("/start", `{"agentType":"demo"}`, http.StatusBadRequest, "MESSAGE_INVALID"),
			sent("/start", `{"agentType":"demo","message":"hi","unknown":1}`, http.StatusBadRequest, "BODY_INVALID"),
			sent("/start", `{"agentType":"demo","message":"hi","state":[]}`, http.StatusBadRequest, "STATE_INVALID"),
			sent("/start", `{"agentType":"demo","messages":[`+lost+`]}`, http.StatusNotFound, "FILE_NOT_FOUND"),
			sent("/start", `{"message":"`+strings.Repeat("x", 8<<20)+`"}`, http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE"),
		},
		"POST /resume": {
			sent("/resume", `{"sessionId":"interrupted","appendMessages":[`+lost+`]}`, http.StatusNotFound, "FILE_NOT_FOUND"),
			sent("/resume", `{"sessionId":"interrupted","message":"go on","appendMessages":[{"role":"system","text":"be short"}],"modifyState":{"a":null}}`, http.StatusOK, ""),
			sent("/resume", `{"sessionId":"ended","mode":"branch","checkpointId":"`+checkpoint+`","newSessionId":"branch run"}`, http.StatusOK, ""),
			sent("/resume", `{"sessionId":"ended"}`, http.StatusConflict, "SESSION_COMPLETED"),
			sent("/resume", `{"sessionId":"live"}`, http.StatusConflict, "SESSION_BUSY"),
			sent("/resume", `{"sessionId":"unknown"}`, http.StatusNotFound, "SESSION_NOT_FOUND"),
			sent("/resume", `{"sessionId":"interrupted","mode":"continue","message":"x"}`, http.StatusBadRequest, "RESUME_INVALID"),
		},
		"POST /retry": {
			sent("/retry", `{"sessionId":"failed","appendMessages":[`+lost+`]}`, http.StatusNotFound, "FILE_NOT_FOUND"),
			sent("/retry", `{"sessionId":"failed"}`, http.StatusOK, ""),
			sent("/retry", `{"sessionId":"unknown"}`, http.StatusNotFound, "SESSION_NOT_FOUND"),
			sent("/retry", `{"sessionId":"failed","mode":"branch"}`, http.StatusBadRequest, "BODY_INVALID"),
		},
		"GET /result": ofSession("/result",
			exchange{about: "a waiting session", path: "/result?sessionId=waiting&wait=60000", status: http.StatusOK},
			exchange{about: "a live run", path: "/result?sessionId=live&wait=1", status: http.StatusOK},
			exchange{about: "an unknown run", path: "/result?sessionId=ended&runId=unknown", status: http.StatusNotFound, code: "RUN_NOT_FOUND"},
			exchange{about: "a long wait", path: "/result?sessionId=ended&wait=60001", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
		),
		"GET /runs": pageOf("/runs"),
		"GET /calls": {
			{about: "all", path: "/calls", status: http.StatusOK},
			{about: "filters", path: "/calls?userId=u&agentType=demo&toolName=pay&kind=approval&limit=200", status: http.StatusOK},
			{about: "a larger page", path: "/calls?limit=201", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
			{about: "an unknown kind", path: "/calls?kind=x", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
			{about: "an invalid cursor", path: "/calls?cursor=x", status: http.StatusBadRequest, code: "CURSOR_INVALID"},
		},
	}
}

func sessionExchanges() map[string][]exchange {
	filters := "/sessions?userId=u&status=active&status=completed&roots=true&tags=t&metadata[k]=v&createdFrom=1&limit=200&exactTotal=true"
	return map[string][]exchange{
		"GET /sessions": {
			{about: "all", path: "/sessions", status: http.StatusOK},
			{about: "filters", path: filters, status: http.StatusOK},
			{about: "limit 201", path: "/sessions?limit=201", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
			{about: "an unknown status", path: "/sessions?status=x", status: http.StatusBadRequest, code: "STATUS_INVALID"},
			{about: "an invalid cursor", path: "/sessions?cursor=x", status: http.StatusBadRequest, code: "CURSOR_INVALID"},
			{about: "another word", path: "/sessions?roots=x", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
		},
		"GET /sessions/{id}": {
			{about: "an ended session", path: "/sessions/ended", status: http.StatusOK},
			{about: "a waiting session", path: "/sessions/waiting", status: http.StatusOK},
			{about: "an unknown session", path: "/sessions/unknown", status: http.StatusNotFound, code: "SESSION_NOT_FOUND"},
		},
		"PATCH /sessions/{id}": {
			sent("/sessions/ended", `{"title":"A title","tags":["a"],"metadata":{"k":"v"},"userId":"u","organizationId":"o"}`, http.StatusOK, ""),
			sent("/sessions/ended", `{"title":"A title","expectedVersion":1}`, http.StatusConflict, "VERSION_STALE"),
			sent("/sessions/ended", `{"tags":"a"}`, http.StatusBadRequest, "BODY_INVALID"),
			sent("/sessions/ended", `{"sessionId":"live"}`, http.StatusBadRequest, "BODY_INVALID"),
			sent("/sessions/unknown", `{"title":"A title"}`, http.StatusNotFound, "SESSION_NOT_FOUND"),
		},
		"PATCH /sessions/{id}/state": {
			sent("/sessions/ended/state", `{"ops":[{"key":"a","replace":null},{"key":"b","append":[1]},{"key":"c","delete":true}]}`, http.StatusOK, ""),
			sent("/sessions/ended/state", `{"ops":[{"key":"a","replace":1}],"expectedVersion":1}`, http.StatusConflict, "VERSION_STALE"),
			sent("/sessions/ended/state", `{"ops":[{"key":"a","append":1}]}`, http.StatusBadRequest, "STATE_INVALID"),
			sent("/sessions/ended/state", `{"ops":[{"key":"a","delete":false}]}`, http.StatusBadRequest, "STATE_INVALID"),
			sent("/sessions/ended/state", `{"ops":[{"key":"a"}]}`, http.StatusBadRequest, "STATE_INVALID"),
			sent("/sessions/ended/state", `{"ops":[]}`, http.StatusBadRequest, "STATE_INVALID"),
			sent("/sessions/ended/state", `{"ops":[{"key":"a","replace":1,"delete":true}]}`, http.StatusBadRequest, "BODY_INVALID"),
			sent("/sessions/ended/state", `{"ops":[{"key":"a","replace":null,"append":null}]}`, http.StatusBadRequest, "BODY_INVALID"),
			sent("/sessions/unknown/state", `{"ops":[{"key":"a","replace":1}]}`, http.StatusNotFound, "SESSION_NOT_FOUND"),
		},
		"POST /sessions/{id}/context": {
			sent("/sessions/ended/context", `{"rows":[{"kind":"notice","text":"x"}],"requestKey":"k"}`, http.StatusOK, ""),
			sent("/sessions/ended/context", `{"rows":[{"kind":"notice","text":"x"},{"kind":"notice","text":"y"}],"requestKey":"k"}`, http.StatusConflict, "MESSAGE_EXISTS"),
			sent("/sessions/ended/context", `{"rows":[{"kind":"notice"}]}`, http.StatusBadRequest, "CONTEXT_INVALID"),
			sent("/sessions/unknown/context", `{"rows":[{"kind":"notice","text":"x"}]}`, http.StatusNotFound, "SESSION_NOT_FOUND"),
		},
		"PATCH /sessions/{id}/status": {
			sent("/sessions/ended/status", `{"status":"paused","expected":["active"]}`, http.StatusOK, ""),
			sent("/sessions/ended/status", `{"status":"completed","expected":["completed","failed"]}`, http.StatusOK, ""),
			sent("/sessions/ended/status", `{"status":"active"}`, http.StatusBadRequest, "STATUS_INVALID"),
			sent("/sessions/ended/status", `{"status":"paused","expected":["x"]}`, http.StatusBadRequest, "STATUS_INVALID"),
			sent("/sessions/ended/status", `{"status":"failed"}`, http.StatusBadRequest, "FAILURE_MISSING"),
			sent("/sessions/unknown/status", `{"status":"paused"}`, http.StatusNotFound, "SESSION_NOT_FOUND"),
		},
		"GET /sessions/{id}/store": {
			{about: "a page", path: "/sessions/ended/store?prefix=a&after=a/1&limit=2&keysOnly=true", status: http.StatusOK},
			{about: "named keys", path: "/sessions/ended/store?keys=a&keys=b", status: http.StatusOK},
			{about: "an invalid key", path: "/sessions/ended/store?keys=" + strings.Repeat("k", 513), status: http.StatusBadRequest, code: "STORE_KEY_INVALID"},
			{about: "an unknown session", path: "/sessions/unknown/store", status: http.StatusNotFound, code: "SESSION_NOT_FOUND"},
		},
		"DELETE /sessions/{id}/store": {
			{about: "keys", path: "/sessions/ended/store?keys=a&keys=b", status: http.StatusOK},
			{about: "no keys", path: "/sessions/ended/store", status: http.StatusBadRequest, code: "STORE_KEY_INVALID"},
			{about: "a key twice", path: "/sessions/ended/store?keys=a&keys=a", status: http.StatusBadRequest, code: "STORE_WRITES_INVALID"},
			{about: "an unknown session", path: "/sessions/unknown/store?keys=a", status: http.StatusNotFound, code: "SESSION_NOT_FOUND"},
		},
		"DELETE /sessions/{id}": {
			{about: "a session", path: "/sessions/doomed", status: http.StatusOK},
			{about: "a repetition", path: "/sessions/doomed", status: http.StatusNotFound, code: "SESSION_NOT_FOUND"},
		},
	}
}

func checkpointExchanges(checkpoint string) map[string][]exchange {
	point := func(session, more string) string {
		return `{"sessionId":"` + session + `","checkpointId":"` + checkpoint + `"` + more + `}`
	}
	return map[string][]exchange{
		"GET /checkpoints": pageOf("/checkpoints"),
		"POST /branch": {
			sent("/branch", point("ended", `,"newSessionId":"a branch"`), http.StatusOK, ""),
			sent("/branch", point("ended", `,"newSessionId":"a branch"`), http.StatusConflict, "SESSION_EXISTS"),
			sent("/branch", `{"sessionId":"ended","checkpointId":"unknown"}`, http.StatusNotFound, "CHECKPOINT_NOT_FOUND"),
		},
		"POST /rewind": {
			sent("/rewind", point("ended", ""), http.StatusOK, ""),
			sent("/rewind", point("unknown", ""), http.StatusNotFound, "SESSION_NOT_FOUND"),
			sent("/rewind", point("live", ""), http.StatusConflict, "SESSION_BUSY"),
		},
	}
}

func usageExchanges() map[string][]exchange {
	return map[string][]exchange{
		"GET /usage": ofSession("/usage",
			exchange{about: "a rollup", path: "/usage?sessionId=ended&mode=rollup", status: http.StatusOK},
			exchange{about: "entries", path: "/usage?sessionId=ended&mode=entries&kinds=tokens&limit=200", status: http.StatusOK},
			exchange{about: "an unknown mode", path: "/usage?sessionId=ended&mode=x", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
		),
		"GET /usage/query": {
			{about: "all", path: "/usage/query", status: http.StatusOK},
			{about: "filters", path: "/usage/query?sessionIds=ended&kinds=tokens&kinds=tool&models=m&recordedFrom=1&bucketMs=3600000", status: http.StatusOK},
			{about: "an unknown kind", path: "/usage/query?kinds=x", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
		},
	}
}

func TestAConversationIsManagedOverPlainHTTP(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	ask := func(method, path, body, want string) {
		t.Helper()
		if got := text(t, h.request(t, method, path, body)); !strings.Contains(got, want) {
			t.Errorf("%s %s: got %s, want %s", method, path, got, want)
		}
	}
	start := `{"sessionId":"s1","message":"1 + 1?","userId":"ann","metadata":{"case":"7"},"tags":["vip"],"state":{"n":9007199254740993},"requestKey":"k1"}`
	ask(http.MethodPost, "/start", start, `"sessionId":"s1","runId":"run_1","streamId":"s1"`)
	ask(http.MethodPost, "/start", start, `"repeated":true`)
	ask(http.MethodGet, "/result?sessionId=s1", "", `"status":"running"`)
	playAnswer(h.AwaitRun(t, "default", "s1", nil))
	ask(http.MethodGet, "/result?sessionId=s1&wait=60000", "", `"status":"completed"`)
	ask(http.MethodGet, "/sessions/s1", "", `"customState":{"n":9007199254740993}`)
	ask(http.MethodPatch, "/sessions/s1", `{"title":"Sums"}`, `"version":`)
	for filter, want := range map[string]string{
		"userId=ann&metadata[case]=7&tags=vip": `"title":"Sums"`, "userId=bob": `"sessions":[]`, "metadata[case]=8": `"sessions":[]`,
		"status=completed": `"total":1`, "status=failed": `"total":0`, "": `"createdAt":1`,
	} {
		ask(http.MethodGet, "/sessions?"+filter, "", want)
	}
	h.begin(t, "s2", "hi", nil)
	page := text(t, h.request(t, http.MethodGet, "/sessions?limit=1", ""))
	_, rest, _ := strings.Cut(page, `"nextCursor":"`)
	cursor, _, _ := strings.Cut(rest, `"`)
	if next := text(t, h.request(t, http.MethodGet, "/sessions?cursor="+url.QueryEscape(cursor), "")); !strings.Contains(next, `"sessionId":"s1"`) || strings.Contains(next, "total") {
		t.Errorf("the second page: got %s, want s1 and no total", next)
	}
	ask(http.MethodDelete, "/sessions/s2", "", `{"deleted":1,"removed":{"sessions":1,"messages":1,"runs":1,"checkpoints":0,`)
	ask(http.MethodDelete, "/sessions/s1", "", `{"deleted":1,"removed":{"sessions":1,"messages":4,"runs":1,"checkpoints":2,`)
	ask(http.MethodGet, "/sessions", "", `"sessions":[]`)
}

func TestABrokenRuleNamesTheFieldOfTheJSON(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for body, want := range map[string]string{
		`{"message":"hi","timeoutMs":-1}`:            `"detail":"timeoutMs must be 1 to 2592000000 milliseconds, or 0 for no limit","retryable":false,"field":"timeoutMs"`,
		`{"messages":[{"text":"a","id":"a\u0001"}]}`: `"field":"messages[0].id"`,
	} {
		if got := text(t, h.request(t, http.MethodPost, "/start", body)); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}

func TestASessionWithAnyIDIsManaged(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, id := range []string{"a/b ☃", "/", "%2F", "a?b#c&d", "日本語", strings.Repeat("s", 256)} {
		start := h.request(t, http.MethodPost, "/start", `{"message":"hi","sessionId":`+quote(id)+`}`)
		if got := text(t, start); start.StatusCode != http.StatusOK {
			t.Fatalf("%q: got %s", id, got)
		}
		path := "/sessions/" + url.PathEscape(id)
		for _, request := range [][3]string{
			{http.MethodGet, path, ""}, {http.MethodPatch, path, `{"title":"T"}`}, {http.MethodPatch, path + "/state", `{"ops":[{"key":"k","replace":1}]}`},
			{http.MethodPatch, path + "/status", `{"status":"paused"}`}, {http.MethodGet, "/result?sessionId=" + url.QueryEscape(id), ""}, {http.MethodDelete, path, ""},
		} {
			if answer := h.request(t, request[0], request[1], request[2]); answer.StatusCode != http.StatusOK {
				t.Errorf("%s %s: got %d %s", request[0], request[1], answer.StatusCode, text(t, answer))
			}
		}
	}
	for path, code := range map[string]string{
		"/sessions/" + strings.Repeat("s", 257): "ID_INVALID", "/sessions/a%00b": "ID_INVALID", "/sessions/%ff": "ID_INVALID", "/runs?sessionId=%ff": "ID_INVALID",
		"/sessions?tags=%ff": "PARAMETER_INVALID", "/sessions?metadata[a]=%ff": "PARAMETER_INVALID", "/sessions?metadata[%ff]=a": "PARAMETER_INVALID",
	} {
		wantFault(t, h.request(t, http.MethodGet, path, ""), http.StatusBadRequest, code)
	}
	wantFault(t, h.request(t, http.MethodPost, "/start", "{\"message\":\"hi\",\"state\":{\"a\":\"\xff\"}}"), http.StatusBadRequest, "BODY_INVALID")
}

func TestTheCallsOfAllSessionsAreListed(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.suspend(t, "s1", approvalCall("c1"))
	h.suspend(t, "s2", clientCall("c2"))
	first := text(t, h.request(t, http.MethodGet, "/calls?limit=1", ""))
	if !strings.Contains(first, `"toolCallId":"c1"`) || strings.Contains(first, "c2") {
		t.Errorf("got %s, want c1", first)
	}
	if got := text(t, h.request(t, http.MethodGet, "/calls?kind=client_tool", "")); !strings.Contains(got, `"sessionId":"s2"`) || strings.Contains(got, "c1") {
		t.Errorf("got %s, want c2", got)
	}
}

func TestAQueryHasOnlyOneOfTwoFamilies(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	wantFault(t, h.request(t, http.MethodGet, "/sessions?roots=true&parentSessionId=s1", ""), http.StatusBadRequest, "PARAMETER_INVALID")
}

func TestNullLeavesAFieldUnset(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	body := `{"sessionId":"s1","message":"hi","state":null,"tags":null,"metadata":null,"timeoutMs":null}`
	if got := h.request(t, http.MethodPost, "/start", body); got.StatusCode != http.StatusOK {
		t.Errorf("got %s", text(t, got))
	}
}

func TestAnUnknownParameterIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for _, path := range []string{"/sessions?statuses=active", "/sessions?tag=a", "/sessions?meta[a]=b", "/calls?sessionId=s1", "/sessions/s1?x=1", "/usage?sessionId=s1&kind=tokens", "/usage/query?from=1"} {
		wantFault(t, h.request(t, http.MethodGet, path, ""), http.StatusBadRequest, "PARAMETER_INVALID")
	}
	wantFault(t, h.request(t, http.MethodPost, "/start?sessionId=s1", `{"message":"hi"}`), http.StatusBadRequest, "PARAMETER_INVALID")
	playAnswer(h.begin(t, "s1", "hi", nil))
	if got := h.request(t, http.MethodGet, "/usage?sessionId=s1&mode=rollup&limit=1", ""); got.StatusCode != http.StatusOK {
		t.Errorf("a parameter of another mode: got %s", text(t, got))
	}
}

func TestAResultTellsWhatARunWaitsFor(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.suspend(t, "s1", approvalCall("c1"))
	got := text(t, h.request(t, http.MethodGet, "/result?sessionId=s1&wait=60000", ""))
	for _, want := range []string{`"status":"suspended_client_tool"`, `"done":true`, `"pendingCalls":[{"toolCallId":"c1","toolName":"pay"`, `"approvalId":"approval of c1"`} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAResultOfAFailedRunHasItsError(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.begin(t, "s1", "hi", nil).Fail("The model is away.", "provider_failed")
	got := text(t, h.request(t, http.MethodGet, "/result?sessionId=s1", ""))
	if want := `"failure":{"error":"The model is away.","code":"provider_failed"`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAResultThatIsAwaitedCountsAsAStream(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.begin(t, "s1", "hi", nil)
	answered := make(chan *reply, 1)
	go func() { answered <- h.request(t, http.MethodGet, "/result?sessionId=s1&wait=60000", "") }()
	waitFor(t, "the request waits", func() bool { return h.service.OpenStreams() == 1 })
	go func() { _ = h.stop() }()
	wantFault(t, <-answered, http.StatusServiceUnavailable, "GATEWAY_STOPPING")
}

func TestARefusedBodyNamesThePlace(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for body, want := range map[string]string{
		`{"message":1}`:   "message has to be a string",
		`{"messages":{}}`: "messages has to be an array",
		`{"messages":[{"text":"a"},{"parts":[1]}]}`: "messages[1].parts[0] has to be an object",
		`{"messages":[{"txt":"a"}]}`:                `no key \"messages[0].txt\" here; the keys are role, text, hidden, id, parts`,
		`{"metadata":{"a":1}}`:                      "metadata.a has to be a string",
		`{"timeoutMs":1.5}`:                         "timeoutMs has to be an integer",
		`{"tags":[null]}`:                           "tags[0] has to be a string",
		`{"onBusy":"never"}`:                        "onBusy has to be one of reject, enqueue, interrupt, rollback",
		`[]`:                                        "the body has to be an object",
		`null`:                                      "the body has to be an object",
		`{"message":"a","message":"b"}`:             `the key \"message\" occurs twice`,
		`{"metadata":{"a":"1","a":"2"}}`:            `the key \"metadata.a\" occurs twice`,
		`{"messages":[{"parts":[{"text":"a","file":{"url":"https://example.com/a"}}]}]}`: "give only one of messages[0].parts[0].text and messages[0].parts[0].file",
	} {
		answer := h.request(t, http.MethodPost, "/start", body)
		got := fmt.Sprintf("%d %s", answer.StatusCode, text(t, answer))
		if !strings.HasPrefix(got, "400") || !strings.Contains(got, want) || !strings.Contains(got, "BODY_INVALID") {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}
