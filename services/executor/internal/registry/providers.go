package registry

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/anthropic"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/gemini"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/openai"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/scripted"
)

// ModelConfig configures a model for OpenModel.
type ModelConfig struct {
	// Provider is anthropic, gemini, openai or scripted.
	Provider string
	// BaseURL is the provider's own when empty. Not for scripted.
	BaseURL string
	// APIKey may be empty for a server that needs none. Not for scripted.
	APIKey string
	// API of openai: chat or responses; empty is chat.
	API string
	// Script is the script of a scripted model, in YAML.
	Script string
	// IdleTimeout ends a call without a byte for so long; 0 is the provider's own.
	IdleTimeout time.Duration
	// Profile says what a server with the API of OpenAI accepts: the name of a profile, or a JSON object of fields that may name one as
	// "base". Empty chooses by base URL and model. See docs/model-servers.md.
	Profile string
	// ModelProfiles is a JSON object of the profiles of single models, by name, in place of Profile. Empty for none.
	ModelProfiles string
}

// OpenModel makes a model of a built-in provider, for Registry.Model: for example of a server
// with the API of OpenAI under another name and address, or of a script.
func OpenModel(c ModelConfig) (model.Model, error) {
	switch c.Provider {
	case "openai":
		return openai.New(openai.Config{
			API: c.API, BaseURL: c.BaseURL, APIKey: c.APIKey, IdleTimeout: c.IdleTimeout, Profile: c.Profile, ModelProfiles: c.ModelProfiles,
		}, nil)
	case "anthropic":
		return anthropic.New(anthropic.Config{BaseURL: c.BaseURL, APIKey: c.APIKey, IdleTimeout: c.IdleTimeout}, nil)
	case "gemini":
		return gemini.New(gemini.Config{BaseURL: c.BaseURL, APIKey: c.APIKey, IdleTimeout: c.IdleTimeout}, nil)
	case "scripted":
		script, err := scripted.Parse([]byte(c.Script))
		if err != nil {
			return nil, err
		}
		return scripted.New(script), nil
	}
	return nil, fmt.Errorf("there is no provider %q; known: %s", c.Provider, strings.Join(providers(), ", "))
}

// providers returns the names of the built-in providers.
func providers() []string { return []string{"anthropic", "gemini", "openai", "scripted"} }

// remote is a built-in provider with servers of its own.
type remote struct {
	baseURL      string
	keyVariables []string // customary names of variables with the API key
	urlVariables []string // and with another base URL
}

// remoteProvider returns a built-in provider with servers of its own.
func remoteProvider(name string) (remote, bool) {
	switch name {
	case "openai":
		return remote{openai.DefaultBaseURL, []string{"OPENAI_API_KEY"}, []string{"OPENAI_BASE_URL"}}, true
	case "anthropic":
		return remote{anthropic.DefaultBaseURL, []string{"ANTHROPIC_API_KEY"}, []string{"ANTHROPIC_BASE_URL"}}, true
	case "gemini":
		return remote{gemini.DefaultBaseURL, []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}, nil}, true
	}
	return remote{}, false
}

// openRemote makes the model of a provider, configured by its customary environment variables.
func openRemote(provider string, lookupEnv func(string) (string, bool)) (model.Model, error) {
	r, ok := remoteProvider(provider)
	if !ok {
		return nil, errors.New("it is unknown; register a model for it with Registry.Model")
	}
	key, url := firstSet(lookupEnv, r.keyVariables), firstSet(lookupEnv, r.urlVariables)
	if key == "" && url == "" {
		return nil, fmt.Errorf("the environment variable %s is not set; it must hold the API key", r.keyVariables[0])
	}
	return OpenModel(ModelConfig{Provider: provider, BaseURL: url, APIKey: key})
}

// firstSet returns the value of the first variable with one.
func firstSet(lookupEnv func(string) (string, bool), names []string) (value string) {
	for _, name := range names {
		found, _ := lookupEnv(name)
		value = cmp.Or(value, found)
	}
	return value
}
