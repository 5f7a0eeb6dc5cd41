// Package agent defines agents and their tools.
//
// An [Agent] is configuration: a model, a prompt, tools, limits and hooks. Register it with an executor
// (package services/executor) to run it. Most tools are made with [NewTool], from a Go function with
// typed input and output:
//
//	type place struct {
//		City string `json:"city" jsonschema:"name of the city"`
//	}
//
//	forecast := agent.NewTool("forecast", "Forecasts the weather.",
//		func(ctx context.Context, call *agent.Call, in place) (string, error) {
//			return weather.Forecast(ctx, in.City)
//		}, agent.ReadOnly(), agent.Timeout(10*time.Second))
//
//	a := agent.Agent{
//		Name:         "weather",
//		Model:        "openai/gpt-5-mini",
//		SystemPrompt: "You answer questions about the weather.",
//		Tools:        []agent.Tool{forecast},
//	}
//
// examples/weather is a complete program. Package tooltest calls a tool in a test, and pkg/agenttest tests whole agents.
//
// A session has messages ([Message]) and a custom state ([State]). A tool can read and change the
// state, send events to the readers of the session, and record usage: see [Host].
//
// A tool may run again after a crash. [RetryNever], [RetrySafe] and [Tool].ReadOnly decide when;
// [Call].IdempotencyKey lets another service recognise a repeated call.
package agent

import (
	"context"
	"encoding/json"
	"math"
	"time"
)

// DefaultMaxSteps limits the steps of a run if Agent.MaxSteps is 0.
const DefaultMaxSteps = 50

// DefaultMaxSubAgents limits the calls of sub-agents in one step if Agent.MaxSubAgents is 0.
const DefaultMaxSubAgents = 16

// MaxStateSchema is the largest Agent.StateSchema, in bytes.
const MaxStateSchema = 64 << 10

// DefaultRemoteMaxSteps limits the steps that a run copies from a remote agent if Agent.MaxSteps is 0. The other Holdfast
// has a limit of its own.
const DefaultRemoteMaxSteps = 1000

// NoMaxSteps as Agent.MaxSteps removes the limit: the run ends when its model, a tool, StopWhen or
// RunTimeout ends it, or a client stops it.
const NoMaxSteps = math.MaxInt

// FinishTool is the tool that a model calls to return the output of an agent with an output schema.
// The name is reserved.
const FinishTool = "__finish__"

// Prefixes of the tools that call other agents. They are reserved.
const (
	SubAgentPrefix  = "subagent__"
	CompanionPrefix = "companion__"
)

// Agent is the definition of one kind of agent.
//
// Its functions may be called concurrently, on any executor, and again after a crash. They may do I/O, and a repeated
// call may return something else: what was recorded before the crash stays. In particular, a call that waits for a human
// according to a recorded plan still waits.
//
// A run waits for its functions. Their context ends when the run is stopped, when the executor stops or loses the run, and
// after a time limit: HOLDFAST_EXECUTOR_HOOK_TIMEOUT for Prompt, StepContext, StopWhen, Tool.ApproveWhen and all calls of ContextPolicy.Count
// for one request together, HOLDFAST_EXECUTOR_GUARD_TIMEOUT for Guard, and HOLDFAST_EXECUTOR_MODEL_TIMEOUT for
// ContextPolicy.Compact. A call fails if it returns an error, panics or reaches its limit. The run does not wait for a
// function that ignores the end of its context. An executor stops calling a function after too many calls of it have not
// returned.
type Agent struct {
	// Name is the agent type. Runs are started by it.
	Name        string
	Description string
	// Model is provider/name, for example anthropic/claude-sonnet-4-5.
	Model string
	// Fallbacks are models as in Model. If a model fails permanently, the step continues with the
	// next one.
	Fallbacks []string
	// SystemPrompt begins every request to a model.
	SystemPrompt string
	// Prompt, if not nil, returns the system prompt of a step. A failed call fails the run. A prompt that changes makes the
	// provider's cache of the whole conversation useless: StepContext does not.
	Prompt func(ctx context.Context, run *RunView) (string, error)
	Tools  []Tool
	// Methods are functions that clients call outside of runs: see Method.
	Methods []Method
	// StateSchema is a JSON Schema for the custom state, of type object and at most MaxStateSchema
	// bytes. The defaults of its properties complete the state of a new session. A write that breaks
	// the schema is refused with STATE_INVALID, whoever makes it. A write is not refused for what was
	// wrong before it, for example for a required property that a new session does not have yet. Nil
	// checks nothing.
	//
	// Clients write the state as a whole only with the scope operate. With the member
	// "x-client-writable": true, the scope chat suffices on a socket of /agents. A state that an
	// approval rule reads must not be writable.
	StateSchema json.RawMessage
	// OutputSchema is a JSON Schema for the output, of type object. A run then completes only with
	// a valid output, from FinishTool or from a tool with FinishWith. If it is nil, the output is the
	// text of the model.
	OutputSchema json.RawMessage
	// Completion is how the runtime gets an output from a model that has not returned one. Empty
	// means CompletionTool.
	Completion Completion
	// StrictOutput asks the provider to constrain the output to OutputSchema, if it can.
	StrictOutput bool
	// MaxSteps limits the steps of a run; 0 means DefaultMaxSteps, or DefaultRemoteMaxSteps beside
	// Remote. NoMaxSteps means no limit.
	MaxSteps int
	// MaxOutputTokens limits one reply of the model; 0 means the provider's limit.
	MaxOutputTokens int
	// Temperature is the provider's default if nil.
	Temperature *float64
	// MaxRetries limits the retries of a model call after transient failures. Nil means 3.
	MaxRetries *int
	// Cache asks the provider to cache prompts, if it does not do so by itself. Empty means
	// CacheNone.
	Cache Cache
	// ProviderOptions are JSON objects by provider, merged into the requests to it:
	// {"openai": {"reasoning_effort": "low"}}. They do not replace members that Holdfast sets.
	ProviderOptions map[string]json.RawMessage
	// Remote, if not nil, is the agent of another Holdfast that does the work. Only Name, Description,
	// MaxSteps, RunTimeout, Hooks and OnBusy apply beside it.
	Remote *Remote
	// Companions are agents that this agent can consult, by tools of the runtime: see Companion.
	Companions []Companion
	// MaxCompanions limits the companions of a session; 0 means DefaultMaxCompanions.
	MaxCompanions int
	// MaxSubAgents limits the calls of sub-agents in one step; 0 means DefaultMaxSubAgents. Calls
	// above the limit fail.
	MaxSubAgents int
	// MaxDepth limits the depth of the agent's sub-agents in their tree, whose root has depth 0; 0
	// means the limit of the executor. Calls of deeper sub-agents fail.
	MaxDepth int
	// RunTimeout limits the time of a run from its first claim to its end; 0 means no limit. The run
	// that continues after a suspension has a limit of its own, and the suspension does not count.
	RunTimeout time.Duration
	// StopWhen ends the run as completed if it returns true. It is called after each step that does
	// not end the run: a step with calls, with a reply that the guard sends back, or without the
	// output that OutputSchema requires. It is called before MaxSteps is checked. A failed call
	// returns false, or fails the run if MaxSteps is NoMaxSteps. Nil never ends a run.
	StopWhen func(ctx context.Context, p *Progress) (bool, error)
	// Guard can reject the end of a run.
	Guard Guard
	Hooks Hooks
	// StepContext, if not nil, returns rows of context for the next model call: see ContextRow. It is called before the first
	// model call of each step, and not again for its retries. The rows are stored before the model is called; after a crash
	// before that, it is called again. Rows with a key are added only if they say something new. An error fails the run, as
	// do rows that ContextRow.Check refuses, and more than MaxContextRows.
	//
	// Changes of the custom state are stored with the rows, or else with the step.
	StepContext func(ctx context.Context, h *HookCall, v StepView) ([]ContextRow, error)
	// Context limits the messages in a request to a token budget.
	Context ContextPolicy
	// OnBusy applies to a message that arrives during a run, unless its request has a policy. Empty
	// means BusyReject.
	OnBusy BusyPolicy
	// CallerTools, if not nil, permits those who send messages to bring tools of their own, whose calls
	// they answer like those of a Tool with Client. The tools belong to the turn of the message with
	// all its continuations. A tool of the agent is never replaced. Nil permits none. The agents of a
	// factory permit none.
	CallerTools *CallerTools
	// CallerInstructions permits those who send messages to add instructions behind the system prompt,
	// for the turn of the message. With it, a caller can make the model ignore the prompt.
	CallerInstructions bool
}

