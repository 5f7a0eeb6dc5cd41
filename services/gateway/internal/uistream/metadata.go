package uistream

import (
	"encoding/json"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Metadata is the metadata of a message. Unknown fields stay out of the JSON.
//
// An assistant message has the same metadata live and stored. Clients merge the metadata that
// they receive and never drop a key, so no field has to be removed later:
//
//	runId, agentType, createdAt   of the newest run that wrote at the message
//	usage                         of the newest run that completed at it
//	interrupted                   "interrupt" when any run of it was interrupted
//
// A run that failed has neither usage nor interrupted: its part data-error says why it ended.
// A user's message has the metadata that its client sent, and nothing else.
type Metadata struct {
	RunID     string `json:"runId,omitempty"`
	AgentType string `json:"agentType,omitempty"`
	CreatedAt int64  `json:"createdAt,omitempty"` // when the run was requested, in milliseconds since the Unix epoch
	Usage     *Usage `json:"usage,omitempty"`
	// Interrupted is "interrupt" for a reply that was cut short. In a branch of a conversation,
	// where the runs are not known, it may also be "abort" or "deadline".
	Interrupted string `json:"interrupted,omitempty"`

	userJSON string // of a user's message: the JSON text that replaces all other fields
}

// MarshalJSON gives the metadata of a user's message as its client sent it.
func (m Metadata) MarshalJSON() ([]byte, error) {
	if m.userJSON != "" {
		return []byte(m.userJSON), nil
	}
	type plain Metadata
	return json.Marshal(plain(m))
}

// userMetadata gives the metadata of a user's message; nil where it has none.
func userMetadata(text string) *Metadata {
	if !json.Valid([]byte(text)) {
		return nil
	}
	return &Metadata{userJSON: text}
}

// Run is what a message shows of a run that wrote at it.
type Run struct {
	ID        string // empty when the state service does not know the run
	MessageID string
	AgentType string
	CreatedAt int64
	// Usage is nil for a run that has not completed.
	Usage       *eventv1.Usage
	Interrupted bool
	// Failure is nil for a run that has not failed.
	Failure *eventv1.Error
}

// Metadata is what the start part says while the run writes at the message.
func (r Run) Metadata() Metadata {
	return Metadata{RunID: r.ID, AgentType: r.AgentType, CreatedAt: r.CreatedAt}
}

// ContinuedBy gives the metadata of a message at which the run begins to write. m may be nil and is not
// changed.
func (m *Metadata) ContinuedBy(r Run) *Metadata {
	out := r.Metadata()
	if m != nil {
		out.Usage, out.Interrupted = m.Usage, m.Interrupted
	}
	return &out
}

// addEnd adds what the end of the run says. steps: the message has shown a step.
func (r Run) addEnd(m *Metadata, steps bool) {
	if u := usageOf(r.Usage); u != nil {
		m.Usage = u
	}
	if r.Interrupted && steps {
		m.Interrupted = interruptKind
	}
}

// interruptKind is the metadata of a message of which a run was interrupted.
const interruptKind = "interrupt"

// Usage is what the run has used, in tokens.
type Usage struct {
	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	TotalTokens       int64 `json:"totalTokens"`
	ReasoningTokens   int64 `json:"reasoningTokens,omitempty"`   // among the output
	CachedInputTokens int64 `json:"cachedInputTokens,omitempty"` // among the input
}

// Describe gives the message metadata: the start part has m, which Run.Metadata gives. The
// finish part has the usage, and whether a run of the message was interrupted. Without Describe a
// stream has no metadata. Call it before Start.
func (t *Translator) Describe(m Metadata) {
	if m != (Metadata{}) {
		t.metadata = &m
	}
}

// GoOn describes the message anew, for a client that has its start from an earlier run.
func (t *Translator) GoOn(m Metadata) []Part {
	if t.metadata == nil {
		return nil
	}
	t.metadata = &m
	return []Part{metadata(m)}
}

// finishMetadata is the metadata of the finish part; nil for none.
func (t *Translator) finishMetadata(how Ending) *Metadata {
	if t.metadata == nil {
		return nil
	}
	m := Metadata{Usage: t.usage}
	if (how == Interrupted || t.cutShort) && t.stepCount > 0 { // without a step nothing was cut short
		m.Interrupted = interruptKind
	}
	if m == (Metadata{}) {
		return nil
	}
	return &m
}

// failMetadata gives the conclusion of a message that fails, whose stream has no finish part.
func (t *Translator) failMetadata() []Part {
	if m := t.finishMetadata(Completed); m != nil {
		return []Part{metadata(*m)}
	}
	return nil
}

// usageOf gives the usage of a run; nil when it reported none.
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
