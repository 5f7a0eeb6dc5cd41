// Package model is the interface to language models. The packages scripted, openai (chat completions and
// responses), anthropic and gemini implement it and pass the modeltest suite.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Model generates replies.
type Model interface {
	// Generate calls the model and yields its reply in pieces. The sequence ends after Finish or with an error.
	// The error is an *Error if the provider's failure could be classified. The sequence ends soon after ctx
	// ends or the consumer stops. Each iteration over it makes one call. Safe for concurrent use.
	Generate(ctx context.Context, r Request) iter.Seq2[Event, error]
}

// Request is one call.
type Request struct {
	// Model is the provider's name for the model.
	Model  string
	System string
	// Messages is the conversation. The results of an assistant message's calls follow it directly, one for each
	// call.
	Messages []agent.Message
	Tools    []Tool
	// Choice controls whether the model must call a tool. Empty is ChoiceAuto.
	Choice Choice
	// Output requests a JSON reply; nil means text. It cannot be combined with ChoiceRequired.
	Output *Output
	// MaxOutputTokens limits the reply; 0 leaves the limit to the implementation.
	MaxOutputTokens int
	Temperature     *float64
	// Cache asks the provider to cache the request's prefix, if the provider needs to be asked.
	Cache agent.Cache
	// Options is a JSON object of extra members for the provider's request. They never replace members set by
	// the implementation. Nil means none.
	Options json.RawMessage
}

// Choice controls whether a model must call a tool.
type Choice string

// The tool choices.
const (
	ChoiceAuto     Choice = ""
	ChoiceRequired Choice = "required" // any one of the tools
	ChoiceNone     Choice = "none"
)

// Output describes a JSON reply.
type Output struct {
	// Name has 1 to 64 characters of A-Z a-z 0-9 _ -.
	Name string
	// Schema is a JSON Schema object.
	Schema json.RawMessage
	// Strict requests constrained decoding; providers without it ignore Strict.
	Strict bool
}

// Tool describes a tool to the model.
type Tool struct {
	Name        string
	Description string
	// InputSchema is a JSON Schema object.
	InputSchema json.RawMessage
	// Strict requests constrained arguments; providers without them ignore Strict.
	Strict bool
}

// Event is a piece of a reply: TextDelta, ReasoningDelta, ReasoningEnd, CallStart, CallDelta, CallEnd, Usage or
// Finish. The pieces of a text or reasoning block are contiguous. The pieces of calls may interleave and carry
// an Index. Blocks begin in the order of the reply.
type Event interface{ isEvent() }

// TextDelta is a piece of text. Never empty.
type TextDelta struct{ Text string }

// ReasoningDelta is a piece of a reasoning block. Never empty.
type ReasoningDelta struct{ Text string }

// ReasoningEnd ends a reasoning block. A block may consist of ReasoningEnd alone.
type ReasoningEnd struct {
	// ProviderData is sent back with the next request: see agent.Reasoning.
	ProviderData json.RawMessage
}

// CallStart starts a tool call.
type CallStart struct {
	// Index identifies the call within the reply.
	Index int
	// ID is the provider's call id, or a generated id if the provider gave none. It may repeat an id of an
	// earlier reply.
	ID   string
	Name string
}

// CallDelta is a piece of a call's arguments. Never empty.
type CallDelta struct {
	Index int
	Text  string
}

// CallEnd ends a call.
type CallEnd struct {
	Index int
	// Arguments is one JSON value: {} if the model gave no arguments, a JSON string if its text was not valid
	// JSON, and "" if the reply was truncated before the first argument byte.
	Arguments json.RawMessage
}

// Usage is the token count of the reply. It comes at most once, before Finish.
type Usage struct {
	PromptTokens, CompletionTokens, ReasoningTokens, CachedTokens, TotalTokens int64
}

// Finish ends a reply.
type Finish struct{ Reason FinishReason }

func (TextDelta) isEvent()      {}
func (ReasoningDelta) isEvent() {}
func (ReasoningEnd) isEvent()   {}
func (CallStart) isEvent()      {}
func (CallDelta) isEvent()      {}
func (CallEnd) isEvent()        {}
func (Usage) isEvent()          {}
func (Finish) isEvent()         {}

// FinishReason is the reason why a model stopped, from the AI SDK's common set.
type FinishReason string

// The finish reasons.
const (
	FinishStop          FinishReason = "stop"
	FinishLength        FinishReason = "length"
	FinishToolCalls     FinishReason = "tool-calls"
	FinishContentFilter FinishReason = "content-filter"
	FinishError         FinishReason = "error"
	FinishOther         FinishReason = "other"
)

// The codes of provider errors, and of requests that cannot be made.
const (
	CodeRateLimited     = "provider_rate_limited"     // 429: retryable
	CodeOverloaded      = "provider_overloaded"       // 529, 503: retryable
	CodeUnavailable     = "provider_unavailable"      // 5xx, 408, 409, broken connections: retryable
	CodeTimeout         = "provider_timeout"          // no answer in time: retryable
	CodeInvalidRequest  = "provider_invalid_request"  // 400, 413, 422
	CodeUnauthenticated = "provider_unauthenticated"  // 401
	CodeDenied          = "provider_denied"           // 403
	CodeNotFound        = "provider_not_found"        // 404: no such model
	CodeInvalidResponse = "provider_invalid_response" // not the provider's protocol: retryable, except redirects
	CodeUnsupported     = "provider_unsupported"      // the model does not support a feature of the request

	CodeFileMissing   = "framework_file_missing"    // a stored file of the last question was deleted
	CodeFilesTooLarge = "framework_files_too_large" // the stored files of the last question are too large for one call
)

// Error is a classified failure of a provider.
type Error struct {
	// Code is one of the codes above.
	Code      string
	Retryable bool
	// StatusCode is the HTTP status; 0 without one.
	StatusCode int
	// RetryAfter is the delay requested by the provider; 0 without one.
	RetryAfter time.Duration
	// Message is the provider's own text, for developers rather than users.
	Message string
	// Refusal is the part of the request that the provider refused; nil for other failures. The planner sends a request
	// with a refusal never again unchanged.
	Refusal *Refusal
	Err     error
}

func (e *Error) Error() string {
	if e.StatusCode != 0 {
		return fmt.Sprintf("%s (HTTP %d): %s", e.Code, e.StatusCode, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }
