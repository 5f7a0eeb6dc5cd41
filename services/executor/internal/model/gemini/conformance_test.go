package gemini_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/gemini"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
)

func TestTheModelConforms(t *testing.T) {
	t.Parallel()
	modeltest.RunHTTP(t, modeltest.Provider{
		Dir: "testdata/replies",
		Connect: func(t *testing.T, server *modeltest.Server) model.Model {
			return connect(t, server, gemini.Config{})
		},
		CallIDs: [2]string{"fn_1", "fn_2"},
	})
}

func TestCallsTimeOutWhenIdle(t *testing.T) {
	t.Parallel()
	modeltest.RunIdleTimeout(t, func(t *testing.T, client *http.Client, idle time.Duration) model.Model {
		m, err := gemini.New(gemini.Config{IdleTimeout: idle}, client)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}, stream(chunk(`{"text":"a"}`, "")))
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	modeltest.RunRedirect(t, func(t *testing.T, baseURL string) model.Model {
		m, err := gemini.New(gemini.Config{BaseURL: baseURL, APIKey: modeltest.Key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

// connect returns a model that calls the server.
func connect(t *testing.T, server *modeltest.Server, c gemini.Config) *gemini.Model {
	t.Helper()
	c.BaseURL = server.URL + "/v1beta"
	c.APIKey = modeltest.Key
	m, err := gemini.New(c, server.Client)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
