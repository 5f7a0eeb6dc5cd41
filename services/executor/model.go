package executor

import (
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/registry"
)

// The interface of models, for hosts that implement one: see Registry.Model.
type (
	// Model makes one reply to a conversation.
	Model = model.Model
	// ModelRequest is one call of a model.
	ModelRequest = model.Request
	// ModelTool is a tool as the model sees it.
	ModelTool = model.Tool
	// ModelOutput is the shape of a JSON reply.
	ModelOutput = model.Output
	// ModelChoice controls whether a model must call a tool.
	ModelChoice = model.Choice
	// ModelEvent is a piece of a reply: a value of a type below.
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
	// Usage has the tokens of a reply.
	Usage = model.Usage
	// Finish ends a reply.
	Finish = model.Finish
	// FinishReason is why a model stopped.
	FinishReason = model.FinishReason
	// ModelError is a classified failure of a provider.
	ModelError = model.Error
	// ModelRefusal is the part of a request that a provider refused.
	ModelRefusal = model.Refusal
)

// The values of ModelChoice and FinishReason.
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

// The limits of a provider: see Registry.Limit.
type (
	// Limits bound model calls, over all executors.
	Limits = model.Limits
	// ProviderLimits bound the calls of a provider, and of its single models.
	ProviderLimits = model.ProviderLimits
)

// ModelConfig configures a model for OpenModel.
type ModelConfig = registry.ModelConfig

// OpenModel makes a model of a built-in provider, for Registry.Model: for example of a server
// that speaks the API of OpenAI under another name and address, or of a script.
func OpenModel(c ModelConfig) (Model, error) { return registry.OpenModel(c) }
