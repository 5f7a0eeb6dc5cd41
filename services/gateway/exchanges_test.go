package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

// exchanges returns requests for every route. Their sessions: ended has an answer, waiting waits for
// the calls c1 and a1, and live runs until the test ends it.
func exchanges(t *testing.T, h *fixture) map[string][]exchange {
	t.Helper()
	ended := h.begin(t, "ended", "hi", nil)
	playAnswer(ended)
	h.suspend(t, "waiting", clientCall("c1"), approvalCall("a1"))
	h.begin(t, "live", "hi", nil)
	rows := map[string][]exchange{
		"GET /healthz":      {{about: "health", path: "/healthz", status: http.StatusOK}},
		"GET /readyz":       {{about: "readiness", path: "/readyz", status: http.StatusOK}},
		"GET /openapi.json": {{about: "the document", path: "/openapi.json", status: http.StatusOK}},
		"GET /agents":       {{about: "agents", path: "/agents", status: http.StatusOK}},
	}
	for name, list := range map[string]map[string][]exchange{
		"chat": chatExchanges(t, h), "views": viewExchanges(), "stops": stopExchanges(), "streams": streamExchanges(), "instances": instanceExchanges(),
		"files": fileExchanges(t, h), "flat": flatExchanges(t, h, ended.Checkpoint()), "agents": agentExchanges(t, h),
		"callbacks": callbackExchanges(t, h),
	} {
		for route, exchanges := range list {
			if rows[route] != nil {
				t.Fatalf("%s: %s has rows already", name, route)
			}
			rows[route] = exchanges
		}
	}
	return rows
}

