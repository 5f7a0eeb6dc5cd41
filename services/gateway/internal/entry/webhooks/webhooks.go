// Package webhooks asks applications about entries by HTTP requests that are signed according to Standard Webhooks. The
// requests are described in docs/hooks.md.
package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	"github.com/holdfast-run/holdfast/services/gateway/internal/entry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// Limits of a webhook.
const (
	DefaultTimeout = 5 * time.Second
	maxTimeout     = time.Minute
	maxAnswer      = 1 << 20 // bytes
	maxConns       = 256
	grace          = 5 * time.Second // in which a failure is decided upon, behind the time-out
)

// What happens to a request if the application gives no valid answer.
const (
	refuse = "refuse"
	allow  = "allow"
)

// settings are the file.
type settings struct {
	BeforeEntry *struct {
		URL       string        `yaml:"url"`
		Secrets   []string      `yaml:"secrets"`   // whsec_…; each signs, so that one can be replaced
		Timeout   time.Duration `yaml:"timeout"`   // 0 is DefaultTimeout
		OnFailure string        `yaml:"onFailure"` // empty is refuse
		Kinds     []entry.Kind  `yaml:"kinds"`     // empty for all
		// Private: the name of the URL may resolve to a private address.
		Private bool `yaml:"private"`
	} `yaml:"beforeEntry"`
}

// Peers are the dependencies of a hook. All must be set.
type Peers struct {
	Now   func() time.Time
	NewID func() string
	Log   *slog.Logger
}

// Hook asks one application. It may be used by many goroutines.
type Hook struct {
	url     string
	secrets []webhook.Secret
	timeout time.Duration
	allow   bool // after a failure
	kinds   []entry.Kind
	client  *http.Client
	Peers
}

// Read reads the file. Invalid (HOOKS_INVALID).
func Read(file string, p Peers) (*Hook, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, invalid("%v", err)
	}
	var s settings
	if err := yaml.UnmarshalWithOptions(text, &s, yaml.DisallowUnknownField()); err != nil {
		return nil, invalid("%s: %s", file, yaml.FormatError(err, false, false))
	}
	c := s.BeforeEntry
	if c == nil {
		return nil, invalid("%s: it has no beforeEntry", file)
	}
	h := &Hook{url: c.URL, timeout: c.Timeout, allow: c.OnFailure == allow, kinds: c.Kinds, Peers: p}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		return nil, invalid("%s: beforeEntry.url must be an http or https URL without a user", file)
	case u.Scheme == "http" && !outbound.IsLoopback(u.Hostname()) && !c.Private:
		return nil, invalid("%s: beforeEntry.url must be https, unless it is of this machine or private is true", file)
	case len(c.Secrets) == 0:
		return nil, invalid("%s: beforeEntry.secrets needs one secret or more: the application must be able to tell who asks", file)
	case c.OnFailure != "" && c.OnFailure != refuse && c.OnFailure != allow:
		return nil, invalid("%s: beforeEntry.onFailure is %.50q: it must be %s or %s", file, c.OnFailure, refuse, allow)
	case c.Timeout < 0 || c.Timeout > maxTimeout:
		return nil, invalid("%s: beforeEntry.timeout is %v: it must be above 0 and at most %v", file, c.Timeout, maxTimeout)
	}
	for _, kind := range c.Kinds {
		if !slices.Contains(entry.Kinds(), kind) {
			return nil, invalid("%s: beforeEntry.kinds has %.50q: the kinds are %v", file, kind, entry.Kinds())
		}
	}
	for _, text := range c.Secrets {
		secret, err := webhook.ParseSecret(text)
		if err != nil {
			return nil, invalid("%s: beforeEntry.secrets: %v", file, err)
		}
		h.secrets = append(h.secrets, secret)
	}
	if h.timeout == 0 {
		h.timeout = DefaultTimeout
	}
	policy := outbound.Policy{Hosts: []string{u.Host}}
	if c.Private {
		policy.Private = policy.Hosts
	}
	h.client = policy.Direct(nil, maxConns)
	return h, nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "HOOKS_INVALID", "HOLDFAST_GATEWAY_HOOKS: %s", fmt.Sprintf(format, args...))
}

// Guarded returns the hook for an entry.Guard.
func (h *Hook) Guarded() entry.Hook { return entry.Hook{Ask: h.before, Timeout: h.timeout + grace} }

// unavailable refuses a request about which the application cannot be asked.
var unavailable = httpapi.Refusal{
	Status: http.StatusServiceUnavailable, Code: "HOOK_UNAVAILABLE",
	Message: "The service is not available at the moment; please try again.",
}

// before asks the application.
func (h *Hook) before(ctx context.Context, e *entry.Entry) error {
	if len(h.kinds) > 0 && !slices.Contains(h.kinds, e.Kind) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	err := h.ask(limited, e)
	switch {
	case err == nil || httpapi.RefusalOf(err) != nil || ctx.Err() != nil:
		return err
	case h.allow:
		h.Log.WarnContext(ctx, "a request was allowed without an answer of the webhook beforeEntry",
			"kind", e.Kind, "session", e.SessionID, "error", err)
		return nil
	default:
		h.Log.ErrorContext(ctx, "a request was refused without an answer of the webhook beforeEntry",
			"kind", e.Kind, "session", e.SessionID, "error", err)
		refusal := unavailable
		return &refusal
	}
}

