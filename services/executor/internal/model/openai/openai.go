package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/providerhttp"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/schemaform"
)

// DefaultBaseURL is OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

// DefaultIdleTimeout outlasts the pause of a reasoning model.
const DefaultIdleTimeout = 5 * time.Minute

// The APIs. Compatible servers offer APIChat.
const (
	APIChat      = "chat"
	APIResponses = "responses"
)

// Config configures access to the models.
type Config struct {
	// BaseURL is the part of the URL before /chat/completions or /responses;
	// DefaultBaseURL when empty.
	BaseURL string `env:"BASE_URL" doc:"base URL of the API; empty means OpenAI's"`
	// API is APIChat or APIResponses; APIChat when empty.
	API string `env:"API" doc:"the API to use: chat (chat completions) or responses; empty means chat"`
	// APIKey is sent as a bearer token, or in the header of the server's profile; not at all when empty.
	APIKey string `env:"API_KEY" doc:"the key of the OpenAI API, or of the server at the base URL"`
	// IdleTimeout ends a call after this long without data; DefaultIdleTimeout when 0.
	IdleTimeout time.Duration `env:"IDLE_TIMEOUT" doc:"ends a model call after this long without data; 0 means 5m"`
	// Profile is an override of the server's profile: see profile.ParseOverride. Empty chooses by base URL and model.
	Profile string `env:"PROFILE" doc:"the profile of the server: its name, or a JSON object of fields; empty chooses by address and model"`
	// ModelProfiles is a JSON object of overrides for single models, by name, in place of Profile. Empty for none.
	ModelProfiles string `env:"MODEL_PROFILES" doc:"profiles of single models as a JSON object, by name"`
	// Log gets what a server's refusals teach, once for each lesson; slog.Default when nil.
	Log *slog.Logger
}

// Model calls chat completions or responses. Safe for concurrent use.
type Model struct {
	api      string
	key      string // removed from errors
	base     *url.URL
	client   *http.Client
	idle     time.Duration
	override profile.Override
	// overrides are of single models, in place of override.
	overrides map[string]profile.Override
	learned   lessons
	forms     *schemaform.Forms
	log       *slog.Logger
}

var _ model.Model = (*Model)(nil)

// New returns a model that calls through client; nil means model.HTTPClient's default. It refuses an unknown
// API or profile, and a base URL other than an absolute http or https URL.
func New(c Config, client *http.Client) (*Model, error) {
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	if c.API == "" {
		c.API = APIChat
	}
	if c.API != APIChat && c.API != APIResponses {
		return nil, fmt.Errorf("openai: the API %q is neither %q nor %q", c.API, APIChat, APIResponses)
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	base, err := url.Parse(c.BaseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("openai: the base URL %q is not an http or https URL", c.BaseURL)
	}
	override, err := profile.ParseOverride(json.RawMessage(c.Profile))
	if err != nil {
		return nil, fmt.Errorf("openai: the profile: %w", err)
	}
	overrides, err := parseModelProfiles(c.ModelProfiles)
	if err != nil {
		return nil, fmt.Errorf("openai: the profiles of models: %w", err)
	}
	return &Model{
		api: c.API, key: c.APIKey, base: base, client: model.HTTPClient(client), idle: c.IdleTimeout,
		override: override, overrides: overrides, forms: schemaform.NewForms(schemaform.Rules{Complete: true}),
		log: cmp.Or(c.Log, slog.Default()),
	}, nil
}

func parseModelProfiles(source string) (map[string]profile.Override, error) {
	if source == "" {
		return nil, nil
	}
	var profiles map[string]json.RawMessage
	if err := json.Unmarshal([]byte(source), &profiles); err != nil {
		return nil, err
	}
	overrides := map[string]profile.Override{}
	for name, text := range profiles {
		o, err := profile.ParseOverride(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		overrides[name] = o
	}
	return overrides, nil
}

// findProfile returns the profile of a model before anything was learned.
func (m *Model) findProfile(name string) profile.Profile {
	if o, ok := m.overrides[name]; ok {
		return profile.Find(m.base, name, o)
	}
	return profile.Find(m.base, name, m.override)
}

// Generate streams one reply. Apart from the error of ctx, its errors are *model.Error. They never contain the
// API key.
func (m *Model) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		out := model.FilterEvents(yield, m.key)
		r.Tools, r.Output = m.forms.Tools(r.Tools), m.forms.Output(r.Output)
		for {
			learned := m.try(ctx, r, out)
			if !learned {
				return
			}
		}
	}
}

