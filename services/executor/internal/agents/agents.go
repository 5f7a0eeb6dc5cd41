// Package agents reads agents from YAML:
//
//	models:
//	  openai: {apiKeyEnv: OPENAI_API_KEY}
//	  anthropic: {baseURL: https://proxy.example, apiKeyEnv: ANTHROPIC_API_KEY}
//	  scripted: {file: demo-script.yaml}     # or script: |  with the script itself
//	agents:
//	  - name: demo
//	    description: Answers questions.
//	    model: scripted/demo                 # provider/name
//	    systemPrompt: You are helpful.
//	    tools: [current_time, calculate]
//	    maxSteps: 10
//	    maxOutputTokens: 1000
//	    temperature: 0.7
//
// Secrets are not written in the file: it names environment variables.
package agents

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Limits of what the file may say.
const (
	// maxDescription is what an announcement to the state service may hold, in bytes.
	maxDescription = 4096
	maxName        = 256 // bytes, as for every id
	maxSteps       = 10_000
)

// Source is a file of agents.
type Source struct {
	Name string // for errors
	Dir  string // what relative paths in it are relative to
	Data []byte
}

// Settings is what the file says of a provider.
type Settings struct {
	// BaseURL is the provider's own when empty.
	BaseURL string `yaml:"baseURL"`
	// APIKeyEnv names the environment variable with the key.
	APIKeyEnv string `yaml:"apiKeyEnv"`
	// Script is a script of the scripted model, File a file with one, relative
	// to the folder of the agents file.
	Script string `yaml:"script"`
	File   string `yaml:"file"`
}

// Known is what files may refer to.
type Known struct {
	Tools map[string]agent.Tool
	// Providers make models from settings. Each error is one of the file.
	Providers map[string]func(s Settings, dir string) (model.Model, error)
}

// Agent is an agent with its model.
type Agent struct {
	agent.Agent
	Engine model.Model
}

type file struct {
	Models map[string]*Settings `yaml:"models"`
	Agents []declaration        `yaml:"agents"`
}

type declaration struct {
	Name            string   `yaml:"name"`
	Description     string   `yaml:"description"`
	Model           string   `yaml:"model"`
	SystemPrompt    string   `yaml:"systemPrompt"`
	Tools           []string `yaml:"tools"`
	MaxSteps        int      `yaml:"maxSteps"`
	MaxOutputTokens int      `yaml:"maxOutputTokens"`
	Temperature     *float64 `yaml:"temperature"`
}

// Parse reads a file of agents. All that is wrong with it is told at once:
// Invalid (AGENTS_INVALID), a line of the detail for each mistake, each with the
// name of the file and the line in it.
func Parse(s Source, known Known) ([]Agent, error) {
	r := &reader{source: s, known: known, models: map[string]model.Model{}}
	if err := r.read(); err != nil {
		return nil, err
	}
	list := r.agents()
	if len(r.mistakes) > 0 {
		return nil, fault.New(fault.Invalid, "AGENTS_INVALID", "%s", strings.Join(r.mistakes, "\n"))
	}
	return list, nil
}

type reader struct {
	source   Source
	known    Known
	tree     *ast.File
	file     file
	models   map[string]model.Model // by provider
	broken   map[string]bool        // providers with a mistake
	mistakes []string
}

func (r *reader) read() error {
	tree, err := parser.ParseBytes(r.source.Data, 0)
	if err != nil {
		return r.unreadable(err)
	}
	r.tree = tree
	decoder := yaml.NewDecoder(strings.NewReader(string(r.source.Data)), yaml.Strict())
	if err := decoder.Decode(&r.file); err != nil && !errors.Is(err, io.EOF) {
		return r.unreadable(err)
	}
	if len(r.tree.Docs) > 1 {
		return fault.New(fault.Invalid, "AGENTS_INVALID", "%s: more than one YAML document; put all agents into the first", r.source.Name)
	}
	return nil
}

func (r *reader) unreadable(err error) error {
	if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
		return fault.New(fault.Invalid, "AGENTS_INVALID", "%s:%d: %s", r.source.Name, e.GetToken().Position.Line, e.GetMessage())
	}
	return fault.New(fault.Invalid, "AGENTS_INVALID", "%s: %v", r.source.Name, err)
}

// mistake notes what is wrong at a path of the file, or at the nearest path
// above it that the file has.
func (r *reader) mistake(path, format string, args ...any) {
	r.mistakes = append(r.mistakes, fmt.Sprintf("%s:%d: %s", r.source.Name, r.line(path), fmt.Sprintf(format, args...)))
}

