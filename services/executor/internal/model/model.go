// Package model is the door to language models: one interface, implemented by
// scripted, openai (chat completions and responses), anthropic and gemini, each of
// which passes modeltest whole.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Model makes one reply to a conversation.
type Model interface {
	// Generate calls the model and yields its reply piece by piece. The
	// sequence ends after Finish, or with an error, which is an *Error where
	// the provider's failure could be classified. It ends soon after ctx does,
	// and when the consumer stops. Every sequence makes one call; nothing is
	// called before it is ranged over. Safe for concurrent use.
	Generate(ctx context.Context, r Request) iter.Seq2[Event, error]
}

// Request is one call of a model.
type Request struct {
	// Model is the provider's name of the model.
	Model  string
	System string
	// Messages is the conversation. Every call in it has its result: the
	// results of one assistant message follow it before anything else.
	Messages []agent.Message
	Tools    []Tool
	// Choice says whether and which tool the model must call. Empty is ChoiceAuto.
	Choice Choice
	// Output asks for a reply that is JSON; nil for text. Not together with a Choice
	// that asks for a call.
	Output *Output
	// MaxOutputTokens is left to the implementation when 0.
	MaxOutputTokens int
	Temperature     *float64
	// Cache asks the provider to keep the unchanged beginning of the request, where it
	// has to be asked.
	Cache agent.Cache
	// Options are members that go into the provider's request as they are, a JSON
	// object; they replace nothing that the implementation sets. Nil for none.
	Options json.RawMessage
}

// Choice says whether a model must call a tool.
type Choice string

// The choices.
const (
	ChoiceAuto     Choice = ""
	ChoiceRequired Choice = "required" // one of the tools, whichever
	ChoiceNone     Choice = "none"
)

// Output is the shape of a reply that is JSON.
type Output struct {
	// Name has 1 to 64 characters of A-Z a-z 0-9 _ -.
	Name string
	// Schema is a JSON Schema: an object.
	Schema json.RawMessage
	// Strict asks for constrained decoding; where the provider has none it is left out.
	Strict bool
}

// Tool is a tool as the model is told about it.
type Tool struct {
	Name        string
	Description string
	// InputSchema is a JSON Schema: an object.
	InputSchema json.RawMessage
	// Strict asks for constrained arguments; where the provider has none it is left out.
	Strict bool
}

// Event is a piece of a reply: TextDelta, ReasoningDelta, ReasoningEnd,
// CallStart, CallDelta, CallEnd, Usage or Finish. The pieces of one block
// stand together or, for calls, name their block by Index; blocks begin in
// the order of the reply.
type Event interface{ isEvent() }

// TextDelta is more text. Never empty.
type TextDelta struct{ Text string }

// ReasoningDelta is more of the reasoning block. Never empty.
type ReasoningDelta struct{ Text string }

// ReasoningEnd ends a reasoning block; a block may consist of it alone.
type ReasoningEnd struct {
	// ProviderData goes back with the next request: see agent.Reasoning.
	ProviderData json.RawMessage
}

// CallStart begins a tool call.
type CallStart struct {
	// Index tells the calls of one reply apart.
	Index int
	// ID is the provider's id of the call, made up where it gave none; it may
	// repeat ids of former replies.
	ID   string
	Name string
}

// CallDelta is more of the text of a call's arguments. Never empty.
type CallDelta struct {
	Index int
	Text  string
}

// CallEnd ends a call.
type CallEnd struct {
	Index int
	// Arguments is one JSON value: {} where the model gave none, a JSON string
	// that holds the model's text where that was not JSON, and an empty one where the
	// reply was cut before the first of it.
	Arguments json.RawMessage
}

// Usage is the tokens of the reply, at most once, before Finish.
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

// FinishReason says why a model stopped, in the AI SDK's common set.
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

// The codes of provider errors. Those after the colon are retryable.
const (
	CodeRateLimited     = "provider_rate_limited"     // 429: retryable
	CodeOverloaded      = "provider_overloaded"       // 529, 503: retryable
	CodeUnavailable     = "provider_unavailable"      // 5xx, 408, 409, cut connections: retryable
	CodeTimeout         = "provider_timeout"          // no answer in time: retryable
	CodeInvalidRequest  = "provider_invalid_request"  // 400, 413, 422
	CodeUnauthenticated = "provider_unauthenticated"  // 401
	CodeDenied          = "provider_denied"           // 403
	CodeNotFound        = "provider_not_found"        // 404: no such model
	CodeInvalidResponse = "provider_invalid_response" // what came is not the protocol: retryable, but for redirects
	CodeUnsupported     = "provider_unsupported"      // the model cannot do what the request asks for
)

// Error is a classified failure of a provider.
type Error struct {
	// Code is one of the codes above.
	Code      string
	Retryable bool
	// StatusCode is the HTTP status; 0 when there was none.
	StatusCode int
	// RetryAfter is how long the provider asked to wait; 0 when it did not.
	RetryAfter time.Duration
	// Message is the provider's own text: for developers, not for users.
	Message string
	Err     error
}

func (e *Error) Error() string {
	if e.StatusCode != 0 {
		return fmt.Sprintf("%s (HTTP %d): %s", e.Code, e.StatusCode, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }
