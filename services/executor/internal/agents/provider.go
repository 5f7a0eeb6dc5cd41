package agents

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Settings is what files say of a provider.
type Settings struct {
	// Name is how agents name it; Provider is its kind.
	Name, Provider string
	// API of openai: chat or responses; empty is its own choice.
	API string
	// BaseURL is the provider's own when empty.
	BaseURL string
	// APIKeyEnv names the environment variable with the key; empty is the provider's own.
	APIKeyEnv string
	// Script is what a scripted model says.
	Script string
	// IdleTimeout ends a call that gave no byte for so long; 0 is the provider's own.
	IdleTimeout time.Duration
}

// provider is a provider that was declared, with its model.
type provider struct {
	at       value
	settings Settings
	model    model.Model // nil when there is a mistake in it
}

// provider reads the settings of a provider.
func (r *reader) provider(m member) {
	o := r.object(m.value, m.name)
	at := m.value
	s := Settings{
		Name: m.name, Provider: o.text("provider"), API: o.oneOf("api", "chat", "responses"),
		BaseURL: o.text("baseURL"), APIKeyEnv: o.text("apiKeyEnv"), IdleTimeout: o.duration("idleTimeout"),
	}
	before := len(r.mistakes)
	if s.Provider == "" {
		s.Provider = m.name
	}
	script := r.script(o, &s)
	o.end()
	switch known := r.known.Providers; {
	case strings.Contains(m.name, "/") || m.name == "":
		r.mistake(at, "the provider %q has a slash in its name, or none", m.name)
	case !slices.Contains(known, s.Provider):
		r.mistake(at, "there is no provider %q; known: %s%s", s.Provider, strings.Join(known, ", "), meant(s.Provider, known))
	case s.Provider == "scripted" && (s.BaseURL != "" || s.APIKeyEnv != "" || s.IdleTimeout != 0):
		r.mistake(at, "%s: baseURL, apiKeyEnv and idleTimeout are not for the scripted provider", m.name)
	case s.Provider == "scripted" && !script:
		r.mistake(at, "%s: give either script, with the script itself, or file", m.name)
	case s.Provider != "scripted" && script:
		r.mistake(at, "%s: script and file are for the scripted provider only", m.name)
	case s.Provider != "openai" && s.API != "":
		r.mistake(at, "%s: api is for the openai provider only", m.name)
	}
	r.addProvider(at, s, len(r.mistakes) > before)
}

// script reads a script and reports whether there is one of it.
func (r *reader) script(o *object, s *Settings) bool {
	s.Script = o.text("script")
	if !o.has("file") {
		return s.Script != ""
	}
	if source, ok := r.content(o, "file"); ok && s.Script == "" {
		s.Script = string(source.Data)
		return true
	}
	return s.Script == ""
}

// addProvider opens a provider, once for all files that declare it alike.
func (r *reader) addProvider(at value, s Settings, broken bool) {
	if former, ok := r.providers[s.Name]; ok {
		if former.settings != s {
			r.mistake(at, "the provider %q is declared otherwise at %s:%d", s.Name, former.at.file.name, former.at.line)
		}
		return
	}
	p := &provider{at: at, settings: s}
	r.providers[s.Name] = p
	if broken {
		return
	}
	m, err := r.known.Open(s)
	if err != nil {
		r.mistake(at, "%s: %v", s.Name, err)
		return
	}
	p.model = m
}

// model gives the model that an agent names as provider/name.
func (r *reader) model(o *object, at value, full string) (model.Model, bool) {
	name, rest, ok := strings.Cut(full, "/")
	if !ok || name == "" || rest == "" {
		o.wrong = append(o.wrong, "model", "fallbacks")
		r.mistake(at, "%s: the model is %q, it must be provider/name, for example openai/gpt-5", o.what, full)
		return nil, false
	}
	if p, ok := r.providers[name]; ok {
		return p.model, p.model != nil
	}
	if m, ok := r.known.Models[name]; ok {
		return m, true
	}
	if !slices.Contains(r.known.Providers, name) {
		known := slices.Clone(r.known.Providers)
		for declared := range r.providers {
			known = append(known, declared)
		}
		slices.Sort(known)
		known = slices.Compact(known)
		r.mistake(at, "%s: there is no provider %q; known: %s%s", o.what, name, strings.Join(known, ", "), meant(name, known))
		return nil, false
	}
	// Without settings a provider is what it is by custom. Where that is not enough, every
	// agent that names it is told.
	m, err := r.known.Open(Settings{Name: name, Provider: name})
	if err != nil {
		r.mistake(at, "%s: the provider %q has no settings under \"models\", and without them: %v", o.what, name, err)
		return nil, false
	}
	r.providers[name] = &provider{at: at, settings: Settings{Name: name, Provider: name}, model: m}
	return m, true
}
