package openai_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

func TestMutatedChatCompletionsGiveTheSameReply(t *testing.T) {
	t.Parallel()
	modeltest.RunMutations(t, "testdata/chat/replies", modeltest.ChatMutations(), func(client *http.Client) (model.Model, error) {
		return openai.New(openai.Config{}, client)
	})
}

func TestMutatedResponsesGiveTheSameReply(t *testing.T) {
	t.Parallel()
	modeltest.RunMutations(t, "testdata/responses/replies", modeltest.ResponseMutations(), func(client *http.Client) (model.Model, error) {
		return openai.New(openai.Config{API: openai.APIResponses}, client)
	})
}
