package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// largeBody is above the gateway's limit on bodies.
const largeBody = 9 << 20

func TestBadInput(t *testing.T) {
	t.Parallel()
	model := newTeller(t)
	s := harness.Start(t, harness.Options{Agents: model.agents(), StateEnv: []string{harness.PatientState}})
	long := strings.Repeat("x", 300)

	refused := map[string]struct {
		method, path string
		body         []byte
		code         int
		reason       string
	}{
		"malformed JSON":                   {"POST", "/chat", []byte(`{"id": "a", `), 400, "BODY_INVALID"},
		"JSON of another shape":            {"POST", "/chat", []byte(`["a"]`), 400, "BODY_INVALID"},
		"no body":                          {"POST", "/chat", []byte{}, 400, "BODY_INVALID"},
		"an unknown agent":                 {"POST", "/chat", harness.ChatBody("unknown", "nobody", "hello"), 404, "AGENT_NOT_FOUND"},
		"no agent where there are two":     {"POST", "/chat", harness.ChatBody("none", "", "hello"), 400, "AGENT_REQUIRED"},
		"an empty message":                 {"POST", "/chat", harness.ChatBody("empty", "talker", ""), 400, "MESSAGE_INVALID"},
		"a blank message":                  {"POST", "/chat", harness.ChatBody("blank", "talker", " \n\t"), 400, "MESSAGE_INVALID"},
		"no messages":                      {"POST", "/chat", []byte(`{"id":"a","agentType":"talker","messages":[]}`), 400, "MESSAGE_INVALID"},
		"a session id of 300 bytes":        {"POST", "/chat", harness.ChatBody(long, "talker", "hello"), 400, "ID_INVALID"},
		"an empty session id":              {"POST", "/chat", harness.ChatBody("", "talker", "hello"), 400, "ID_INVALID"},
		"a control character in an id":     {"POST", "/chat", harness.ChatBody("a\x00b", "talker", "hello"), 400, "ID_INVALID"},
		"a body over the limit":            {"POST", "/chat", harness.ChatBody("large", "talker", strings.Repeat("x", largeBody)), 413, "BODY_TOO_LARGE"},
		"a message over the limit":         {"POST", "/chat", harness.ChatBody("large", "talker", strings.Repeat("x", 2<<20)), 413, "MESSAGE_TOO_LARGE"},
		"messages of a long id":            {"GET", "/messages?sessionId=" + long, nil, 400, "ID_INVALID"},
		"a stream of a long id":            {"GET", "/chat/" + long + "/stream", nil, 400, "ID_INVALID"},
		"an id that is not UTF-8":          {"GET", "/chat/%ff/stream", nil, 400, "ID_INVALID"},
		"the status of no session":         {"GET", "/status", nil, 400, "ID_INVALID"},
		"the status of an unknown one":     {"GET", "/status?sessionId=nobody", nil, 404, "SESSION_NOT_FOUND"},
		"the events of an unknown one":     {"GET", "/sse?sessionId=nobody", nil, 404, "SESSION_NOT_FOUND"},
		"a cursor that is no number":       {"GET", "/sse?sessionId=nobody&fromSequence=x", nil, 400, "CURSOR_INVALID"},
		"a cursor below nothing":           {"GET", "/sse?sessionId=nobody&fromSequence=-1", nil, 400, "CURSOR_INVALID"},
		"a page of a size that is too big": {"GET", "/messages?sessionId=nobody&limit=1000000", nil, 400, "PARAMETER_INVALID"},
		"an unknown path":                  {"GET", "/nothing/here", nil, 404, "ROUTE_NOT_FOUND"},
		"another method":                   {"DELETE", "/chat", nil, 405, "METHOD_NOT_ALLOWED"},
	}
	for name, request := range refused {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			checkRefused(t, s.Do(t, request.method, request.path, request.body), request.code, request.reason)
		})
	}

	for i, session := range []string{
		"with.dots..and...more", "*", ">", "a > b.*", "with spaces ", "a/b//c", "/", "..a", "%2F", "50% + 1 & 2 = ?#x",
		"日本語 🙂 é", "'; DROP TABLE sessions; --", `"quoted\`, strings.Repeat("x", 256), strings.Repeat("é", 128),
	} {
		t.Run("the session id "+session+" works", func(t *testing.T) {
			t.Parallel()
			checkSession(t, s.Client, model, session, fmt.Sprint("tell me a story, number ", i))
		})
	}

	t.Run("nobody is let in without a key", func(t *testing.T) {
		t.Parallel()
		c := harness.Client{URL: s.URL}
		for _, path := range []string{"/messages?sessionId=a", "/status?sessionId=a", "/sse?sessionId=a", "/chat/a/stream", "/agents"} {
			checkRefused(t, c.Do(t, http.MethodGet, path, nil), 401, "API_KEY_MISSING")
		}
		checkRefused(t, c.Do(t, http.MethodPost, "/chat", harness.ChatBody("a", "talker", "hello")), 401, "API_KEY_MISSING")
	})

	t.Run("nobody is let in with a wrong key", func(t *testing.T) {
		t.Parallel()
		c := harness.Client{URL: s.URL, Key: harness.Key + "x"}
		checkRefused(t, c.Do(t, http.MethodPost, "/chat", harness.ChatBody("a", "talker", "hello")), 401, "API_KEY_WRONG")
		checkRefused(t, c.Do(t, http.MethodGet, "/status?sessionId=a", nil), 401, "API_KEY_WRONG")
	})

	t.Run("a session of another tenant does not exist", func(t *testing.T) {
		t.Parallel()
		const session = "whose"
		s.Chat(t, session, "talker", "mine").ReadAll()
		other := s.Other()
		if messages := other.Messages(t, session); len(messages) > 0 {
			t.Errorf("another tenant reads %v, want nothing", messages)
		}
		for _, path := range []string{"/status", "/sse"} {
			checkRefused(t, other.Do(t, http.MethodGet, path+"?sessionId="+session, nil), 404, "SESSION_NOT_FOUND")
		}
		if a := other.Do(t, http.MethodGet, "/chat/"+session+"/stream", nil); a.Code != http.StatusNoContent {
			t.Errorf("GET /chat/%s/stream: got %d %s, want 204", session, a.Code, a.Body)
		}
		checkContent(t, "the other tenant's session of the same name", other.Chat(t, session, "talker", "recite").ReadAll(), textContent("You said: recite"))
		checkTranscript(t, s.Client, session, "user:", textContent("mine"), "assistant:", textContent("You said: mine"))
	})

	t.Run("a message while the last one is answered is refused", func(t *testing.T) {
		t.Parallel()
		const text = "tell me a story, and do not listen"
		asking := s.Chat(t, "busy", "teller", text)
		asking.UntilText(10)
		checkRefused(t, s.Do(t, http.MethodPost, "/chat", bytes.Replace(harness.ChatBody("busy", "teller", "and?"), []byte("{"), []byte(`{"onBusy":"reject",`), 1)), 409, "SESSION_BUSY")
		model.release(text)
		checkContent(t, "the answer", asking.ReadAll(), textContent(story()))
	})

	t.Run("a message for an unknown agent is refused", func(t *testing.T) {
		t.Parallel()
		s.Chat(t, "mine", "talker", "hello").ReadAll()
		checkRefused(t, s.Do(t, http.MethodPost, "/chat", harness.ChatBody("mine", "nobody", "hello")), 409, "AGENT_MISMATCH")
	})

	t.Run("a model's failure is told without its details", func(t *testing.T) {
		t.Parallel()
		asking := s.Chat(t, "fails", "talker", "fail")
		if err := asking.Rest(); err != nil {
			t.Fatalf("the stream broke: %v", err)
		}
		if asking.ErrorText == "" || !asking.Done || asking.Holds("secret") {
			t.Errorf("got the error %q and [DONE] %v, want a sentence without details\n%s", asking.ErrorText, asking.Done, asking.Dump())
		}
		s.WaitStatus(t, "fails", "failed")
		late := s.Native(t, "fails", 0)
		late.ReadAll()
		if late.End != "fail" || late.Holds("secret") {
			t.Errorf("the native stream ends with %s %s, want fail without details\n%s", late.End, late.EndData, late.Dump())
		}
		checkContent(t, "the next answer", s.Chat(t, "fails", "talker", "hello").ReadAll(), textContent("You said: hello"))
	})
}

// checkSession uses a session on every route. No other session has the text.
func checkSession(t *testing.T, c harness.Client, model *teller, session, text string) {
	t.Helper()
	asking := c.Chat(t, session, "teller", text)
	asking.UntilText(10)
	again := c.Attach(t, session)
	if again == nil {
		t.Fatal("there is nothing to attach to (204) while the session is answered")
	}
	model.release(text)
	checkContent(t, "who had asked", asking.ReadAll(), textContent(story()))
	checkContent(t, "who attached", again.ReadAll(), textContent(story()))
	c.WaitStatus(t, session, "completed")
	if got := c.Status(t, session); got.SessionID != session || got.StepCount != 1 || got.IsExecuting {
		t.Errorf("the status is %+v, want one step of %q, not executing", got, session)
	}
	checkTranscript(t, c, session, "user:", textContent(text), "assistant:", textContent(story()))
	late := c.Native(t, session, 0)
	late.ReadAll()
	checkNative(t, "the stream from its beginning", late, nativeContent(story())+"end\n")
	checkContent(t, "the second answer", c.Chat(t, session, "teller", "recite").ReadAll(), textContent("You said: "+text+", recite"))
}

// internals are words that no client may see.
var internals = []string{"rpc error", "pgx", "SQLSTATE", "nats", "jetstream", "goroutine", "127.0.0.1", ".go:", "holdfast-run"}

// checkRefused expects an error with a code, a sentence, and no internals.
func checkRefused(t *testing.T, a harness.Answer, code int, reason string) {
	t.Helper()
	var body struct{ Error, Code, Detail string }
	if err := json.Unmarshal([]byte(a.Body), &body); err != nil {
		t.Fatalf("got %d %q, want a JSON error: %v", a.Code, a.Body, err)
	}
	if a.Code != code || body.Code != reason || body.Error == "" {
		t.Errorf("got %d %s, want %d with the code %s and a sentence", a.Code, a.Body, code, reason)
	}
	for _, word := range internals {
		if strings.Contains(strings.ToLower(a.Body), strings.ToLower(word)) {
			t.Errorf("the error %s speaks of internals: %s", a.Body, word)
		}
	}
	if header := a.Header.Get("Content-Type"); !strings.HasPrefix(header, "application/json") {
		t.Errorf("the error's content type is %q, want application/json", header)
	}
}

// checkTranscript compares the conversation of GET /messages.
func checkTranscript(t *testing.T, c harness.Client, session string, want ...string) {
	t.Helper()
	text := ""
	for _, line := range want {
		if strings.HasSuffix(line, ":") {
			text += line + "\n"
			continue
		}
		text += "  " + line
	}
	if got := harness.Transcript(c.Messages(t, session)); got != text {
		t.Errorf("the conversation %s is\n%swant\n%s", url.QueryEscape(session), got, text)
	}
}
