package executor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/anthropic"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/scripted"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/builtin"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// notesDirVariable is where the note tools write; see ProcessConfig.NotesDir.
const notesDirVariable = "HOLDFAST_EXECUTOR_NOTES_DIR"

// maxAgentsFile bounds files of agents and scripts, in bytes.
const maxAgentsFile = 8 << 20

// Agents is a set of agents with their models, ready to run. It is immutable.
type Agents struct{ list []worker.Agent }

// LoadAgents reads a YAML file of agents (see package internal/agents for its
// form). lookupEnv gives the environment variables that the file names, and
// HOLDFAST_EXECUTOR_NOTES_DIR.
//
// Invalid (AGENTS_INVALID): the detail has one line for each mistake, with the
// file's name and the line in it. NotFound (AGENTS_NOT_FOUND): there is no such file.
func LoadAgents(path string, lookupEnv func(string) (string, bool)) (*Agents, error) {
	data, err := readFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "AGENTS_NOT_FOUND", "there is no agents file %q", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the agents: %w", err)
	}
	return parseAgents(agents.Source{Name: path, Dir: filepath.Dir(path), Data: data}, lookupEnv)
}

// ParseAgents is LoadAgents for a file in memory. Relative paths in it are
// relative to dir. Errors call the file agents.yaml.
func ParseAgents(data []byte, dir string, lookupEnv func(string) (string, bool)) (*Agents, error) {
	return parseAgents(agents.Source{Name: "agents.yaml", Dir: dir, Data: data}, lookupEnv)
}

// With gives the agents of both sets; where both have an agent of one name, it is
// that of others.
func (a *Agents) With(others *Agents) *Agents {
	list := slices.Clone(others.list)
	for _, own := range a.list {
		if !slices.ContainsFunc(others.list, func(o worker.Agent) bool { return o.Name == own.Name }) {
			list = append(list, own)
		}
	}
	return sorted(list)
}

// Definitions gives the agents without their models, by name.
func (a *Agents) Definitions() []agent.Agent {
	definitions := make([]agent.Agent, len(a.list))
	for i, one := range a.list {
		definitions[i] = one.Agent
	}
	return definitions
}

func sorted(list []worker.Agent) *Agents {
	slices.SortFunc(list, func(a, b worker.Agent) int { return cmp.Compare(a.Name, b.Name) })
	return &Agents{list: list}
}

func parseAgents(source agents.Source, lookupEnv func(string) (string, bool)) (*Agents, error) {
	notesDir, _ := lookupEnv(notesDirVariable)
	parsed, err := agents.Parse(source, agents.Known{
		Tools:     builtin.Tools(builtin.Config{Now: time.Now, NotesDir: notesDir}),
		Providers: providers(lookupEnv),
	})
	if err != nil {
		return nil, err
	}
	list := make([]worker.Agent, len(parsed))
	for i, a := range parsed {
		list[i] = worker.Agent{Agent: a.Agent, Engine: a.Engine}
	}
	return sorted(list), nil
}

type provider = func(agents.Settings, string) (model.Model, error)

func providers(lookupEnv func(string) (string, bool)) map[string]provider {
	return map[string]provider{
		"openai": func(s agents.Settings, _ string) (model.Model, error) {
			key, err := apiKey(s, "OPENAI_API_KEY", lookupEnv)
			if err != nil {
				return nil, err
			}
			return openai.New(openai.Config{BaseURL: s.BaseURL, APIKey: key}, nil)
		},
		"anthropic": func(s agents.Settings, _ string) (model.Model, error) {
			key, err := apiKey(s, "ANTHROPIC_API_KEY", lookupEnv)
			if err != nil {
				return nil, err
			}
			return anthropic.New(anthropic.Config{BaseURL: s.BaseURL, APIKey: key}, nil)
		},
		"scripted": scriptedModel,
	}
}

// apiKey looks the key up. Without a name in the file, the provider's own
// variable counts, and a server at a base URL may do without a key.
func apiKey(s agents.Settings, standard string, lookupEnv func(string) (string, bool)) (string, error) {
	if s.Script != "" || s.File != "" {
		return "", errors.New("script and file are for the scripted provider only")
	}
	name := cmp.Or(s.APIKeyEnv, standard)
	key, _ := lookupEnv(name)
	if key == "" && (s.APIKeyEnv != "" || s.BaseURL == "") {
		return "", fmt.Errorf("the environment variable %s is not set; it must hold the API key", name)
	}
	return key, nil
}

func scriptedModel(s agents.Settings, dir string) (model.Model, error) {
	if s.BaseURL != "" || s.APIKeyEnv != "" {
		return nil, errors.New("baseURL and apiKeyEnv are not for the scripted provider")
	}
	if (s.Script == "") == (s.File == "") {
		return nil, errors.New("give either script, with the script itself, or file")
	}
	source := []byte(s.Script)
	if s.File != "" {
		path := s.File
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		var err error
		if source, err = readFile(path); err != nil {
			return nil, fmt.Errorf("the script cannot be read: %w", err)
		}
	}
	script, err := scripted.Parse(source)
	if err != nil {
		return nil, err
	}
	return scripted.New(script), nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxAgentsFile {
		return nil, fmt.Errorf("%s has %d bytes, %d are allowed", path, info.Size(), maxAgentsFile)
	}
	return os.ReadFile(path)
}
