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

// mute is a model of which only its settings matter.
type mute struct{ settings Settings }

func (mute) Generate(context.Context, model.Request) iter.Seq2[model.Event, error] {
	return func(func(model.Event, error) bool) {}
}

// house knows two tools, three kinds of models, and a model of one's own.
func house() Known {
	return Known{
		Tools:     map[string]agent.Tool{"calculate": built("calculate"), "note": built("note")},
		Providers: []string{"anthropic", "openai", "scripted"},
		Models:    map[string]model.Model{"mine": mute{}},
		Open: func(s Settings) (model.Model, error) {
			if s.Name == "openai" && s.APIKeyEnv == "" {
				return nil, errors.New("the environment variable OPENAI_API_KEY is not set")
			}
			return mute{s}, nil
		},
	}
}

func built(name string) agent.Tool {
	return agent.Tool{
		Name: name, InputSchema: json.RawMessage(`{"type":"object"}`),
		Execute: func(context.Context, *agent.Call) (any, error) { return nil, nil },
	}
}

// write makes files below a new folder.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		put(t, filepath.Join(dir, name), text)
	}
	return dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// one parses a file with one agent.
func one(t *testing.T, text string) Agent {
	t.Helper()
	set, err := Parse(t.Context(), Source{Name: "agents.yaml", Data: []byte(text)}, house())
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

// refused checks that a file is invalid and that the error has all the texts, without columns.
func refused(t *testing.T, err error, want ...string) {
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
