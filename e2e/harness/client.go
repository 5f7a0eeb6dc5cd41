package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// callLimit bounds one call including its whole response, also of a stream.
const callLimit = 4 * time.Minute

// Client is an HTTP client of a gateway. Methods with a testing.TB fail the test on an unexpected response.
type Client struct {
	URL string
	Key string // the API key; empty sends none
	// Traceparent is the W3C trace context of the requests; empty sends none.
	Traceparent string
	// OnRetry, if not nil, receives each failure after which Converse tries again. It may be called concurrently.
	OnRetry func(error)
}

// Answer is a complete HTTP response.
type Answer struct {
	Code   int
	Header http.Header
	Body   string
}

// Do sends a request and reads the whole response.
func (c Client) Do(t testing.TB, method, path string, body []byte) Answer {
	t.Helper()
	response, err := c.send(callContext(t), request{method: method, path: path, body: body})
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

// callContext bounds one call of a test.
func callContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	t.Cleanup(cancel)
	return ctx
}

type request struct {
	method, path string
	body         []byte
	requestKey   string // makes a repeated request safe; empty sends none
	lastEventID  string // the cursor; empty sends none
}

func (c Client) send(ctx context.Context, q request) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, c.URL+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"Content-Type":           "application/json",
		"Accept":                 "application/json",
		"User-Agent":             "ai-sdk/7.0.0", // uistream.go knows the parts of 7
		"Traceparent":            c.Traceparent,
		"X-Holdfast-Request-Key": q.requestKey,
		"Last-Event-Id":          q.lastEventID,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	if c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
	// A connection of its own, because a killed server leaves a broken one in the pool.
	r.Close = true
	return http.DefaultClient.Do(r)
}

// ChatBody is the request of the AI SDK's transport for a new turn.
func ChatBody(session, agent, text string) []byte {
	return chatBody(session, agent, text, "user-"+strconv.FormatInt(time.Now().UnixNano(), 36))
}

