package anthropic

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/providerhttp"
)

// DefaultBaseURL is Anthropic's own API.
const DefaultBaseURL = "https://api.anthropic.com"

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

// Model calls the Messages API. Safe for concurrent use.
type Model struct {
	messages anthropic.MessageService
	key      string // removed from errors
	idle     time.Duration
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
		return nil, fmt.Errorf("anthropic: the base URL %q is not an http or https URL", c.BaseURL)
	}
	options := []option.RequestOption{
		option.WithBaseURL(base.JoinPath("/").String()),
		option.WithHTTPClient(model.HTTPClient(client)),
		option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(),
	}
	if c.APIKey != "" {
		options = append(options, option.WithAPIKey(c.APIKey))
	}
	// anthropic.NewClient would also read the environment.
	return &Model{messages: anthropic.NewMessageService(options...), key: c.APIKey, idle: c.IdleTimeout}, nil
}

// Generate streams one reply. Apart from the error of ctx, its errors are *model.Error. They never contain the
// API key.
func (m *Model) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		m.generate(ctx, r, model.FilterEvents(yield, m.key))
	}
}

func (m *Model) generate(ctx context.Context, r model.Request, yield func(model.Event, error) bool) {
	params, err := newParams(r)
	if err != nil {
		yield(nil, err)
		return
	}
	callCtx, call, end := providerhttp.NewCall(ctx, m.idle, responseError)
	defer end()
	stream := m.messages.NewStreaming(callCtx, params, option.WithMiddleware(callMiddleware(call)))
	defer stream.Close()

	reply := newAssembler(len(r.Messages))
	for !reply.stopped && stream.Next() {
		events, err := reply.handle(stream.Current())
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
		yield(nil, call.Error(streamError(err)))
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
		yield(nil, call.Error(streamError(err)))
	}
}

// callMiddleware sends the requests of a call and limits the events of its stream.
func callMiddleware(call *providerhttp.Call) option.Middleware {
	return func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		res, err := call.Send(req, next)
		if err == nil {
			res.Body = model.LimitEvents(res.Body)
		}
		return res, err
	}
}
