package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

// Settings are the settings of a provider in a file.
type Settings struct {
	// Name is the name in the models of agents; Provider is the kind.
	Name, Provider string
	// API of openai: chat or responses; empty for the default.
	API string
	// BaseURL is empty for the provider's own.
	BaseURL string
	// APIKeyEnv is the environment variable with the key; empty for the provider's usual one.
	APIKeyEnv string
	// Script is the script of a scripted model.
	Script string
	// IdleTimeout ends a call after this long without a byte; 0 for the default.
	IdleTimeout time.Duration
	// Profile is the profile of the server as JSON: see profile.ParseOverride. Empty chooses by address and model.
	Profile string
	// ModelProfiles is a JSON object of the profiles of single models, by name. Empty for none.
	ModelProfiles string
}

// providers finds models by the name of their provider.
type providers struct {
	known    Known
	declared map[string]*provider
}

// provider is a provider of a file.
type provider struct {
	at       value
	settings Settings
	limits   model.ProviderLimits
	model    model.Model // nil for a provider with a mistake
}

// equals reports whether another file declares the provider in the same way.
func (p *provider) equals(s Settings, l model.ProviderLimits) bool {
	return p.settings == s && p.limits.Limits == l.Limits && maps.Equal(p.limits.Models, l.Models)
}

// declare reads the settings of a provider, and opens it.
func (p *providers) declare(m member) {
	before := m.file.count()
	var f struct {
		Settings
		Profile       json.RawMessage
		ModelProfiles map[string]json.RawMessage
		File          string
		Limits        model.Limits
		ModelLimits   map[string]model.Limits
	}
	o := read(m.value, "provider", m.name, &f)
	s := f.Settings
	s.Name, s.Provider = m.name, cmp.Or(s.Provider, m.name)
	s.Profile = o.profile("profile", f.Profile)
	profiles := map[string]json.RawMessage{}
	for _, name := range slices.Sorted(maps.Keys(f.ModelProfiles)) {
		if text := o.profile("modelProfiles: "+name, f.ModelProfiles[name]); text != "" {
			profiles[name] = json.RawMessage(text)
		}
	}
	if len(profiles) > 0 {
		text, _ := json.Marshal(profiles) // they were decoded from JSON
		s.ModelProfiles = string(text)
	}
	script := (s.Script != "") != (f.File != "")
	if f.File != "" {
		source, err := m.file.versions.read(m.file.path(f.File))
		if err != nil {
			o.mistakeAt("file", "file cannot be read: %v", err)
		}
		s.Script = cmp.Or(s.Script, string(source.Data))
	}
	if m.has("limits") && !model.CanBeLimited(m.name, "") {
		o.mistakeAt("limits", "limits: the name of the provider has at most 255 bytes without control characters")
	}
	limited, _ := m.field("modelLimits").members()
	for _, l := range limited {
		if f.ModelLimits != nil && (l.name == "" || !model.CanBeLimited(m.name, l.name)) {
			l.mistake("%s: modelLimits: provider/name has at most 256 bytes without control characters, not %.300q", m.name, m.name+"/"+l.name)
		}
	}
	switch known := p.known.Providers; {
	case strings.Contains(m.name, "/") || m.name == "":
		m.mistake("the provider name %q is empty or has a slash", m.name)
	case !slices.Contains(known, s.Provider):
		m.mistake("there is no provider %q; known: %s%s", s.Provider, strings.Join(known, ", "), suggest(s.Provider, known))
	case s.Provider == "scripted" && (s.BaseURL != "" || s.APIKeyEnv != "" || s.IdleTimeout != 0):
		m.mistake("%s: baseURL, apiKeyEnv and idleTimeout are not for the scripted provider", m.name)
	case s.Provider == "scripted" && !script:
		m.mistake("%s: give either script, with the script itself, or file", m.name)
	case s.Provider != "scripted" && (s.Script != "" || f.File != ""):
		m.mistake("%s: script and file are for the scripted provider only", m.name)
	case s.Provider != "openai" && s.API != "":
		m.mistake("%s: api is for the openai provider only", m.name)
	case s.Provider != "openai" && (s.Profile != "" || s.ModelProfiles != ""):
		m.mistake("%s: profile and modelProfiles are for the openai provider only", m.name)
	}
	p.open(m.value, s, model.ProviderLimits{Limits: f.Limits, Models: f.ModelLimits}, m.file.count() > before)
}

// profile returns a profile as JSON, "" for one with a mistake.
func (s *section) profile(name string, text json.RawMessage) string {
	path := strings.Replace(name, ": ", ".", 1)
	if s.wrong[path] {
		return ""
	}
	if _, err := profile.ParseOverride(text); err != nil {
		s.mistakeAt(path, "%s: %v", name, err)
		return ""
	}
	return string(text)
}

// open opens a provider, once for all files with the same settings.
func (p *providers) open(at value, s Settings, limits model.ProviderLimits, wrong bool) {
	if former, ok := p.declared[s.Name]; ok {
		if !former.equals(s, limits) {
			at.mistake("the provider %q is declared differently at %s:%v", s.Name, former.at.file.name, former.at.position)
		}
		return
	}
	opened := &provider{at: at, settings: s, limits: limits}
	p.declared[s.Name] = opened
	if wrong {
		return
	}
	m, err := p.known.Open(s)
	if err != nil {
		at.mistake("%s: %v", s.Name, err)
		return
	}
	opened.model = m
}

// find returns the model of a provider/name. ok is false if the provider is unknown or has a mistake.
func (p *providers) find(s *section, path string, at value, full string) (m model.Model, ok bool) {
	name, rest, ok := strings.Cut(full, "/")
	if !ok || name == "" || rest == "" {
		s.record(at, path, s.what, fmt.Sprintf("the model is %q; it must be provider/name, for example openai/gpt-5", full))
		return nil, false
	}
	if declared, ok := p.declared[name]; ok {
		return declared.model, declared.model != nil
	}
	if m, ok := p.known.Models[name]; ok {
		return m, true
	}
	if !slices.Contains(p.known.Providers, name) {
		known := slices.AppendSeq(slices.Clone(p.known.Providers), maps.Keys(p.declared))
		slices.Sort(known)
		known = slices.Compact(known)
		at.mistake("%s: there is no provider %q; known: %s%s", s.what, name, strings.Join(known, ", "), suggest(name, known))
		return nil, false
	}
	// A known provider needs no settings. If it cannot be opened without, each agent reports it.
	m, err := p.known.Open(Settings{Name: name, Provider: name})
	if err != nil {
		at.mistake("%s: the provider %q has no settings under \"models\", and without them: %v", s.what, name, err)
		return nil, false
	}
	p.declared[name] = &provider{at: at, settings: Settings{Name: name, Provider: name}, model: m}
	return m, true
}

// governors returns the governors of a model by provider/name; nil for none.
func (p *providers) governors(full string) []model.Governor {
	provider, name, _ := strings.Cut(full, "/")
	if declared, ok := p.declared[provider]; ok {
		return declared.limits.Governors(provider, name)
	}
	return nil
}