// question is the body of a request.
type question struct {
	Type         string             `json:"type"` // beforeEntry
	At           string             `json:"at"`   // RFC 3339
	Kind         entry.Kind         `json:"kind"`
	Tenant       string             `json:"tenant"`
	Actor        string             `json:"actor"`
	UserID       string             `json:"userId,omitempty"` // of the caller
	Scopes       []string           `json:"scopes"`
	SessionID    string             `json:"sessionId"`
	NewSessionID string             `json:"newSessionId,omitempty"`
	CheckpointID string             `json:"checkpointId,omitempty"`
	RunID        string             `json:"runId,omitempty"`
	Session      *entry.Session     `json:"session"` // null for a new one
	Request      *entry.Run         `json:"request,omitempty"`
	Answers      []entry.Answer     `json:"answers,omitempty"`
	Stop         *entry.StopRequest `json:"stop,omitempty"`
	HTTP         *client            `json:"http,omitempty"`
}

// client is what the gateway knows of the client's request. It has no headers with credentials.
type client struct {
	Method  string `json:"method"`
	Path    string `json:"path"`
	Address string `json:"address"`
	Agent   string `json:"userAgent,omitempty"`
}

// answer is the body of an answer. Without a member, the request goes on as it is.
type answer struct {
	Refuse *struct {
		Status  int             `json:"status"`
		Code    string          `json:"code"`
		Message string          `json:"message"`
		Body    json.RawMessage `json:"body"`
	} `json:"refuse"`
	Request json.RawMessage `json:"request"` // the changed members of question.Request
}

// ask sends the question, and applies the answer to the entry.
func (h *Hook) ask(ctx context.Context, e *entry.Entry) error {
	session, err := e.Session(ctx)
	if err != nil {
		return fmt.Errorf("read the session: %w", err)
	}
	now := h.Now()
	q := question{
		Type: "beforeEntry", At: now.UTC().Format(time.RFC3339Nano), Kind: e.Kind, Tenant: e.Caller.Tenant, Actor: e.Actor, UserID: e.Caller.User,
		Scopes: e.Caller.Scopes, SessionID: e.SessionID, NewSessionID: e.NewSessionID, CheckpointID: e.CheckpointID, RunID: e.RunID,
		Session: session, Request: e.Run, Answers: e.Answers, Stop: e.Stop,
	}
	if r := e.Request; r != nil {
		q.HTTP = &client{Method: r.Method, Path: r.URL.Path, Address: r.RemoteAddr, Agent: r.UserAgent()}
	}
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	webhook.Sign(request.Header, "msg_"+h.NewID(), now, body, h.secrets...)
	got, err := h.client.Do(request)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, maxAnswer+1))
	kind, _, _ := mime.ParseMediaType(got.Header.Get("Content-Type"))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case len(text) > maxAnswer:
		return fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case got.StatusCode != http.StatusOK:
		return fmt.Errorf("the answer has the status %d, and must have 200", got.StatusCode)
	case kind != "application/json":
		return fmt.Errorf("the answer has the content type %.100q, and must have application/json", got.Header.Get("Content-Type"))
	}
	return apply(text, e)
}

// apply applies an answer to an entry.
func apply(text []byte, e *entry.Entry) error {
	var a answer
	if err := decode(text, &a); err != nil {
		return err
	}
	switch {
	case a.Refuse != nil && len(a.Request) > 0:
		return errors.New("the answer has refuse and request, and may have one of both")
	case a.Refuse != nil:
		refusal := &httpapi.Refusal{Status: a.Refuse.Status, Code: a.Refuse.Code, Message: a.Refuse.Message, Body: a.Refuse.Body}
		if !refusal.Valid() {
			return fmt.Errorf("the answer refuses with the status %d and the code %.100q: a status is 400 to 499 or 503, and a code UPPER_SNAKE",
				refusal.Status, refusal.Code)
		}
		return refusal
	case len(a.Request) > 0 && string(a.Request) != "null":
		if e.Run == nil {
			return fmt.Errorf("the answer changes the request of an entry of the kind %s, which has none", e.Kind)
		}
		var given map[string]json.RawMessage
		if err := json.Unmarshal(a.Request, &given); err != nil {
			return errors.New("the member request of the answer is no object")
		}
		changed := *e.Run
		for member, field := range map[string]func(){ // package json adds to maps and lists that are there
			"tags":           func() { changed.Tags = nil },
			"metadata":       func() { changed.Metadata = nil },
			"state":          func() { changed.State = nil },
			"messages":       func() { changed.Messages = nil },
			"appendMessages": func() { changed.AppendMessages = nil },
		} {
			if _, is := given[member]; is {
				field()
			}
		}
		if err := decode(a.Request, &changed); err != nil {
			return err
		}
		*e.Run = changed
	}
	return nil
}

// decode decodes JSON without unknown members.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	if d.More() {
		return errors.New("the answer has something behind its JSON")
	}
	return nil
}
