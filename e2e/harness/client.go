package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// callLimit bounds one call with its whole answer, streams included.
const callLimit = 90 * time.Second

// Client speaks HTTP with a gateway. Methods that take a T fail it when the
// gateway does not answer as it should.
type Client struct {
	URL string
	Key string // the API key; empty sends none
	// Traceparent is the W3C trace context of the requests; empty sends none.
	Traceparent string
}

// Answer is a whole HTTP answer.
type Answer struct {
	Code   int
	Header http.Header
	Body   string
}

// Do sends a request and reads the whole answer.
func (c Client) Do(t testing.TB, method, path string, body []byte) Answer {
	t.Helper()
	response, err := c.send(t, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: read the answer: %v; got %q", method, path, err, text)
	}
	return Answer{response.StatusCode, response.Header, string(text)}
}

func (c Client) send(t testing.TB, method, path string, body []byte) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
	if c.Traceparent != "" {
		r.Header.Set("Traceparent", c.Traceparent)
	}
	// A connection of its own: a server that was killed leaves none behind
	// that the next request would stumble over.
	r.Close = true
	return http.DefaultClient.Do(r)
}

// ChatBody is the request that the AI SDK's transport sends for a new turn.
func ChatBody(session, agent, text string) []byte {
	b, err := json.Marshal(map[string]any{
		"id":        session,
		"agentType": agent,
		"trigger":   "submit-message",
		"messages": []any{map[string]any{
			"id":    "user-" + strconv.FormatInt(time.Now().UnixNano(), 36),
			"role":  "user",
			"parts": []any{map[string]any{"type": "text", "text": text}},
		}},
	})
	if err != nil {
		panic(err) // strings and maps always marshal
	}
	return b
}

// Chat sends a new turn and returns its stream.
func (c Client) Chat(t testing.TB, session, agent, text string) *UIStream {
	t.Helper()
	s, code, body := c.uiStream(t, http.MethodPost, "/chat", ChatBody(session, agent, text))
	if s == nil {
		t.Fatalf("POST /chat for %q: got %d %s, want a stream", session, code, body)
	}
	return s
}

// Attach follows the answer of a session again; nil when the gateway says that
// there is nothing to follow (204).
func (c Client) Attach(t testing.TB, session string) *UIStream {
	t.Helper()
	path := "/chat/" + url.PathEscape(session) + "/stream"
	s, code, body := c.uiStream(t, http.MethodGet, path, nil)
	if s == nil && code != http.StatusNoContent {
		t.Fatalf("GET %s: got %d %s, want a stream or 204", path, code, body)
	}
	return s
}

func (c Client) uiStream(t testing.TB, method, path string, body []byte) (*UIStream, int, string) {
	t.Helper()
	response, err := c.send(t, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return nil, response.StatusCode, string(text)
	}
	if got, want := response.Header.Get("X-Vercel-Ai-Ui-Message-Stream"), "v1"; got != want {
		t.Errorf("%s %s: x-vercel-ai-ui-message-stream is %q, want %q", method, path, got, want)
	}
	if got := response.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("%s %s: content-type is %q, want text/event-stream", method, path, got)
	}
	return &UIStream{t: t, events: newEvents(response.Body)}, response.StatusCode, ""
}

// Native opens GET /sse behind the cursor.
func (c Client) Native(t testing.TB, session string, from int64) *NativeStream {
	t.Helper()
	path := "/sse?sessionId=" + url.QueryEscape(session) + "&fromSequence=" + strconv.FormatInt(from, 10)
	response, err := c.send(t, http.MethodGet, path, nil)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("GET %s: got %d %s, want a stream", path, response.StatusCode, text)
	}
	return &NativeStream{t: t, events: newEvents(response.Body)}
}

// Messages returns the whole conversation as GET /messages tells it.
func (c Client) Messages(t testing.TB, session string) []UIMessage {
	t.Helper()
	var all []UIMessage
	for {
		path := "/messages?limit=50&offset=" + strconv.Itoa(len(all)) + "&sessionId=" + url.QueryEscape(session)
		var page struct {
			Messages []UIMessage `json:"messages"`
			Total    int         `json:"total"`
			HasMore  bool        `json:"hasMore"`
		}
		c.get(t, path, &page)
		all = append(all, page.Messages...)
		if !page.HasMore {
			return all
		}
		if len(page.Messages) == 0 {
			t.Fatalf("GET %s: an empty page says that there is more", path)
		}
	}
}

// Status is what GET /status tells.
type Status struct {
	SessionID   string          `json:"sessionId"`
	Status      string          `json:"status"`
	StepCount   int             `json:"stepCount"`
	Output      json.RawMessage `json:"output"`
	Error       string          `json:"error"`
	IsExecuting bool            `json:"isExecuting"`
}

// Status asks how a session stands.
func (c Client) Status(t testing.TB, session string) Status {
	t.Helper()
	var s Status
	c.get(t, "/status?sessionId="+url.QueryEscape(session), &s)
	return s
}

// WaitStatus waits until the session has the status.
func (c Client) WaitStatus(t testing.TB, session, want string) {
	t.Helper()
	WaitFor(t, callLimit, "session "+session+" to be "+want, func() (bool, string) {
		a := c.Do(t, http.MethodGet, "/status?sessionId="+url.QueryEscape(session), nil)
		var s Status
		err := json.Unmarshal([]byte(a.Body), &s)
		return err == nil && a.Code == http.StatusOK && s.Status == want, a.Body
	})
}

func (c Client) get(t testing.TB, path string, answer any) {
	t.Helper()
	a := c.Do(t, http.MethodGet, path, nil)
	if a.Code != http.StatusOK {
		t.Fatalf("GET %s: got %d %s, want 200", path, a.Code, a.Body)
	}
	if err := json.Unmarshal([]byte(a.Body), answer); err != nil {
		t.Fatalf("GET %s: %v in %s", path, err, a.Body)
	}
}
