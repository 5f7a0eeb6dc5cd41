package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Each key of the body has an effect, is refused, or is named in the response.
func TestNoKeyOfAChatRequestIsIgnoredInSilence(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	quoting := uiPart{"id": "u1", "role": "user", "parts": []any{textPart("hi"), uiPart{"type": "source-url", "url": "https://example.com"}}}
	for name, test := range map[string]struct {
		key   string
		value any
		want  string // the header
	}{
		"trigger":           {"trigger", "submit-message", ""},
		"agentType":         {"agentType", "demo", ""},
		"onBusy":            {"onBusy", "enqueue", ""},
		"messageId":         {"messageId", "u1", ""},
		"state":             {"state", map[string]any{"a": 1}, ""},
		"system":            {"system", "Be brief.", "system"},
		"tools":             {"tools", map[string]any{}, "tools"},
		"metadata":          {"metadata", map[string]any{}, "metadata"},
		"a strange name":    {"ü, é", 1, "%C3%BC%2C%20%C3%A9"},
		"a part of the app": {"messages", []any{quoting}, "source-url"},
	} {
		body := map[string]any{"id": "s-" + name, "messages": []any{userMessage("u1", "hi")}}
		body[test.key] = test.value
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		response := h.request(t, http.MethodPost, "/chat", string(text))
		if got := response.Header.Get("X-Holdfast-Ignored-Fields"); response.StatusCode != http.StatusOK || got != test.want {
			t.Errorf("%s: got %d, %q, want %q", name, response.StatusCode, got, test.want)
		}
	}
}

func TestTheStateOfAChatRequestBecomesThatOfANewSession(t *testing.T) {
	t.Parallel()
	h, keys := openWithRights(t, map[string]string{"page": "scopes: [chat]", "server": "scopes: [operate]"})
	body := func(session, message string) string {
		return toJSON(map[string]any{"id": session, "messages": []any{userMessage(message, "hi")}, "state": map[string]any{"a": 1}})
	}
	for _, tc := range []struct{ key, session, state, ignored string }{
		{"server", "s1", `{"a":1}`, ""},
		{"page", "s2", "{}", "state"}, // as over the sockets of instances, and without an error: pages have sent the key for nothing
	} {
		response := h.request(t, http.MethodPost, "/chat", body(tc.session, "u1"), "Authorization", keys[tc.key])
		if got := response.Header.Get("X-Holdfast-Ignored-Fields"); response.StatusCode != http.StatusOK || got != tc.ignored {
			t.Errorf("%s: got %d, %q", tc.key, response.StatusCode, got)
		}
		if got := h.State.Get("default", tc.session).GetSession().GetCustomState(); got != tc.state {
			t.Errorf("%s: got the state %s, want %s", tc.key, got, tc.state)
		}
	}
	known := h.request(t, http.MethodPost, "/chat", body("s1", "u2"), "Authorization", keys["server"])
	if got := known.Header.Get("X-Holdfast-Ignored-Fields"); got != "state" {
		t.Errorf("a known session: got %q", got)
	}
	refused := h.request(t, http.MethodPost, "/chat", `{"id":"s3","message":"hi","state":[]}`, "Authorization", keys["server"])
	if got := text(t, refused); refused.StatusCode != http.StatusBadRequest || !strings.Contains(got, "state") {
		t.Errorf("a list: got %d %s", refused.StatusCode, got)
	}
}

// A socket has no headers, so the first frame of an answer has what POST /chat has there.
func TestTheStartOfAnAnswerOnASocketNamesWhatHadNoEffect(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s := h.talk(t)
	s.say(toJSON(map[string]any{
		"type": "send", "requestId": "r1", "id": "s1", "messages": []any{userMessage("u1", "hi")}, "body": map[string]any{"system": "Be brief."},
	}))
	if got, want := s.until(`"type":"start"`), `{"type":"start","requestId":"r1","ignoredFields":["system"]}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheDataPartsOfAUserAreStored(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	parts := []any{
		uiPart{"type": "data-place", "id": "p1", "data": uiPart{"lat": 1.5}}, textPart("hi"), uiPart{"type": "data-none", "data": nil},
		uiPart{"type": "text", "text": " "}, uiPart{"type": "data-tag", "data": "<b>"}, textPart("there"), uiPart{"type": "data-end", "data": []any{}},
	}
	message := func(id string) uiPart { return uiPart{"id": id, "role": "user", "parts": parts} }
	for session, body := range map[string]string{
		"sent":     postOf("sent", message("u1")),
		"taken in": postOf("taken in", message("u1"), assistant("a1", textPart("Yes?")), userMessage("u2", "go on")),
	} {
		if response := h.request(t, http.MethodPost, "/chat", body); response.StatusCode != http.StatusOK || response.Header.Get("X-Holdfast-Ignored-Fields") != "" {
			t.Errorf("%s: got %d, %q", session, response.StatusCode, response.Header)
		}
		var page struct {
			Messages []struct{ Parts json.RawMessage }
		}
		decodeBody(t, h.request(t, http.MethodGet, "/messages?sessionId="+url.QueryEscape(session), ""), &page)
		want := `[{"type":"data-place","id":"p1","data":{"lat":1.5}},{"type":"text","text":"hi"},{"type":"data-none","data":null},` +
			`{"type":"data-tag","data":"<b>"},{"type":"text","text":"there"},{"type":"data-end","data":[]}]`
		if got := compact(t, page.Messages[0].Parts); got != want {
			t.Errorf("%s: got %s, want %s", session, got, want)
		}
	}
	for _, stored := range h.State.Starts() {
		for _, m := range stored.GetMessages() {
			for _, p := range m.GetParts() {
				if p.GetText() == nil {
					t.Errorf("a model sees %v", p)
				}
			}
		}
	}
	repeated := h.request(t, http.MethodPost, "/chat", postOf("sent", message("u1")))
	if repeated.StatusCode != http.StatusOK {
		t.Errorf("repeated: got %d %s", repeated.StatusCode, text(t, repeated))
	}
}

// compact writes JSON without spaces, its keys in their order, and without escapes.
func compact(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(out.String())
}

func TestTheDataPartsOfAMessageHaveALimit(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	const around = len(`[{"at":1,"type":"data-x","data":""}]`)
	for size, want := range map[int]int{64<<10 - around: http.StatusOK, 64<<10 - around + 1: http.StatusRequestEntityTooLarge} {
		data := uiPart{"type": "data-x", "data": strings.Repeat("x", size)}
		body := postOf(fmt.Sprint("s", size), uiPart{"id": "u1", "role": "user", "parts": []any{textPart("hi"), data}})
		if response := h.request(t, http.MethodPost, "/chat", body); response.StatusCode != want {
			t.Errorf("%d bytes: got %d %s, want %d", size, response.StatusCode, text(t, response), want)
		}
	}
	wrong := postOf("s1", uiPart{"id": "u1", "role": "user", "parts": []any{textPart("hi"), uiPart{"type": "data-x", "id": 1, "data": 1}}})
	wantFault(t, h.request(t, http.MethodPost, "/chat", wrong, "Accept", "application/json"), http.StatusBadRequest, "MESSAGE_INVALID")
}
