package openai_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
)

// wires are the ways to write an event stream that mean the same.
var wires = map[string]modeltest.Wire{
	"plain":                   {},
	"lines that end in CR LF": {CRLF: true},
	"comments between events": {Comments: true},
	"a few bytes at a time":   {Write: 7},
	"all of this at once":     {CRLF: true, Comments: true, Write: 11},
}

func TestChatCompletionsAreAModel(t *testing.T) {
	t.Parallel()
	for name, wire := range wires {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modeltest.Run(t, func(t *testing.T, reply modeltest.Reply) model.Model {
				return connect(t, modeltest.NewServer(t, "testdata/replies", reply, wire), openai.Config{})
			})
		})
	}
}

// connect makes a model that calls the server.
func connect(t *testing.T, server *modeltest.Server, c openai.Config) *openai.Model {
	t.Helper()
	c.BaseURL = server.URL + "/v1"
	c.APIKey = "sk-test"
	m, err := openai.New(c, server.Client)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
