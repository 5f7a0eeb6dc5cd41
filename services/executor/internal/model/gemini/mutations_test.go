package gemini_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/gemini"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

func TestMutatedStreamsGiveTheSameReply(t *testing.T) {
	t.Parallel()
	modeltest.RunMutations(t, "testdata/replies", modeltest.GeminiMutations(), func(client *http.Client) (model.Model, error) {
		return gemini.New(gemini.Config{}, client)
	})
}
