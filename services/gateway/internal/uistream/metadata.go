package uistream

import (
	"encoding/json"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Metadata is what a message says about itself. What is not known stays out of the JSON.
//
// An assistant message says the same live and stored. Clients merge what they are told and
// never drop a key, so each field is such that a later run can only add to it:
//
//	runId, agentType, createdAt   of the newest run that wrote at the message
//	usage                         of the newest run that completed at it
//	interrupted                   "interrupt" when any run of it was interrupted
//
// A run that failed has no usage here and is not interrupted: its part data-error says why
// it ended. A user's message has the metadata that its client has sent, and nothing else.
type Metadata struct {
	RunID     string `json:"runId,omitempty"`
	AgentType string `json:"agentType,omitempty"`
	CreatedAt int64  `json:"createdAt,omitempty"` // when the run was asked for, in milliseconds since the Unix epoch
	Usage     *Usage `json:"usage,omitempty"`
	// Interrupted says how a reply was cut short: interrupt. In a branch of a conversation,
	// where the runs are not known, it may also be abort or deadline.
	Interrupted string `json:"interrupted,omitempty"`

	sent string // of a user's message: a JSON text, in place of everything else
}

// MarshalJSON gives what a client has sent as it is.
func (m Metadata) MarshalJSON() ([]byte, error) {
	if m.sent != "" {
		return []byte(m.sent), nil
	}
	type plain Metadata
	return json.Marshal(plain(m))
}

// sent gives the metadata of a user's message; nil where it has none.
func sent(text string) *Metadata {
	if !json.Valid([]byte(text)) {
		return nil
	}
	return &Metadata{sent: text}
}

// Run is what the state service knows of a run that has written at a message.
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

// Metadata is what the start of a message says when the run writes at it.
func (r Run) Metadata() Metadata {
	return Metadata{RunID: r.ID, AgentType: r.AgentType, CreatedAt: r.CreatedAt}
}

// With gives the metadata as it is when the run begins to write at the message. m, which
// may be nil, stays as it is.
func (m *Metadata) With(r Run) *Metadata {
	out := r.Metadata()
	if m != nil {
		out.Usage, out.Interrupted = m.Usage, m.Interrupted
	}
	return &out
}

// Live gives what was known of the run before it ended.
func (r Run) Live() Run {
	r.Usage, r.Interrupted, r.Failure = nil, false, nil
	return r
}

// end is what the end of the run adds to the metadata of the message.
func (r Run) end(m *Metadata, steps bool) {
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

// Describe makes the message say what it is: its start has what Run.Metadata gives, its
// finish what the run has used and whether a run of it was interrupted. Without it a stream has no
// metadata. Call it before Start.
func (t *Translator) Describe(m Metadata) {
	if m != (Metadata{}) {
		t.described = &m
	}
}

// GoOn describes the message anew, for a client that has its start from an earlier run.
func (t *Translator) GoOn(m Metadata) []Part {
	if t.described == nil {
		return nil
	}
	t.described = &m
	return []Part{metadata(m)}
}

// conclusion is what the finish says of the message.
func (t *Translator) conclusion(how Ending) *Metadata {
	if t.described == nil {
		return nil
	}
	m := Metadata{Usage: t.usage}
	if (how == Interrupted || t.cutShort) && t.steps > 0 { // a message of which nothing was told may be whole
		m.Interrupted = interruptKind
	}
	if m == (Metadata{}) {
		return nil
	}
	return &m
}

// concluded is what a message that fails says of itself: its stream has no finish.
func (t *Translator) concluded() []Part {
	if m := t.conclusion(Completed); m != nil {
		return []Part{metadata(*m)}
	}
	return nil
}

// usageOf gives the usage that a run told; nil when it told none.
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
