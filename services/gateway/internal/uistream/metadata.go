package uistream

import (
	"encoding/json"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Metadata is the metadata of a message. Unknown fields are omitted from the JSON.
//
// An assistant message has the same metadata live and stored. Clients merge received metadata and
// never drop a key, so fields are never removed later:
//
//	runId, agentType, createdAt   of the newest run that wrote the message
//	usage                         of the newest completed run of the message
//	interrupted                   "interrupt" when any of its runs was interrupted
//	completionReason              of the newest completed run, unless a reply without calls ended it
//	any other key                 as the agent has set it
//
// A failed run sets neither usage nor interrupted: its data-error part has the reason. A user's
// message has only the metadata that its client sent.
type Metadata struct {
	RunID     string `json:"runId,omitempty"`
	AgentType string `json:"agentType,omitempty"`
	CreatedAt int64  `json:"createdAt,omitempty"` // when the run was requested, in milliseconds since the Unix epoch
	Usage     *Usage `json:"usage,omitempty"`
	// Interrupted is "interrupt" for an incomplete reply. In a branch, where the runs are unknown,
	// it may also be "abort" or "deadline".
	Interrupted      string `json:"interrupted,omitempty"`
	CompletionReason string `json:"completionReason,omitempty"` // as in eventv1.RunCompleted

	userJSON  string // of a user's message: JSON text that replaces the other fields
	agentJSON string // set by the agent: a JSON object with further members
}

// MarshalJSON returns the metadata of a user's message as its client sent it.
func (m Metadata) MarshalJSON() ([]byte, error) {
	if m.userJSON != "" {
		return []byte(m.userJSON), nil
	}
	type plain Metadata
	own, err := json.Marshal(plain(m))
	if err != nil || m.agentJSON == "" {
		return own, err
	}
	return []byte(mergeJSON(m.agentJSON, string(own))), nil
}

// userMetadata returns the metadata of a user's message; nil if it has none.
func userMetadata(text string) *Metadata {
	if !json.Valid([]byte(text)) {
		return nil
	}
	return &Metadata{userJSON: text}
}

// Run is the run of a message, as the message shows it.
type Run struct {
	ID        string // empty if the state service does not know the run
	MessageID string
	AgentType string
	CreatedAt int64
	// Usage is nil and CompletionReason empty unless the run completed.
	Usage            *eventv1.Usage
	CompletionReason string
	Interrupted      bool
	// Failure is nil unless the run failed.
	Failure *eventv1.Error
}

// Metadata returns the metadata of the start part, while the run writes the message.
func (r Run) Metadata() Metadata {
	return Metadata{RunID: r.ID, AgentType: r.AgentType, CreatedAt: r.CreatedAt}
}

// ContinuedBy returns the metadata of a message when the run begins to write it. m may be nil and
// is not changed.
func (m *Metadata) ContinuedBy(r Run) *Metadata {
	out := r.Metadata()
	if m != nil {
		out.Usage, out.Interrupted, out.CompletionReason, out.agentJSON = m.Usage, m.Interrupted, m.CompletionReason, m.agentJSON
	}
	return &out
}

// addEnd adds the metadata of the run's end. steps: the message has shown a step.
func (r Run) addEnd(m *Metadata, steps bool) {
	if u := usageOf(r.Usage); u != nil {
		m.Usage = u
	}
	if r.CompletionReason != "" {
		m.CompletionReason = r.CompletionReason
	}
	if r.Interrupted && steps {
		m.Interrupted = interruptKind
	}
}

// interruptKind is Metadata.Interrupted of a message with an interrupted run.
const interruptKind = "interrupt"

// Usage is the usage of a run, in tokens.
type Usage struct {
	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	TotalTokens       int64 `json:"totalTokens"`
	ReasoningTokens   int64 `json:"reasoningTokens,omitempty"`   // included in the output
	CachedInputTokens int64 `json:"cachedInputTokens,omitempty"` // included in the input
}

// SetMetadata sets the message's metadata: the start part has m, from Run.Metadata. The finish part
// has the usage, and whether a run of the message was interrupted. Without SetMetadata the stream has
// no metadata. Call it before Start.
func (t *Translator) SetMetadata(m Metadata) {
	if m != (Metadata{}) {
		t.metadata = &m
	}
}

// UpdateMetadata updates the metadata of a message begun by an earlier run.
func (t *Translator) UpdateMetadata(m Metadata) []Part {
	if t.metadata == nil {
		return nil
	}
	t.metadata = &m
	return []Part{metadata(m)}
}

// finishMetadata returns the metadata of the finish part; nil for none.
func (t *Translator) finishMetadata(how Ending) *Metadata {
	if t.metadata == nil {
		return nil
	}
	m := Metadata{Usage: t.usage, CompletionReason: t.completion}
	if (how == Interrupted || t.cutShort) && t.validSteps > 0 { // without a step, no reply is incomplete
		m.Interrupted = interruptKind
	}
	if m == (Metadata{}) {
		return nil
	}
	return &m
}

// failMetadata returns the part with the final metadata of a failed message, which has no finish
// part.
func (t *Translator) failMetadata() []Part {
	if m := t.finishMetadata(Completed); m != nil {
		return []Part{metadata(*m)}
	}
	return nil
}

// usageOf converts the usage of a run; nil if it reported none.
func usageOf(u *eventv1.Usage) *Usage {
	out := Usage{
		InputTokens: u.GetPromptTokens(), OutputTokens: u.GetCompletionTokens(), TotalTokens: u.GetTotalTokens(),
		ReasoningTokens: u.GetReasoningTokens(), CachedInputTokens: u.GetCachedTokens(),
	}
	if out == (Usage{}) {
		return nil
	}
	if out.TotalTokens == 0 {
		out.TotalTokens = out.InputTokens + out.OutputTokens
	}
	return &out
}