func (r *reader) line(path string) int {
	for ; path != "$" && path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		p, err := yaml.PathString(path)
		if err != nil {
			continue
		}
		node, err := p.FilterFile(r.tree)
		if err == nil && node != nil && node.GetToken() != nil {
			return node.GetToken().Position.Line
		}
	}
	return 1
}

func (r *reader) agents() []Agent {
	r.broken = map[string]bool{}
	for _, provider := range slices.Sorted(maps.Keys(r.file.Models)) {
		r.provider(provider)
	}
	if len(r.file.Agents) == 0 {
		r.mistake("$.agents", `no agents: name at least one under "agents"`)
	}
	var list []Agent
	seen := map[string]bool{}
	for i, d := range r.file.Agents {
		path := fmt.Sprintf("$.agents[%d]", i)
		if seen[d.Name] {
			r.mistake(path+".name", "the agent %q is there twice", d.Name)
		}
		seen[d.Name] = true
		list = append(list, r.agent(path, d))
	}
	return list
}

func (r *reader) provider(name string) {
	path := "$.models." + name
	build, ok := r.known.Providers[name]
	if !ok {
		r.broken[name] = true
		r.mistake(path, "there is no provider %q; known: %s", name, names(r.known.Providers))
		return
	}
	settings := r.file.Models[name]
	if settings == nil {
		settings = &Settings{}
	}
	m, err := build(*settings, r.source.Dir)
	if err != nil {
		r.broken[name] = true
		r.mistake(path, "%s: %v", name, err)
		return
	}
	r.models[name] = m
}

func (r *reader) agent(path string, d declaration) Agent {
	a := Agent{Agent: agent.Agent{
		Name: d.Name, Description: d.Description, Model: d.Model, SystemPrompt: d.SystemPrompt,
		MaxSteps: d.MaxSteps, MaxOutputTokens: d.MaxOutputTokens, Temperature: d.Temperature,
	}}
	if problem := badName(d.Name); problem != "" {
		r.mistake(path+".name", "%s", problem)
	}
	if len(d.Description) > maxDescription || strings.ContainsRune(d.Description, 0) {
		r.mistake(path+".description", "agent %q: the description has %d bytes, it may have %d and no zero character", d.Name, len(d.Description), maxDescription)
	}
	a.Engine = r.model(path+".model", d)
	a.Tools = r.tools(path, d)
	if d.MaxSteps < 0 || d.MaxSteps > maxSteps {
		r.mistake(path+".maxSteps", "agent %q: maxSteps is %d, it must be between 1 and %d", d.Name, d.MaxSteps, maxSteps)
	}
	if d.MaxOutputTokens < 0 {
		r.mistake(path+".maxOutputTokens", "agent %q: maxOutputTokens is %d, it must be above 0", d.Name, d.MaxOutputTokens)
	}
	if t := d.Temperature; t != nil && (*t < 0 || *t > 2) {
		r.mistake(path+".temperature", "agent %q: temperature is %v, it must be between 0 and 2", d.Name, *t)
	}
	return a
}

func (r *reader) model(path string, d declaration) model.Model {
	provider, name, ok := strings.Cut(d.Model, "/")
	switch {
	case !ok || provider == "" || name == "":
		r.mistake(path, "agent %q: the model is %q, it must be provider/name, for example openai/gpt-5", d.Name, d.Model)
	case r.models[provider] == nil && !r.broken[provider]:
		if _, known := r.known.Providers[provider]; known {
			r.mistake(path, "agent %q: the provider %q has no settings; add it under \"models\"", d.Name, provider)
		} else {
			r.mistake(path, "agent %q: there is no provider %q; known: %s", d.Name, provider, names(r.known.Providers))
		}
	}
	return r.models[provider]
}

func (r *reader) tools(path string, d declaration) []agent.Tool {
	var tools []agent.Tool
	seen := map[string]bool{}
	for i, name := range d.Tools {
		at := fmt.Sprintf("%s.tools[%d]", path, i)
		tool, ok := r.known.Tools[name]
		switch {
		case seen[name]:
			r.mistake(at, "agent %q: the tool %q is there twice", d.Name, name)
		case !ok:
			r.mistake(at, "agent %q: there is no tool %q; known: %s", d.Name, name, names(r.known.Tools))
		default:
			tools = append(tools, tool)
		}
		seen[name] = true
	}
	return tools
}

// badName says what is wrong with the name of an agent, "" when nothing is.
func badName(name string) string {
	switch {
	case name == "":
		return "the agent has no name"
	case len(name) > maxName:
		return fmt.Sprintf("the agent's name has %d bytes, %d are allowed", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Sprintf("the agent's name %q has control characters", name)
	}
	return ""
}

func names[V any](m map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}
