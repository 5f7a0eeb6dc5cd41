package agents

import (
	"encoding/json"
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
	o := newObject(m.value, m.name)
	s := Settings{
		Name: m.name, Provider: o.text("provider"), API: o.oneOf("api", "chat", "responses"),
		BaseURL: o.text("baseURL"), APIKeyEnv: o.text("apiKeyEnv"), IdleTimeout: o.duration("idleTimeout"),
	}
	if s.Provider == "" {
		s.Provider = m.name
	}
	s.Profile = readProfile(o)
	s.ModelProfiles = readModelProfiles(o)
	script := readScript(o, &s)
	limits := readProviderLimits(o, m.name)
	o.end()
	switch known := p.known.Providers; {
	case strings.Contains(m.name, "/") || m.name == "":
		m.mistake("the provider name %q is empty or has a slash", m.name)
	case !slices.Contains(known, s.Provider):
		m.mistake("there is no provider %q; known: %s%s", s.Provider, strings.Join(known, ", "), suggest(s.Provider, known))
	case s.Provider == "scripted" && (s.BaseURL != "" || s.APIKeyEnv != "" || s.IdleTimeout != 0):
		o.mistake("%s: baseURL, apiKeyEnv and idleTimeout are not for the scripted provider", m.name)
	case s.Provider == "scripted" && !script:
		o.mistake("%s: give either script, with the script itself, or file", m.name)
	case s.Provider != "scripted" && script:
		o.mistake("%s: script and file are for the scripted provider only", m.name)
	case s.Provider != "openai" && s.API != "":
		o.mistake("%s: api is for the openai provider only", m.name)
	case s.Provider != "openai" && (s.Profile != "" || s.ModelProfiles != ""):
		o.mistake("%s: profile and modelProfiles are for the openai provider only", m.name)
	}
	p.open(m.value, s, limits, m.file.count() > before)
}

// readScript reads the script of a scripted model. ok is false for none, and for two.
func readScript(o *object, s *Settings) (ok bool) {
	s.Script = o.text("script")
	if !o.has("file") {
		return s.Script != ""
	}
	if source, ok := o.content("file"); ok && s.Script == "" {
		s.Script = string(source.Data)
		return true
	}
	return s.Script == ""
}

// readProfile reads the profile of a server: a name, or an object of fields.
func readProfile(o *object) string {
	v, ok := o.field("profile")
	if !ok {
		return ""
	}
	return profileOf(v, o.prefix()+"profile")
}

func readModelProfiles(o *object) string {
	profiles := map[string]json.RawMessage{}
	for _, m := range o.entries("modelProfiles") {
		if text := profileOf(m.value, o.prefix()+"modelProfiles: "+m.name); text != "" {
			profiles[m.name] = json.RawMessage(text)
		}
	}
	if len(profiles) == 0 {
		return ""
	}
	// What was written as JSON can be encoded.
	text, _ := json.Marshal(profiles)
	return string(text)
}

// profileOf returns a profile as JSON, "" for one with a mistake.
func profileOf(v value, what string) string {
	text := v.json()
	if _, err := profile.ParseOverride(text); err != nil {
		v.mistake("%s: %v", what, err)
		return ""
	}
	return string(text)
}

// readProviderLimits reads the limits of a provider and of its models.
func readProviderLimits(o *object, provider string) (l model.ProviderLimits) {
	if v, ok := o.field("limits"); ok {
		l.Limits = readLimits(v, o.prefix()+"limits")
		if !model.CanBeLimited(provider, "") {
			v.mistake("%slimits: the name of the provider has at most 255 bytes without control characters", o.prefix())
		}
	}
	for _, m := range o.entries("modelLimits") {
		if l.Models == nil {
			l.Models = map[string]model.Limits{}
		}
		if m.name == "" || !model.CanBeLimited(provider, m.name) {
			m.mistake("%smodelLimits: provider/name has at most 256 bytes without control characters, not %.300q", o.prefix(), provider+"/"+m.name)
		}
		l.Models[m.name] = readLimits(m.value, o.prefix()+"modelLimits: "+m.name)
	}
	return l
}

func readLimits(v value, what string) model.Limits {
	before := v.file.count()
	o := newObject(v, what)
	limit := func(name string) int64 { return int64(o.integer(name, 1, model.MaxLimit)) }
	l := model.Limits{RequestsPerMinute: limit("requestsPerMinute"), TokensPerMinute: limit("tokensPerMinute"), Concurrency: limit("concurrency")}
	o.end()
	if l == (model.Limits{}) && v.file.count() == before {
		v.mistake("%s: give at least one of requestsPerMinute, tokensPerMinute and concurrency", what)
	}
	return l
}

// open opens a provider, once for all files with the same settings.
func (p *providers) open(at value, s Settings, limits model.ProviderLimits, wrong bool) {
	if former, ok := p.declared[s.Name]; ok {
		if !former.equals(s, limits) {
			at.mistake("the provider %q is declared differently at %s:%v", s.Name, former.at.file.name, former.at.place)
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
func (p *providers) find(o *object, at value, full string) (m model.Model, ok bool) {
	name, rest, ok := strings.Cut(full, "/")
	if !ok || name == "" || rest == "" {
		o.wrong = append(o.wrong, "model", "fallbacks")
		at.mistake("%s: the model is %q, it must be provider/name, for example openai/gpt-5", o.what, full)
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
		at.mistake("%s: there is no provider %q; known: %s%s", o.what, name, strings.Join(known, ", "), suggest(name, known))
		return nil, false
	}
	// A known provider needs no settings. If it cannot be opened without, each agent reports it.
	m, err := p.known.Open(Settings{Name: name, Provider: name})
	if err != nil {
		at.mistake("%s: the provider %q has no settings under \"models\", and without them: %v", o.what, name, err)
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
