package executor

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

// What a model of one's own implements and speaks: see Registry.Model.
type (
	// Model makes one reply to a conversation.
	Model = model.Model
	// ModelRequest is one call of a model.
	ModelRequest = model.Request
	// ModelTool is a tool as the model is told about it.
	ModelTool = model.Tool
	// ModelOutput is the shape of a reply that is JSON.
	ModelOutput = model.Output
	// ModelChoice says whether a model must call a tool.
	ModelChoice = model.Choice
	// ModelEvent is a piece of a reply: one of the types below.
	ModelEvent = model.Event
	// TextDelta is more text.
	TextDelta = model.TextDelta
	// ReasoningDelta is more of a reasoning block.
	ReasoningDelta = model.ReasoningDelta
	// ReasoningEnd ends a reasoning block.
	ReasoningEnd = model.ReasoningEnd
	// CallStart begins a tool call.
	CallStart = model.CallStart
	// CallDelta is more of the arguments of a call.
	CallDelta = model.CallDelta
	// CallEnd ends a call.
	CallEnd = model.CallEnd
	// Usage is the tokens of a reply.
	Usage = model.Usage
	// Finish ends a reply.
	Finish = model.Finish
	// FinishReason says why a model stopped.
	FinishReason = model.FinishReason
	// ModelError is a classified failure of a provider.
	ModelError = model.Error
)

// What a model may be asked for, and why it stopped.
const (
	ChoiceAuto          = model.ChoiceAuto
	ChoiceRequired      = model.ChoiceRequired
	ChoiceNone          = model.ChoiceNone
	FinishStop          = model.FinishStop
	FinishLength        = model.FinishLength
	FinishToolCalls     = model.FinishToolCalls
	FinishContentFilter = model.FinishContentFilter
	FinishError         = model.FinishError
	FinishOther         = model.FinishOther
)

// The codes of a ModelError.
const (
	CodeRateLimited     = model.CodeRateLimited
	CodeOverloaded      = model.CodeOverloaded
	CodeUnavailable     = model.CodeUnavailable
	CodeTimeout         = model.CodeTimeout
	CodeInvalidRequest  = model.CodeInvalidRequest
	CodeUnauthenticated = model.CodeUnauthenticated
	CodeDenied          = model.CodeDenied
	CodeNotFound        = model.CodeNotFound
	CodeInvalidResponse = model.CodeInvalidResponse
	CodeUnsupported     = model.CodeUnsupported
)

// ModelConfig says which model OpenModel makes.
type ModelConfig struct {
	// Provider is anthropic, gemini, openai or scripted.
	Provider string
	// BaseURL is the provider's own when empty. Not of scripted.
	BaseURL string
	// APIKey may be empty for a server that wants none. Not of scripted.
	APIKey string
	// API of openai: chat or responses; empty is chat.
	API string
	// Script is what a scripted model says, in YAML.
	Script string
	// IdleTimeout ends a call that gave no byte for so long; 0 is the provider's own.
	IdleTimeout time.Duration
}

// OpenModel makes a model of the kinds that Holdfast has, for Registry.Model: one that
// speaks as OpenAI does, under another name and address, or one that follows a script.
func OpenModel(c ModelConfig) (Model, error) {
	switch c.Provider {
	case "openai":
		return openai.New(openai.Config{API: c.API, BaseURL: c.BaseURL, APIKey: c.APIKey, IdleTimeout: c.IdleTimeout}, nil)
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
	return nil, fmt.Errorf("there is no provider %q; known: %s", c.Provider, strings.Join(providers, ", "))
}

// providers are the kinds of models that Holdfast has.
var providers = []string{"anthropic", "gemini", "openai", "scripted"}

// custom is where a provider's key and address are by custom.
type custom struct{ keys, urls []string }

var customs = map[string]custom{
	"openai":    {keys: []string{"OPENAI_API_KEY"}, urls: []string{"OPENAI_BASE_URL"}},
	"anthropic": {keys: []string{"ANTHROPIC_API_KEY"}, urls: []string{"ANTHROPIC_BASE_URL"}},
	"gemini":    {keys: []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}},
}

// customModel makes the model of a provider by the variables that are its custom.
func customModel(provider string, lookupEnv func(string) (string, bool)) (model.Model, error) {
	custom, ok := customs[provider]
	if !ok {
		return nil, errors.New("nobody knows it; give the registry a model for it")
	}
	key, url := first(lookupEnv, custom.keys), first(lookupEnv, custom.urls)
	if key == "" && url == "" {
		return nil, fmt.Errorf("the environment variable %s is not set; it must hold the API key", custom.keys[0])
	}
	return OpenModel(ModelConfig{Provider: provider, BaseURL: url, APIKey: key})
}

// first gives the first variable that is set.
func first(lookupEnv func(string) (string, bool), names []string) (value string) {
	for _, name := range names {
		found, _ := lookupEnv(name)
		value = cmp.Or(value, found)
	}
	return value
}
