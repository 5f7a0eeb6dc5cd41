package openai_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

func TestChatCompletionsConform(t *testing.T) {
	t.Parallel()
	modeltest.RunHTTP(t, modeltest.Provider{
		Dir: "testdata/chat/replies",
		Connect: func(t *testing.T, server *modeltest.Server) model.Model {
			return connect(t, server, openai.Config{})
		},
		CallIDs:    [2]string{"call_Ab1", "call_Ab2"},
		Terminator: "data: [DONE]",
	})
}

func TestResponsesConform(t *testing.T) {
	t.Parallel()
	modeltest.RunHTTP(t, modeltest.Provider{
		Dir: "testdata/responses/replies",
		Connect: func(t *testing.T, server *modeltest.Server) model.Model {
			return connect(t, server, openai.Config{API: openai.APIResponses})
		},
		CallIDs: [2]string{"call_Ab1", "call_Ab2"},
	})
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, api := range []string{openai.APIChat, openai.APIResponses} {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			modeltest.RunRedirect(t, func(t *testing.T, baseURL string) model.Model {
				m, err := openai.New(openai.Config{API: api, BaseURL: baseURL, APIKey: modeltest.Key}, nil)
				if err != nil {
					t.Fatal(err)
				}
				return m
			})
		})
	}
}

// connect returns a model that calls the server.
func connect(t *testing.T, server *modeltest.Server, c openai.Config) *openai.Model {
	t.Helper()
	c.BaseURL = server.URL + "/v1"
	c.APIKey = modeltest.Key
	m, err := openai.New(c, server.Client)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
