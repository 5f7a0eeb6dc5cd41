package anthropic_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/anthropic"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

func TestTheModelConforms(t *testing.T) {
	t.Parallel()
	modeltest.RunHTTP(t, modeltest.Provider{
		Dir: "testdata/replies",
		Connect: func(t *testing.T, server *modeltest.Server) model.Model {
			return connect(t, server, anthropic.Config{})
		},
		CallIDs:    [2]string{"toolu_01", "toolu_02"},
		Terminator: "event: message_stop\ndata: {\"type\":\"message_stop\"}",
	})
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	modeltest.RunRedirect(t, func(t *testing.T, baseURL string) model.Model {
		m, err := anthropic.New(anthropic.Config{BaseURL: baseURL, APIKey: modeltest.Key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

// connect returns a model that calls the server.
func connect(t *testing.T, server *modeltest.Server, c anthropic.Config) *anthropic.Model {
	t.Helper()
	c.BaseURL = server.URL
	c.APIKey = modeltest.Key
	m, err := anthropic.New(c, server.Client)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