// try makes one call. It returns true, and has yielded nothing, if the server refused the request and a more careful profile
// is now known. Each lesson changes the profile permanently, so the tries end.
func (m *Model) try(ctx context.Context, r model.Request, yield func(model.Event, error) bool) (learned bool) {
	from := origin{Host: m.base.Host, Model: r.Model}
	p := m.learned.profile(r.Model, m.findProfile)
	path, newBody := "chat/completions", newChatBody
	var reply assembler = newChatAssembler(len(r.Messages), p, from)
	if m.api == APIResponses {
		path = "responses"
		newBody = newResponseBody
		reply = newResponseAssembler(len(r.Messages), from)
	}
	body, locations, err := newBody(r, p, from)
	if err != nil {
		yield(nil, err)
		return false
	}
	yield = locations.NameFiles(yield)
	if p.ToolNames == profile.NamesLetter {
		yield = model.RestoreToolNames(r.Tools, yield)
	}
	refusal := ""
	classify := func(res *http.Response, text []byte) *model.Error {
		refusal = string(text)
		return responseError(res, text)
	}
	stream, err := providerhttp.Open(ctx, providerhttp.Request{
		Client: m.client, URL: m.base.JoinPath(path).String(), Header: m.header(p), Body: body, Idle: m.idle, Classify: classify,
	})
	if err != nil {
		if e, ok := errors.AsType[*model.Error](err); ok && mayTeach(e) {
			build := func(p profile.Profile) (json.RawMessage, error) {
				body, _, err := newBody(r, p, from)
				return body, err
			}
			if better, ok := profile.Learn(p, refusal, body, build); ok {
				repeat, isNew := m.learned.keep(r.Model, p, better)
				if isNew {
					m.log.InfoContext(ctx, "the model's server refused the form of a request; to begin with the form that it takes, "+
						"put these fields into the model's profile",
						"server", m.base.Host, "model", r.Model, "profile", string(better.Difference(p)),
						"refusal", model.Redact(e, m.key).Error())
				}
				if repeat {
					return true
				}
			}
		}
		yield(nil, err)
		return false
	}
	defer stream.Close()
	streamReply(stream, reply, yield)
	return false
}

func (m *Model) header(p profile.Profile) http.Header {
	h := http.Header{}
	switch {
	case m.key == "":
	case p.KeyHeader == profile.BearerHeader:
		h.Set(p.KeyHeader, "Bearer "+m.key)
	default:
		h.Set(p.KeyHeader, m.key)
	}
	return h
}

// mayTeach reports whether an error may be about the form of the request: its size and content are the planner's. Servers that render a
// template report its refusal as 500.
func mayTeach(e *model.Error) bool {
	if r := e.Refusal; r != nil && (r.Part == model.RefusedContext || r.Part == model.RefusedSize || r.Part == model.RefusedContent) {
		return false
	}
	switch e.StatusCode {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusNotImplemented:
		return true
	}
	return false
}

// maxLessons limits the models whose profiles are kept. Beyond, a refusal is an error.
const maxLessons = 1000

// lessons are the profiles by the name of the model, as far as they are known. The zero value knows none.
type lessons struct {
	mu    sync.Mutex
	known map[string]lesson
}

type lesson struct {
	profile profile.Profile
	number  int // of changes so far
}

// maxChanges limits what one model's server may teach.
const maxChanges = 16

func (l *lessons) profile(name string, find func(name string) profile.Profile) profile.Profile {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known[name]; ok {
		return known.profile
	}
	p := find(name)
	if l.known == nil {
		l.known = map[string]lesson{}
	}
	if len(l.known) < maxLessons {
		l.known[name] = lesson{profile: p}
	}
	return p
}

// keep stores a profile that replaces the one of a refused request. It reports whether to repeat the request and whether the
// profile is new. The limits may not allow it. Another call may have learned the same meanwhile: then the refused call is
// repeated with the known profile.
func (l *lessons) keep(name string, refused, better profile.Profile) (repeat, isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.known[name]
	if !ok || known.number == maxChanges {
		return false, false
	}
	if isNew = reflect.DeepEqual(known.profile, refused); isNew {
		l.known[name] = lesson{better, known.number + 1}
	}
	return true, isNew
}

// assembler builds one reply from the events of a stream.
type assembler interface {
	// handle returns the model events of an event's data, possibly together with an error.
	handle(data []byte) ([]model.Event, error)
	// finish returns the last events, or an error if the reply was truncated.
	finish() ([]model.Event, error)
	// isFinished reports whether the reply has ended. Connection failures no longer matter then.
	isFinished() bool
	// isComplete reports whether everything has arrived.
	isComplete() bool
}

// decode reads the data of an event. Members of unexpected types stay empty. An error of the provider is a *model.Error.
func decode[T any](data []byte) (value T, err error) {
	var envelope struct {
		Error json.RawMessage `json:"error"`
	}
	err = json.Unmarshal(data, &envelope)
	if err == nil && !isNull(envelope.Error) {
		return value, eventError(data)
	}
	if err == nil {
		err = json.Unmarshal(data, &value)
	}
	if _, mistyped := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !mistyped {
		return value, model.InvalidResponse("cannot decode a chunk: %v", err)
	}
	return value, nil
}

// streamReply yields the events of a stream.
func streamReply(stream *providerhttp.Stream, reply assembler, yield func(model.Event, error) bool) {
	for !reply.isComplete() && stream.Next() {
		_, data := stream.Event()
		events, err := reply.handle(data)
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
			return
		}
	}
	if err := stream.Err(); err != nil && (!reply.isFinished() || !providerhttp.IsConnectionFailure(err)) {
		yield(nil, err)
		return
	}
	events, err := reply.finish()
	for _, e := range events {
		if !yield(e, nil) {
			return
		}
	}
	if err != nil {
		if text := stream.Unparsed(); len(text) > 0 {
			err = unparsedError(text)
		}
		yield(nil, stream.Failure(err))
	}
}
