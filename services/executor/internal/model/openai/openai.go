package openai

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/providerhttp"
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
	// APIKey is sent as a bearer token, or not at all when empty.
	APIKey string `env:"API_KEY" doc:"the key of the OpenAI API, or of the server at the base URL"`
	// IdleTimeout ends a call after this long without data; DefaultIdleTimeout when 0.
	IdleTimeout time.Duration `env:"IDLE_TIMEOUT" doc:"ends a model call after this long without data; 0 means 5m"`
}

// Model calls chat completions or responses. Safe for concurrent use.
type Model struct {
	api         string
	key         string // removed from errors
	completions openai.ChatCompletionService
	responses   responses.ResponseService
	idle        time.Duration
}

var _ model.Model = (*Model)(nil)

// New returns a model that calls through client; nil means model.HTTPClient's default. It refuses an unknown
// API, and a base URL that is not an absolute http or https URL.
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
	options := []option.RequestOption{
		option.WithBaseURL(base.JoinPath("/").String()),
		option.WithHTTPClient(model.HTTPClient(client)),
		option.WithMaxRetries(0),
	}
	if c.APIKey != "" {
		options = append(options, option.WithAPIKey(c.APIKey))
	}
	// openai.NewClient would also read the environment.
	return &Model{
		api: c.API, key: c.APIKey, idle: c.IdleTimeout,
		completions: openai.NewChatCompletionService(options...),
		responses:   responses.NewResponseService(options...),
	}, nil
}

// Generate streams one reply. Apart from the error of ctx, its errors are *model.Error. They never contain the
// API key.
func (m *Model) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		out := model.FilterEvents(yield, m.key)
		if m.api == APIResponses {
			m.generateResponse(ctx, r, out)
			return
		}
		m.generateChat(ctx, r, out)
	}
}

func (m *Model) generateChat(ctx context.Context, r model.Request, yield func(model.Event, error) bool) {
	params, err := newChatParams(r)
	if err != nil {
		yield(nil, err)
		return
	}
	callCtx, call, end := providerhttp.NewCall(ctx, m.idle, responseError)
	defer end()
	stream := m.completions.NewStreaming(callCtx, params, option.WithMiddleware(callMiddleware(call)))
	streamReply(stream, newChatAssembler(len(r.Messages)), call, yield)
}

func (m *Model) generateResponse(ctx context.Context, r model.Request, yield func(model.Event, error) bool) {
	params, err := newResponseParams(r)
	if err != nil {
		yield(nil, err)
		return
	}
	callCtx, call, end := providerhttp.NewCall(ctx, m.idle, responseError)
	defer end()
	stream := m.responses.NewStreaming(callCtx, params, option.WithMiddleware(callMiddleware(call)))
	streamReply(stream, newResponseAssembler(len(r.Messages)), call, yield)
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

// assembler builds one reply from the chunks of a stream.
type assembler[T any] interface {
	// handle returns the model events of a chunk, possibly together with an error.
	handle(chunk T) ([]model.Event, error)
	// finish returns the last events, or an error if the reply was truncated.
	finish() ([]model.Event, error)
	// isFinished reports whether the reply has ended. Connection failures no longer matter then.
	isFinished() bool
	// isComplete reports whether everything has arrived.
	isComplete() bool
}

// streamReply yields the events of a stream and closes it.
func streamReply[T any](stream *ssestream.Stream[T], reply assembler[T], call *providerhttp.Call, yield func(model.Event, error) bool) {
	defer stream.Close()
	for !reply.isComplete() && stream.Next() {
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
	if err := stream.Err(); err != nil && (!reply.isFinished() || !providerhttp.IsConnectionFailure(err)) {
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
