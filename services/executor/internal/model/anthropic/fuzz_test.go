package anthropic_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/anthropic"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

func FuzzReplies(f *testing.F) {
	modeltest.FuzzReplies(f, "testdata/replies", func(c *http.Client) (model.Model, error) {
		return anthropic.New(anthropic.Config{BaseURL: "http://127.0.0.1", APIKey: modeltest.Key}, c)
	})
}
