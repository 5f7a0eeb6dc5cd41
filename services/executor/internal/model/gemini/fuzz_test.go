package gemini_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/gemini"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

func FuzzReplies(f *testing.F) {
	modeltest.FuzzReplies(f, "testdata/replies", func(c *http.Client) (model.Model, error) {
		return gemini.New(gemini.Config{BaseURL: "http://127.0.0.1", APIKey: modeltest.Key}, c)
	})
}
