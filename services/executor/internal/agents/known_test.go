package agents

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// silentModel is a model with settings and no replies.
type silentModel struct{ settings Settings }

func (silentModel) Generate(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(func(model.Event, error) bool) {}
}

// testKnown has two tools, three kinds of providers, and the model "mine".
func testKnown() Known {
	return Known{
		Tools:     map[string]agent.Tool{"calculate": builtIn("calculate"), "note": builtIn("note")},
		Providers: []string{"anthropic", "openai", "scripted"},
		Models:    map[string]model.Model{"mine": silentModel{}},
		Open: func(s Settings) (model.Model, error) {
			if s.Name == "openai" && s.APIKeyEnv == "" {
				return nil, errors.New("the environment variable OPENAI_API_KEY is not set")
			}
			return silentModel{s}, nil
		},
	}
}

func builtIn(name string) agent.Tool {
	return agent.Tool{
		Name: name, InputSchema: json.RawMessage(`{"type":"object"}`),
		Execute: func(context.Context, *agent.Call) (any, error) { return nil, nil },
	}
}

// writeFiles writes files to a new folder.
func writeFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// parseOne parses a file with one agent.
func parseOne(t *testing.T, text string) Agent {
	t.Helper()
	set, err := Parse(t.Context(), Source{Name: "agents.yaml", Data: []byte(text)}, testKnown())
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Agents) != 1 {
		t.Fatalf("there are %d agents, want 1", len(set.Agents))
	}
	return set.Agents[0]
}

// columns matches the column of a place.
var columns = regexp.MustCompile(`(:\d+):\d+: `)

// wantMistakes checks that a file is invalid and that the error has all the texts, without columns.
func wantMistakes(t *testing.T, err error, want ...string) {
	t.Helper()
	if f, ok := fault.From(err); !ok || f.Kind != fault.Invalid || f.Reason != "AGENTS_INVALID" {
		t.Fatalf("error = %v, want AGENTS_INVALID", err)
	}
	text := columns.ReplaceAllString(err.Error(), "$1: ")
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("error = %v\nwant it to have %q", err, w)
		}
	}
}