// chatBody is ChatBody with a message id.
func chatBody(session, agent, text, id string) []byte {
	b, err := json.Marshal(map[string]any{
		"id":        session,
		"agentType": agent,
		"trigger":   "submit-message",
		"messages": []any{map[string]any{
			"id":    id,
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
	s, err := c.open(callContext(t), request{method: http.MethodPost, path: "/chat", body: ChatBody(session, agent, text)})
	return closeWithTest(t, s, err)
}

// Attach follows the answer of a session again. It returns nil on 204, nothing to follow.
func (c Client) Attach(t testing.TB, session string) *UIStream {
	t.Helper()
	s, err := c.open(callContext(t), request{method: http.MethodGet, path: resumePath(session)})
	if nothing, ok := errors.AsType[*notOKError](err); ok && nothing.code == http.StatusNoContent {
		return nil
	}
	return closeWithTest(t, s, err)
}

// Follow reads the stream to its end like a persistent client: it attaches again when the connection breaks. It
// fails the test if the answer ends incomplete.
func (c Client) Follow(t testing.TB, stream *UIStream, session string) UIMessage {
	t.Helper()
	deadline := time.Now().Add(callLimit)
	for {
		err := stream.Rest()
		if err == nil {
			return stream.ReadAll()
		}
		if !errors.Is(err, ErrDropped) || time.Now().After(deadline) {
			t.Fatalf("the answer of %q: %v\n%s", session, err, stream.Dump())
		}
		if stream = c.Attach(t, session); stream == nil {
			t.Fatalf("there is nothing to attach to (204) for %q, whose answer broke off", session)
		}
	}
}

// Resume closes the stream and resumes the same answer with Last-Event-ID. The returned stream has the message so
// far.
func (c Client) Resume(t testing.TB, session string, former *UIStream) *UIStream {
	t.Helper()
	former.Close()
	s, err := c.open(callContext(t), request{method: http.MethodGet, path: resumePath(session), lastEventID: former.lastID})
	s = closeWithTest(t, s, err)
	s.Message = former.Message
	return s
}

func resumePath(session string) string { return "/chat/" + url.PathEscape(session) + "/stream" }

// closeWithTest ties the stream to the test.
func closeWithTest(t testing.TB, s *UIStream, err error) *UIStream {
	t.Helper()
	if err != nil {
		t.Fatalf("%v, want a stream", err)
	}
	s.t = t
	t.Cleanup(s.Close)
	return s
}

// notOKError is a response with a status other than 200.
type notOKError struct {
	request request
	code    int
	body    string
}

func (e *notOKError) Error() string {
	return fmt.Sprintf("%s %s: got %d %s", e.request.method, e.request.path, e.code, e.body)
}

// open opens a UI message stream. It returns a *notOKError if there is none.
func (c Client) open(ctx context.Context, q request) (*UIStream, error) {
	response, err := c.send(ctx, q)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		return nil, &notOKError{q, response.StatusCode, string(text)}
	}
	version, kind := response.Header.Get("X-Vercel-Ai-Ui-Message-Stream"), response.Header.Get("Content-Type")
	if version != "v1" || !strings.HasPrefix(kind, "text/event-stream") {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s %s: x-vercel-ai-ui-message-stream is %q and content-type %q, want v1 and text/event-stream",
			q.method, q.path, version, kind)
	}
	return &UIStream{events: newEvents(response.Body)}, nil
}

// Native opens GET /sse after the cursor.
func (c Client) Native(t testing.TB, session string, from int64) *NativeStream {
	t.Helper()
	path := "/sse?sessionId=" + url.QueryEscape(session) + "&fromSequence=" + strconv.FormatInt(from, 10)
	response, err := c.send(callContext(t), request{method: http.MethodGet, path: path})
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("GET %s: got %d %s, want a stream", path, response.StatusCode, text)
	}
	return &NativeStream{t: t, events: newEvents(response.Body), Cursor: from}
}

// Messages returns the whole conversation from GET /messages.
func (c Client) Messages(t testing.TB, session string) []UIMessage {
	t.Helper()
	var all []UIMessage
	for offset := 0; ; { // an offset counts stored messages, several of which may be one UI message
		path := "/messages?limit=50&offset=" + strconv.Itoa(offset) + "&sessionId=" + url.QueryEscape(session)
		var page struct {
			Messages []UIMessage `json:"messages"`
			Offset   int         `json:"offset"`
			Limit    int         `json:"limit"`
			HasMore  bool        `json:"hasMore"`
		}
		c.get(t, path, &page)
		all = append(all, page.Messages...)
		offset = page.Offset + page.Limit
		if !page.HasMore {
			return all
		}
		if len(page.Messages) == 0 {
			t.Fatalf("GET %s: an empty page says that there is more", path)
		}
	}
}

// waitAgents waits until an executor has announced the system's agents.
func (c Client) waitAgents(t testing.TB) {
	t.Helper()
	WaitFor(t, startLimit, "an executor to announce its agents", func() (bool, string) {
		a := c.Do(t, http.MethodGet, "/agents", nil)
		return a.Code == http.StatusOK && strings.Contains(a.Body, `"agentType"`), a.Body
	})
}

// WaitAgent waits until an executor has announced the agent.
func (c Client) WaitAgent(t testing.TB, agent string) {
	t.Helper()
	WaitFor(t, startLimit, "the agent "+agent, func() (bool, string) {
		a := c.Do(t, http.MethodGet, "/agents", nil)
		return a.Code == http.StatusOK && strings.Contains(a.Body, `"agentType":"`+agent+`"`), a.Body
	})
}

// Status is the response of GET /status.
type Status struct {
	SessionID   string          `json:"sessionId"`
	Status      string          `json:"status"`
	StepCount   int             `json:"stepCount"`
	Output      json.RawMessage `json:"output"`
	Error       string          `json:"error"`
	IsExecuting bool            `json:"isExecuting"`
}

// Status returns the status of a session.
func (c Client) Status(t testing.TB, session string) Status {
	t.Helper()
	var s Status
	c.get(t, "/status?sessionId="+url.QueryEscape(session), &s)
	return s
}

// WaitStatus waits for the session's status.
func (c Client) WaitStatus(t testing.TB, session, want string) {
	t.Helper()
	WaitFor(t, callLimit, "session "+session+" to be "+want, func() (bool, string) {
		a := c.Do(t, http.MethodGet, "/status?sessionId="+url.QueryEscape(session), nil)
		var s Status
		err := json.Unmarshal([]byte(a.Body), &s)
		return err == nil && a.Code == http.StatusOK && s.Status == want, a.Body
	})
}

// load reads a JSON response. It returns a *notOKError if there is none.
func (c Client) load(ctx context.Context, path string, answer any) error {
	q := request{method: http.MethodGet, path: path}
	response, err := c.send(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDropped, err)
	}
	if response.StatusCode != http.StatusOK {
		return &notOKError{q, response.StatusCode, string(text)}
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("GET %s: %w in %s", path, err, text)
	}
	return nil
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