// Completion is a way to get an output from a model.
type Completion string

// Ways of completion.
const (
	// CompletionTool offers FinishTool and the tools with FinishWith, and requires a call.
	CompletionTool Completion = "tool"
	// CompletionNative requires a JSON reply: {"completion": {"tool": …, "input": …}}.
	CompletionNative Completion = "native"
)

// Cache is a strategy for prompt caching.
type Cache string

// Cache strategies.
const (
	CacheNone Cache = "none"
	// CacheAuto caches the tools, the system prompt and the conversation.
	CacheAuto Cache = "auto"
)

// BusyPolicy decides about a message that arrives during a run. No policy loses a message.
type BusyPolicy string

// Busy policies.
const (
	// BusyReject rejects the message with SESSION_BUSY.
	BusyReject BusyPolicy = "reject"
	// BusyEnqueue stores the message. Its run starts after the current one ends.
	BusyEnqueue BusyPolicy = "enqueue"
	// BusyInterrupt stops the current run, keeps its results, and continues with the message.
	BusyInterrupt BusyPolicy = "interrupt"
	// BusyRollback stops the current run, discards its messages and state changes, and continues
	// with the message. It keeps the messages of users.
	BusyRollback BusyPolicy = "rollback"
)

// Progress is the argument of Agent.StopWhen. Its State has the writes of the step. It must not be modified.
type Progress struct {
	RunView
	// Steps counts the steps of the run so far.
	Steps int
	// Reply is the model's message in the step, Results are the results of its calls.
	Reply   Message
	Results []ToolResult
}

// ContextPolicy limits the messages in a request to a token budget. Stored messages do not change.
type ContextPolicy struct {
	// MaxTokens is the budget; 0 means no limit.
	MaxTokens int
	// KeepTokens is how many tokens of the newest messages are always sent unchanged; 0 means half
	// of MaxTokens.
	KeepTokens int
	// Compaction is how older messages are shortened. Empty means CompactWindow.
	Compaction Compaction
	// Compact, if not nil, writes the summary instead of the agent's model. It may be called again
	// for the same messages.
	Compact func(ctx context.Context, run *RunView, older []Message) (summary string, err error)
	// Count estimates the tokens of a message. It is called for each message of each request, so it must return
	// quickly: no I/O, and no locks held for long. It must depend on the message alone and must not modify it. If it is
	// nil or fails, the estimate is a quarter of the bytes.
	Count func(Message) int
}

// Compaction is a way to shorten the messages in a request.
type Compaction string

// Ways of compaction.
const (
	// CompactWindow omits the oldest turns.
	CompactWindow Compaction = "window"
	// CompactSummary replaces them with a summary, which is written once and stored with the session.
	CompactSummary Compaction = "summary"
)