func viewExchanges() map[string][]exchange {
	rows := map[string][]exchange{}
	for _, path := range []string{"/messages", "/snapshot", "/history", "/status"} {
		rows["GET "+path] = []exchange{
			{about: "an ended session", path: path + "?sessionId=ended", status: http.StatusOK},
			{about: "a waiting session", path: path + "?sessionId=waiting", status: http.StatusOK},
			{about: "no session", path: path, status: http.StatusBadRequest, code: "ID_INVALID"},
			{about: "an unknown session", path: path + "?sessionId=unknown", status: http.StatusNotFound, code: "SESSION_NOT_FOUND"},
		}
	}
	rows["GET /messages"][3] = exchange{about: "an unknown session", path: "/messages?sessionId=unknown", status: http.StatusOK}
	add := func(path, query string, limit string) {
		rows["GET "+path] = append(rows["GET "+path],
			exchange{about: "all parameters", path: path + "?sessionId=ended&limit=" + limit + query, status: http.StatusOK},
			exchange{about: "limit 0", path: path + "?sessionId=ended&limit=0", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
			exchange{about: "a higher limit", path: path + "?sessionId=ended&limit=" + limit + "1", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
			exchange{about: "another limit", path: path + "?sessionId=ended&limit=x", status: http.StatusBadRequest, code: "PARAMETER_INVALID"})
	}
	add("/messages", "&offset=1&includeReasoning=false&includeToolResults=false", "200")
	add("/history", "&fromSequence=1&runId=run_1&fromStep=1", "1000")
	return rows
}

func fileExchanges(t *testing.T, h *fixture) map[string][]exchange {
	t.Helper()
	id := h.putFile(t, "default", "image/png", photo(100))
	kind := []string{"Content-Type", "application/octet-stream"}
	rows := map[string][]exchange{
		"POST /files": {
			{about: "a file", path: "/files", body: "bytes", headers: kind, status: http.StatusOK},
			{about: "an empty file", path: "/files", headers: kind, status: http.StatusBadRequest, code: "FILE_INVALID"},
			{about: "a large file", path: "/files", body: strings.Repeat("x", 20<<20+1), headers: kind, status: http.StatusRequestEntityTooLarge, code: "FILE_TOO_LARGE"},
		},
		"GET /files/{id}": {
			{about: "a file", path: "/files/" + id, status: http.StatusOK},
			{about: "a range", path: "/files/" + id, headers: []string{"Range", "bytes=1-2"}, status: http.StatusPartialContent},
			{about: "an unknown file", path: "/files/file_unknown", status: http.StatusNotFound, code: "FILE_NOT_FOUND"},
		},
	}
	return rows
}

func instanceExchanges() map[string][]exchange {
	rows := func(path string) []exchange {
		return []exchange{
			{about: "an instance", path: "/agents/demo/room" + path, status: http.StatusOK},
			{about: "an unknown agent", path: "/agents/nobody/room" + path, status: http.StatusNotFound, code: "AGENT_NOT_FOUND"},
			{about: "a long name", path: "/agents/demo/" + strings.Repeat("x", 300) + path, status: http.StatusBadRequest, code: "ID_INVALID"},
		}
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
	const call = "/agents/demo/room/call/"
	return map[string][]exchange{
		"POST /agents/{agent}/{name}/call/{method}": {
			{about: "a method", path: call + "add", body: `{"args":[1,2]}`, status: http.StatusOK},
			{about: "a method without arguments", path: call + "nothing", status: http.StatusOK},
			{about: "a method with values", path: call + "countdown", body: `{}`, status: http.StatusOK},
			{about: "an unknown method", path: call + "missing", status: http.StatusNotFound, code: "METHOD_NOT_FOUND"},
			{about: "a tool", path: call + "lookup", status: http.StatusForbidden, code: "METHOD_NOT_CALLABLE"},
			{about: "a method that fails", path: call + "fail", status: http.StatusConflict, code: "METHOD_FAILED"},
			{about: "a large result", path: call + "large", status: http.StatusRequestEntityTooLarge, code: "RESULT_TOO_LARGE"},
			{about: "arguments that are no list", path: call + "add", body: `{"args":7}`, status: http.StatusBadRequest, code: "BODY_INVALID"},
			{about: "an unknown agent", path: "/agents/nobody/room/call/add", status: http.StatusNotFound, code: "AGENT_NOT_FOUND"},
		},
		"GET /agents/{agent}/{name}/get-messages": rows("/get-messages"),
		"GET /agents/{agent}/{name}":              append(rows(""), exchange{about: "a socket", path: "/agents/demo/room?readonly=true", headers: upgrade, status: http.StatusSwitchingProtocols}),
	}
}

func stopExchanges() map[string][]exchange {
	rows := map[string][]exchange{}
	for route, path := range map[string]string{
		"/chat/{id}/interrupt": "/chat/live/interrupt?", "/chat/{id}/abort": "/chat/live/abort?",
		"/interrupt": "/interrupt?sessionId=live&", "/abort": "/abort?sessionId=live&",
	} {
		rows["POST "+route] = []exchange{
			{about: "an ended session", path: strings.Replace(path, "live", "ended", 1) + "wait=60000", status: http.StatusOK},
			{about: "without a body", path: path, status: http.StatusAccepted},
			{about: "a run", path: path, body: `{"reason":"enough","runId":"run_3"}`, status: http.StatusAccepted},
			{about: "a wait that is too short", path: path + "wait=1", status: http.StatusGatewayTimeout, code: "STOP_NOT_OBSERVED"},
			{about: "a wait that is too long", path: path + "wait=60001", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
			{about: "an unknown run", path: path, body: `{"runId":"run_unknown"}`, status: http.StatusNotFound, code: "RUN_NOT_FOUND"},
			{about: "no JSON", path: path, body: `{`, status: http.StatusBadRequest, code: "BODY_INVALID"},
			{about: "a large body", path: path, body: `{"reason":"` + strings.Repeat("x", 64<<10) + `"}`, status: http.StatusRequestEntityTooLarge, code: "BODY_TOO_LARGE"},
			{about: "an unknown session", path: strings.Replace(path, "live", "unknown", 1), status: http.StatusNotFound, code: "SESSION_NOT_FOUND"},
			{about: "two sessions", path: path, body: `{"sessionId":"ended"}`, status: http.StatusBadRequest, code: "BODY_INVALID"},
		}
		if !strings.HasPrefix(route, "/chat") {
			rows["POST "+route] = append(rows["POST "+route],
				exchange{about: "the session in the body", path: route, body: `{"sessionId":"ended"}`, status: http.StatusAccepted},
				exchange{about: "no session", path: route, status: http.StatusBadRequest, code: "ID_INVALID"})
		}
	}
	for route, prefix := range map[string]string{"/chat/{id}/submit-tool-result": `{`, "/submit-tool-result": `{"sessionId":"waiting",`} {
		path := strings.Replace(route, "{id}", "waiting", 1)
		rows["POST "+route] = []exchange{
			{about: "a result", path: path, body: prefix + `"toolCallId":"c1","result":{"city":"Bern"}}`, status: http.StatusOK},
			{about: "a repetition", path: path, body: prefix + `"toolCallId":"c1","result":{"city":"Bern"}}`, status: http.StatusOK},
			{about: "another kind", path: path, body: prefix + `"toolCallId":"a1","result":1}`, status: http.StatusBadRequest, code: "KIND_MISMATCH"},
			{about: "an unknown call", path: path, body: prefix + `"toolCallId":"c9","result":1}`, status: http.StatusNotFound, code: "UNKNOWN_TOOL_CALL"},
			{about: "no answer", path: path, body: prefix + `"toolCallId":"c1"}`, status: http.StatusBadRequest, code: "ANSWER_INVALID"},
			{about: "no call", path: path, body: prefix + `"result":1}`, status: http.StatusBadRequest, code: "ID_INVALID"},
			{about: "no JSON", path: path, body: `[]`, status: http.StatusBadRequest, code: "BODY_INVALID"},
		}
	}
	return rows
}

func streamExchanges() map[string][]exchange {
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	return map[string][]exchange{
		"GET /sse": {
			{about: "an ended session", path: "/sse?sessionId=ended&fromSequence=1&family=false", status: http.StatusOK},
			{about: "one run", path: "/sse?sessionId=ended&runId=run_1", headers: []string{"Last-Event-ID", "1"}, status: http.StatusOK},
			{about: "no session", path: "/sse", status: http.StatusBadRequest, code: "ID_INVALID"},
			{about: "a cursor below 0", path: "/sse?sessionId=ended&fromSequence=-1", status: http.StatusBadRequest, code: "CURSOR_INVALID"},
			{about: "another word", path: "/sse?sessionId=ended&family=x", status: http.StatusBadRequest, code: "PARAMETER_INVALID"},
			{about: "an unknown session", path: "/sse?sessionId=unknown", status: http.StatusNotFound, code: "SESSION_NOT_FOUND"},
		},
		"GET /ws": {
			{about: "a socket", path: "/ws?sessionId=ended", headers: upgrade, status: http.StatusSwitchingProtocols},
			{about: "no handshake", path: "/ws?sessionId=ended", status: http.StatusUpgradeRequired, code: "UPGRADE_REQUIRED"},
			{about: "a cursor below 0", path: "/ws?sessionId=ended&fromSequence=-1", headers: upgrade, status: http.StatusBadRequest, code: "CURSOR_INVALID"},
			{about: "an unknown session", path: "/ws?sessionId=unknown", headers: upgrade, status: http.StatusNotFound, code: "SESSION_NOT_FOUND"},
		},
		"GET /chat/ws": {
			{about: "a socket", path: "/chat/ws?aiSdk=7", headers: upgrade, status: http.StatusSwitchingProtocols},
			{about: "no handshake", path: "/chat/ws", status: http.StatusUpgradeRequired, code: "UPGRADE_REQUIRED"},
			{about: "an old package", path: "/chat/ws?aiSdk=4", headers: upgrade, status: http.StatusBadRequest, code: "AI_SDK_INVALID"},
		},
	}
}

func chatExchanges(t *testing.T, h *fixture) map[string][]exchange {
	play := func(session string) func() {
		return func() { playAnswer(h.AwaitRun(t, "default", session, nil)) }
	}
	return map[string][]exchange{
		"POST /chat": {
			{about: "a message", path: "/chat?aiSdk=7", body: chatBody("new", "hi"), status: http.StatusOK, during: play("new")},
			{about: "a text", path: "/chat", body: `{"id":"text","message":"hi","agentType":"demo","onBusy":"reject"}`, status: http.StatusOK, during: play("text")},
			{about: "an old package", path: "/chat?aiSdk=4", body: chatBody("new", "hi"), status: http.StatusBadRequest, code: "AI_SDK_INVALID"},
			{about: "no session", path: "/chat", body: chatBody("", "hi"), status: http.StatusBadRequest, code: "ID_INVALID"},
			{about: "no message", path: "/chat", body: `{"id":"new"}`, status: http.StatusBadRequest, code: "MESSAGE_INVALID"},
			{about: "an unknown policy", path: "/chat", body: `{"id":"new","message":"hi","onBusy":"x"}`, status: http.StatusBadRequest, code: "ON_BUSY_INVALID"},
			{about: "an unknown agent", path: "/chat", body: `{"id":"new 2","message":"hi","agentType":"x"}`, status: http.StatusNotFound, code: "AGENT_NOT_FOUND"},
			{about: "another agent", path: "/chat", body: `{"id":"ended","message":"hi","agentType":"nobody"}`, status: http.StatusConflict, code: "AGENT_MISMATCH"},
			{about: "a large body", path: "/chat", body: strings.Repeat(" ", 8<<20+1), status: http.StatusRequestEntityTooLarge, code: "BODY_TOO_LARGE"},
		},
		"GET /chat/{id}/stream": {
			{about: "an ended session", path: "/chat/ended/stream?aiSdk=7&runId=run_1", status: http.StatusOK},
			{about: "an unknown session", path: "/chat/unknown/stream", status: http.StatusNoContent},
			{about: "an invalid cursor", path: "/chat/ended/stream?fromSequence=-1", status: http.StatusBadRequest, code: "CURSOR_INVALID"},
		},
	}
}
