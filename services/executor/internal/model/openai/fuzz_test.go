package openai_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

func FuzzChatCompletions(f *testing.F) {
	modeltest.FuzzReplies(f, "testdata/chat/replies", func(c *http.Client) (model.Model, error) {
		return openai.New(openai.Config{BaseURL: "http://127.0.0.1/v1", APIKey: modeltest.Key}, c)
	})
}

func FuzzResponses(f *testing.F) {
	modeltest.FuzzReplies(f, "testdata/responses/replies", func(c *http.Client) (model.Model, error) {
		return openai.New(openai.Config{BaseURL: "http://127.0.0.1/v1", APIKey: modeltest.Key, API: openai.APIResponses}, c)
	})
}
