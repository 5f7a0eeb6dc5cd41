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

	"github.com/holdfast-run/holdfast/services/executor/internal/line"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// DefaultBaseURL is OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

// DefaultIdleTimeout outlasts the silence of a model that reasons.
const DefaultIdleTimeout = 5 * time.Minute

// Config says where the models are.
type Config struct {
	// BaseURL is the part of the URL before /chat/completions; DefaultBaseURL when empty.
	BaseURL string `env:"BASE_URL" doc:"where chat completions are served; empty means OpenAI"`
	// APIKey is sent as a bearer token, or not at all when empty.
	APIKey string `env:"API_KEY" doc:"the key of the OpenAI API, or of the server at the base URL"`
	// IdleTimeout ends a call that gave no byte for so long; DefaultIdleTimeout when 0.
	IdleTimeout time.Duration `env:"IDLE_TIMEOUT" doc:"ends a model call that gives no byte for so long; 0 means 5m"`
}

// Model calls chat completions. Safe for concurrent use.
type Model struct {
	completions openai.ChatCompletionService
	idle        time.Duration
}

var _ model.Model = (*Model)(nil)

// New makes a model that calls through client; nil means http.DefaultClient. It
// refuses a base URL that is not an absolute http or https URL.
func New(c Config, client *http.Client) (*Model, error) {
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	if client == nil {
		client = http.DefaultClient
	}
	base, err := url.Parse(c.BaseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("openai: the base URL %q is not an http or https URL", c.BaseURL)
	}
	options := []option.RequestOption{
		option.WithBaseURL(base.JoinPath("/").String()),
		option.WithHTTPClient(client),
		option.WithMaxRetries(0),
	}
	if c.APIKey != "" {
		options = append(options, option.WithAPIKey(c.APIKey))
	}
	// openai.NewClient would read the environment; the service by itself does not.
	return &Model{completions: openai.NewChatCompletionService(options...), idle: c.IdleTimeout}, nil
}

// Generate streams one chat completion. All its errors are *model.Error, except
// for that of ctx.
func (m *Model) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		params, err := request(r)
		if err != nil {
			yield(nil, err)
			return
		}
		calling, call, hangUp := line.Dial(ctx, m.idle, refusal)
		defer hangUp()
		stream := m.completions.NewStreaming(calling, params, option.WithMiddleware(call.Send))
		defer stream.Close()

		reply := newReply(len(r.Messages))
		for !reply.whole() && stream.Next() {
			events, err := reply.take(stream.Current())
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
		if err := stream.Err(); err != nil && (!reply.finished() || !line.Broken(err)) {
			yield(nil, call.Failure(spoken(err)))
			return
		}
		events, err := reply.end()
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			// A body may end quietly because the call was given up.
			yield(nil, call.Failure(spoken(err)))
		}
	}
}
