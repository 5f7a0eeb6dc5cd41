package gemini

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/providerhttp"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/schemaform"
)

// DefaultBaseURL is Google's own API.
const DefaultBaseURL = "https://generativelanguage.googleapis.com/v1beta"

// DefaultIdleTimeout outlasts the pause of a thinking model.
const DefaultIdleTimeout = 5 * time.Minute

// Config configures access to the models.
type Config struct {
	// BaseURL is the part of the URL before /models; DefaultBaseURL when empty.
	BaseURL string `env:"BASE_URL" doc:"base URL of the Gemini API; empty means Google's"`
	// APIKey is sent as X-Goog-Api-Key, or not at all when empty.
	APIKey string `env:"API_KEY" doc:"the key of the Gemini API"`
	// IdleTimeout ends a call after this long without data; DefaultIdleTimeout when 0.
	IdleTimeout time.Duration `env:"IDLE_TIMEOUT" doc:"ends a model call after this long without data; 0 means 5m"`
}

// Model calls streamGenerateContent. Safe for concurrent use.
type Model struct {
	base   *url.URL
	key    string
	client *http.Client
	idle   time.Duration
	forms  *schemaform.Forms
}

var _ model.Model = (*Model)(nil)

// New returns a model that calls through client; nil means model.HTTPClient's default. It refuses a base URL
// other than an absolute http or https URL.
func New(c Config, client *http.Client) (*Model, error) {
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	base, err := url.Parse(c.BaseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("gemini: the base URL %q is not an http or https URL", c.BaseURL)
	}
	return &Model{
		base: base, key: c.APIKey, client: model.HTTPClient(client), idle: c.IdleTimeout, forms: schemaform.NewForms(schemaRules()),
	}, nil
}

// Generate streams one reply. Apart from the error of ctx, its errors are *model.Error. They never contain the
// API key.
func (m *Model) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		m.generate(ctx, r, model.FilterEvents(yield, m.key))
	}
}

func (m *Model) generate(ctx context.Context, r model.Request, yield func(model.Event, error) bool) {
	from := origin{Host: m.base.Host, Model: strings.TrimPrefix(r.Model, "models/")}
	r.Tools = m.forms.Tools(r.Tools)
	r.Output = m.forms.Output(r.Output)
	body, locations, err := newBody(r, from)
	if err != nil {
		yield(nil, err)
		return
	}
	yield = model.RestoreToolNames(r.Tools, locations.NameFiles(yield))
	header := http.Header{}
	if m.key != "" {
		header.Set("X-Goog-Api-Key", m.key)
	}
	stream, err := providerhttp.Open(ctx, providerhttp.Request{
		Client: m.client, URL: m.address(r.Model), Header: header, Body: body, Idle: m.idle, Classify: responseError,
	})
	if err != nil {
		yield(nil, err)
		return
	}
	defer stream.Close()

	reply := newAssembler(len(r.Messages), from)
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

func (m *Model) address(name string) string {
	// The name may include its collection; tuned models have another one.
	if !strings.HasPrefix(name, "models/") && !strings.HasPrefix(name, "tunedModels/") {
		name = "models/" + name
	}
	address := m.base.JoinPath(name + ":streamGenerateContent")
	address.RawQuery = "alt=sse"
	return address.String()
}
