package gemini

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/providerhttp"
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
}

var _ model.Model = (*Model)(nil)

// New returns a model that calls through client; nil means model.HTTPClient's default. It refuses a base URL
// that is not an absolute http or https URL.
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
	return &Model{base: base, key: c.APIKey, client: model.HTTPClient(client), idle: c.IdleTimeout}, nil
}

// Generate streams one reply. Apart from the error of ctx, its errors are *model.Error. They never contain the
// API key.
func (m *Model) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		m.generate(ctx, r, model.FilterEvents(yield, m.key))
	}
}

func (m *Model) generate(ctx context.Context, r model.Request, yield func(model.Event, error) bool) {
	body, err := newBody(r)
	if err != nil {
		yield(nil, err)
		return
	}
	callCtx, call, end := providerhttp.NewCall(ctx, m.idle, responseError)
	defer end()
	stream, err := m.openStream(callCtx, r.Model, body, call)
	if err != nil {
		yield(nil, call.Error(err))
		return
	}
	defer stream.Close()

	reply := newAssembler(len(r.Messages))
	reader := newEventReader(stream)
	for !reply.isComplete() && reader.next() {
		events, err := reply.handle(reader.data)
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
	if err := reader.err(); err != nil && (!reply.isFinished() || !providerhttp.IsConnectionFailure(err)) {
		yield(nil, call.Error(err))
		return
	}
	events, err := reply.finish()
	for _, e := range events {
		if !yield(e, nil) {
			return
		}
	}
	if err != nil {
		// A cancelled call may end its body without an error.
		yield(nil, call.Error(err))
	}
}

// openStream sends the request and returns the body of the event stream.
func (m *Model) openStream(ctx context.Context, name string, body []byte, call *providerhttp.Call) (io.ReadCloser, error) {
	// The name may include its collection; tuned models have another one.
	if !strings.HasPrefix(name, "models/") && !strings.HasPrefix(name, "tunedModels/") {
		name = "models/" + name
	}
	address := m.base.JoinPath(name + ":streamGenerateContent")
	address.RawQuery = "alt=sse"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address.String(), bytes.NewReader(body))
	if err != nil {
		return nil, model.InvalidRequest("the model name %q cannot be part of a URL: %v", name, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	if m.key != "" {
		req.Header.Set("X-Goog-Api-Key", m.key)
	}
	res, err := call.Send(req, m.client.Do) //nolint:bodyclose // the caller closes it
	if err != nil {
		return nil, err
	}
	return model.LimitEvents(res.Body), nil
}
