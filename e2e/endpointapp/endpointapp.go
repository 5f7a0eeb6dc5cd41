// Package endpointapp is an application with an agent endpoint, for tests: a small implementation of docs/endpoint.md in Go.
package endpointapp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/webhook"
)

// maxRequest is the largest request that an application accepts, in bytes.
const maxRequest = 16 << 20

// Request is what the executor sends for a call. Body has all of its members.
type Request struct {
	Type, Agent, Build, Name string
	Context                  Context
	State                    map[string]any
	Input                    json.RawMessage
	Body                     map[string]any `json:"-"`
}

// Context is the trusted context of a request.
type Context struct {
	Tenant  string
	User    *struct{ ID string }
	Session struct {
		ID       string
		ParentID *string
		Tags     []string
		Metadata map[string]string
	}
	Run *struct {
		ID   string
		Turn int
	}
	Step int
	Call *struct {
		ID, IdempotencyKey string
		Attempt            int
	}
	Deadline    time.Time
	Traceparent string
}

// Call is a call in progress. Its methods send lines.
type Call struct {
	Request
	// Writer and HTTP are the answer and the request, for calls that do something else.
	Writer http.ResponseWriter
	HTTP   *http.Request
}

// Line sends a line.
func (c *Call) Line(name string, value any) {
	text, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		panic(err)
	}
	c.Raw(string(text) + "\n")
}

// Raw sends a text.
func (c *Call) Raw(text string) {
	_, _ = io.WriteString(c.Writer, text) // the executor may have left
	_ = http.NewResponseController(c.Writer).Flush()
}

// Event sends an event.
func (c *Call) Event(name string, data any) {
	c.Line("event", map[string]any{"name": name, "data": data})
}

// Set writes a key of the custom state.
func (c *Call) Set(key string, value any) {
	c.Line("state", []any{map[string]any{"op": "replace", "key": key, "value": value}})
}

// Error is a failure with all that the wire has for it.
type Error struct {
	Message       string `json:"message"`
	PublicMessage string `json:"publicMessage,omitempty"`
	Code          string `json:"code,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// ErrNoEnd ends an answer without a last line.
var ErrNoEnd = errors.New("no end")

// Handler runs a call. The context ends when the executor closes the connection.
type Handler func(ctx context.Context, c *Call) (any, error)

// App is an application. Its zero value refuses everything. It is an http.Handler; Handle and Describe may be called while it
// serves.
type App struct {
	Secrets []webhook.Secret
	// Unsigned allows requests without a signature.
	Unsigned bool

	mu          sync.Mutex
	description []byte
	handlers    map[string]Handler // by type/name
	seen        webhook.Memory
	described   atomic.Int64
}

// Describe sets the description: JSON, or a value with JSON.
func (a *App) Describe(description any) {
	text, ok := description.(string)
	if !ok {
		made, err := json.Marshal(description)
		if err != nil {
			panic(err)
		}
		text = string(made)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.description = []byte(text)
}

// Handle sets the handler of a call, by its type and name: tool/refund, prompt.
func (a *App) Handle(name string, h Handler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.handlers == nil {
		a.handlers = map[string]Handler{}
	}
	a.handlers[name] = h
}

// Described counts the requests for the description.
func (a *App) Described() int { return int(a.described.Load()) }

// ServeHTTP serves the wire.
func (a *App) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "REQUEST_TOO_LARGE", err)
		return
	}
	signed := r.Header.Get(webhook.SignatureHeader) != ""
	if !a.Unsigned || signed && len(a.Secrets) > 0 {
		if err := (webhook.Verifier{Secrets: a.Secrets, Seen: &a.seen}).Verify(r.Header, body, time.Now()); err != nil {
			status := http.StatusUnauthorized
			if errors.Is(err, fault.Conflict) {
				status = http.StatusConflict
			}
			refuse(w, status, fault.ReasonOf(err), err)
			return
		}
	}
	switch {
	case r.Header.Get("Holdfast-Endpoint") != "1":
		refuse(w, http.StatusBadRequest, "VERSION_UNSUPPORTED", errors.New("this application knows version 1"))
	case r.Method == http.MethodGet:
		a.describe(w, r)
	case r.Method == http.MethodPost:
		a.call(w, r, body)
	default:
		refuse(w, http.StatusMethodNotAllowed, "METHOD_UNKNOWN", errors.New("send GET or POST"))
	}
}

func (a *App) describe(w http.ResponseWriter, r *http.Request) {
	a.described.Add(1)
	a.mu.Lock()
	description := a.description
	a.mu.Unlock()
	sum := sha256.Sum256(description)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(description)
}

func (a *App) call(w http.ResponseWriter, r *http.Request, body []byte) {
	c := &Call{Writer: w, HTTP: r}
	if err := errors.Join(json.Unmarshal(body, &c.Request), json.Unmarshal(body, &c.Body)); err != nil {
		refuse(w, http.StatusBadRequest, "REQUEST_INVALID", err)
		return
	}
	name := c.Type
	if c.Name != "" {
		name += "/" + c.Name
	}
	a.mu.Lock()
	handle := a.handlers[name]
	a.mu.Unlock()
	if handle == nil {
		refuse(w, http.StatusNotFound, "CALLBACK_UNKNOWN", fmt.Errorf("there is no %s", name))
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	result, err := handle(r.Context(), c)
	failure := &Error{}
	switch {
	case errors.Is(err, ErrNoEnd):
	case errors.As(err, &failure):
		c.Line("error", failure)
	case err != nil:
		c.Line("error", Error{Message: err.Error()})
	default:
		c.Line("result", result)
	}
}

func refuse(w http.ResponseWriter, status int, code string, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "message": err.Error(), "versions": []int{1}}})
}
