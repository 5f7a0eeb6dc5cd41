package anthropic

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/providerhttp"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/schemaform"
)

// DefaultBaseURL is Anthropic's own API.
const DefaultBaseURL = "https://" + anthropicHost

const anthropicHost = "api.anthropic.com"

// DefaultIdleTimeout is far longer than any pause of a healthy stream: the API sends pings.
const DefaultIdleTimeout = 5 * time.Minute

// Config configures access to the models.
type Config struct {
	// BaseURL is the part of the URL before /v1/messages; DefaultBaseURL when empty.
	BaseURL string `env:"BASE_URL" doc:"base URL of the Messages API; empty means Anthropic's"`
	// APIKey is sent as X-Api-Key, or not at all when empty.
	APIKey string `env:"API_KEY" doc:"the key of the Anthropic API"`
	// IdleTimeout ends a call after this long without data; DefaultIdleTimeout when 0.
	IdleTimeout time.Duration `env:"IDLE_TIMEOUT" doc:"ends a model call after this long without data; 0 means 5m"`
}

// version is the version of the API that the package speaks.
const version = "2023-06-01"

// Model calls the Messages API. Safe for concurrent use.
type Model struct {
	base   *url.URL
	key    string // removed from errors
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
		return nil, fmt.Errorf("anthropic: the base URL %q is not an http or https URL", c.BaseURL)
	}
	return &Model{
		base: base, key: c.APIKey, client: model.HTTPClient(client), idle: c.IdleTimeout,
		forms: schemaform.NewForms(schemaform.Rules{PropertyName: propertyName}),
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
	from := origin{Host: m.base.Host, Model: r.Model}
	r.Tools = m.forms.Tools(r.Tools)
	body, locations, err := newBody(r, from)
	if err != nil {
		yield(nil, err)
		return
	}
	yield = locations.NameFiles(yield)
	header := http.Header{}
	header.Set("Anthropic-Version", version)
	if m.key != "" {
		header.Set("X-Api-Key", m.key)
	}
	stream, err := providerhttp.Open(ctx, providerhttp.Request{
		Client: m.client, URL: m.base.JoinPath("v1/messages").String(), Header: header, Body: body, Idle: m.idle,
		Classify: responseError,
	})
	if err != nil {
		yield(nil, err)
		return
	}
	defer stream.Close()

	reply := newAssembler(len(r.Messages), from)
	for !reply.stopped && stream.Next() {
		events, err := reply.handle(stream.Event())
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
	if err := stream.Err(); err != nil && (!reply.isComplete() || !providerhttp.IsConnectionFailure(err)) {
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
