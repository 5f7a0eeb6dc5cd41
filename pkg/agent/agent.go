// Package agent is what a user of Holdfast defines: agents and their tools.
// An agent is configuration; it runs nothing by itself.
package agent

import (
	"context"
	"encoding/json"
	"math"
	"time"
)

// DefaultMaxSteps is the cap on the steps of a run where an agent names none.
const DefaultMaxSteps = 50

// NoMaxSteps as MaxSteps is no cap: the run ends when its model, a tool, StopWhen or a limit of
// time ends it, or somebody stops it.
const NoMaxSteps = math.MaxInt

// FinishTool is the tool by which the model of an agent with an output schema
// gives its output. The name is the specification's; no tool of an agent may have it.
const FinishTool = "__finish__"

// The prefixes of the tools that stand for other agents. No tool of an agent may have
// them.
const (
	SubAgentPrefix  = "subagent__"
	CompanionPrefix = "companion__"
)

// Agent is one kind of agent. Functions in it may be called from many goroutines
// at once, on any executor, and again after a crash.
//
// Those that are given no context, which are Prompt, StopWhen, ContextPolicy.Count and
// Tool.ApproveWhen, have to return soon: they compute, do no I/O and take no locks that others
// hold for long. One that takes longer than a hook may (HOLDFAST_EXECUTOR_HOOK_TIMEOUT), or
// panics, has given no answer; nothing can end it, and when too many calls of it have not
// returned it is not called any more.
type Agent struct {
	// Name is the agent type: the key by which runs name it.
	Name        string
	Description string
	// Model is provider/name, for example anthropic/claude-sonnet-4-5.
	Model string
	// Fallbacks are models of the same form. When a model has failed for good, the
	// step goes on with the next one.
	Fallbacks []string
	// SystemPrompt is the text that every model call begins with.
	SystemPrompt string
	// Prompt, where it is set, makes the system prompt from the custom state as it is
	// when the step begins. It decides from its argument alone, and changes nothing
	// in it. Without an answer the run fails.
	Prompt func(state State) string
	Tools  []Tool
	// StateSchema is a JSON Schema of the custom state: an object. Defaults of its
	// properties fill what a new session's state leaves out. Nil checks nothing.
	StateSchema json.RawMessage
	// OutputSchema is a JSON Schema of the output: an object. With it a run completes
	// only with an output that fits, given by FinishTool or a tool with FinishWith. Nil:
	// the model's text is the output.
	OutputSchema json.RawMessage
	// Completion says how a model that owes an output is made to give it. Empty is
	// CompletionTool.
	Completion Completion
	// StrictOutput asks the provider to constrain the output to its schema, where it can.
	StrictOutput bool
	// MaxSteps caps the steps of one run; 0 means DefaultMaxSteps, NoMaxSteps no cap.
	MaxSteps int
	// MaxOutputTokens caps one reply; 0 leaves it to the provider.
	MaxOutputTokens int
	// Temperature is left to the provider when nil.
	Temperature *float64
	// MaxRetries is how often a model call that failed for a while is made again; nil
	// means 3, 0 never.
	MaxRetries *int
	// Cache asks the provider to keep the unchanged beginning of requests, where that
	// has to be asked for. Empty is CacheNone.
	Cache Cache
	// ProviderOptions are members that go into requests to a provider as they are, by
	// the provider's name: {"openai": {"reasoning_effort": "low"}}. They do not
	// replace what Holdfast sets itself.
	ProviderOptions map[string]json.RawMessage
	// RunTimeout bounds a run from its first claim to its end; 0 for no bound. A
	// continuation is a run of its own: the time of a suspension does not count, and the
	// bound begins anew.
	RunTimeout time.Duration
	// StopWhen ends the run, completed, behind a step that does not end it: one with calls,
	// with a text that the guard wants to be another, or with none of the output that is
	// owed. It decides from its argument alone, and before MaxSteps does, and changes
	// nothing in it. Nil never does, nor one that gives no answer, which fails a run without a
	// cap on its steps.
	StopWhen func(Progress) bool
	// Guard may refuse the end of a run; nil accepts every end.
	Guard Guard
	Hooks Hooks
	// Context keeps long conversations within a budget of tokens.
	Context ContextPolicy
	// OnBusy is for messages that come while a run is live, where their request says
	// nothing. Empty is BusyReject.
	OnBusy BusyPolicy
}

// Completion is a way to make a model give the output that it owes.
type Completion string

// The ways.
const (
	// CompletionTool offers only the finishing tools, and requires a call.
	CompletionTool Completion = "tool"
	// CompletionNative asks for a reply that is JSON: {"completion": {"tool", "input"}}.
	CompletionNative Completion = "native"
)

// Cache is a strategy of prompt caching.
type Cache string

// The strategies.
const (
	CacheNone Cache = "none"
	// CacheAuto marks the tools, the system prompt and the conversation so far.
	CacheAuto Cache = "auto"
)

// BusyPolicy is what becomes of a message that comes while a run is live. No policy
// loses a message.
type BusyPolicy string

// The policies.
const (
	// BusyReject refuses it: SESSION_BUSY.
	BusyReject BusyPolicy = "reject"
	// BusyEnqueue keeps it; its run begins when the live one has ended.
	BusyEnqueue BusyPolicy = "enqueue"
	// BusyInterrupt stops the live run, which keeps what it has, and goes on with the message.
	BusyInterrupt BusyPolicy = "interrupt"
	// BusyRollback stops the live run and takes back what it has written, state included,
	// but no message of a user.
	BusyRollback BusyPolicy = "rollback"
)

// Progress is what StopWhen decides from.
type Progress struct {
	// Steps of the run, with the one that has just ended.
	Steps int
	// Reply is the model's message of the step, Results the results of its calls.
	Reply   Message
	Results []ToolResult
	State   State
}

// ContextPolicy keeps what a model is shown within a budget. What is stored is never
// rewritten.
type ContextPolicy struct {
	// MaxTokens is the budget of a request's messages; 0 means no bound.
	MaxTokens int
	// KeepTokens of the newest messages are always shown as they are; 0 means half of
	// MaxTokens.
	KeepTokens int
	// Compaction is what happens to the older ones. Empty is CompactWindow.
	Compaction Compaction
	// Compact, where it is set, writes the summary in place of the agent's own model.
	// It may be called again for the same messages.
	Compact func(ctx context.Context, older []Message) (summary string, err error)
	// Count estimates the tokens of a message, and must be quick: it is called for each
	// message of each request, and one answer for all of them has to come in time. Nil, and one
	// that gives none, takes a quarter of its bytes.
	Count func(Message) int
}

// Compaction is a way to shorten what a model is shown.
type Compaction string

// The ways.
const (
	// CompactWindow leaves the oldest turns out.
	CompactWindow Compaction = "window"
	// CompactSummary puts a summary in their place, written once and kept with the session.
	CompactSummary Compaction = "summary"
)
