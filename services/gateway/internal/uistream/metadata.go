package uistream

import eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"

// Metadata is what a message says about itself. What is not known stays out of the JSON.
type Metadata struct {
	RunID     string `json:"runId,omitempty"` // the newest that wrote at the message
	AgentType string `json:"agentType,omitempty"`
	Usage     *Usage `json:"usage,omitempty"`
	// Interrupted says how a reply was cut short: interrupt, abort or deadline.
	Interrupted string `json:"interrupted,omitempty"`
}

// Usage is what the run has used, in tokens.
type Usage struct {
	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	TotalTokens       int64 `json:"totalTokens"`
	ReasoningTokens   int64 `json:"reasoningTokens,omitempty"`   // among the output
	CachedInputTokens int64 `json:"cachedInputTokens,omitempty"` // among the input
}

// Describe makes the message say what it is: its start has the run and the agent, its
// finish what the run has used and whether it was cut short. Without it a stream has no
// metadata. Call it before Start.
func (t *Translator) Describe(m Metadata) {
	if m != (Metadata{}) {
		t.described = &m
	}
}

// conclusion is what the finish says of the message.
func (t *Translator) conclusion(how Ending) *Metadata {
	if t.described == nil {
		return nil
	}
	m := Metadata{Usage: t.usage}
	if how == Interrupted && t.steps > 0 { // a message of which nothing was told may be whole
		m.Interrupted = "interrupt"
	}
	if m == (Metadata{}) {
		return nil
	}
	return &m
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

// By gives the metadata of a message at which the run has written last. m, which may be
// nil, stays as it is.
func (m *Metadata) By(runID string) *Metadata {
	out := Metadata{}
	if m != nil {
		out = *m
	}
	out.RunID = runID
	return &out
}
