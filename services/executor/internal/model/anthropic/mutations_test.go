package anthropic_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/anthropic"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

func TestMutatedStreamsGiveTheSameReply(t *testing.T) {
	t.Parallel()
	modeltest.RunMutations(t, "testdata/replies", modeltest.AnthropicMutations(), func(client *http.Client) (model.Model, error) {
		return anthropic.New(anthropic.Config{}, client)
	})
}
