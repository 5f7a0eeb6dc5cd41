package session

// Usage is one measurement. Its kind determines which fields are used.
type Usage struct {
	Kind   UsageKind `json:"kind,omitempty"`
	Source string    `json:"source,omitempty"` // agent, tool or subagent

	Model            string `json:"model,omitempty"`
	PromptTokens     int64  `json:"prompt_tokens,omitempty"`
	CompletionTokens int64  `json:"completion_tokens,omitempty"`
	ReasoningTokens  int64  `json:"reasoning_tokens,omitempty"`
	CachedTokens     int64  `json:"cached_tokens,omitempty"`
	TotalTokens      int64  `json:"total_tokens,omitempty"`

	Tool       string `json:"tool,omitempty"` // name of the tool, or type of the sub-agent
	Success    bool   `json:"success,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`

	Type  string  `json:"type,omitempty"` // of a custom measurement
	Name  string  `json:"name,omitempty"`
	Value float64 `json:"value,omitempty"`
}

// UsageKind is the kind of a measurement.
type UsageKind string

// The kinds of measurements.
const (
	UsageTokens   UsageKind = "tokens"   // a model call
	UsageTool     UsageKind = "tool"     // a tool call
	UsageSubAgent UsageKind = "subagent" // a sub-agent's run
	UsageCustom   UsageKind = "custom"   // Value, named by Type and Name
)

// UsageEntry is a recorded measurement.
type UsageEntry struct {
	RunID    string // may be empty outside of steps
	Step     int32  // 0 outside of steps
	Position int32  // index within the step
	At       Millis
	Usage
}

func usageEntries(runID string, step int32, at Millis, usage []Usage) []UsageEntry {
	list := make([]UsageEntry, len(usage))
	for i, u := range usage {
		list[i] = UsageEntry{RunID: runID, Step: step, Position: int32(i), At: at, Usage: u}
	}
	return list
}

// RecordUsage records usage outside of steps. The session keeps its version.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type RecordUsage struct {
	Key
	RunID string // may be empty
	Usage []Usage
	Now   Millis
}

// Need lists the rows for Decide.
func (c RecordUsage) Need() Need { return Need{} }

// Decide appends the entries.
func (c RecordUsage) Decide(v *View) (*Change, error) {
	if v.Session == nil {
		return nil, SessionNotFound(c.Key)
	}
	if len(c.Usage) == 0 {
		return nil, nil
	}
	s := *v.Session
	change := &Change{Session: &s}
	change.addUsage(c.RunID, c.Usage, c.Now)
	return change, nil
}

// addUsage appends usage outside of steps.
func (change *Change) addUsage(runID string, usage []Usage, now Millis) {
	s := change.Session
	list := usageEntries(runID, 0, now, usage)
	for i := range list {
		list[i].Position += s.UsageCount
	}
	s.UsageCount += int32(len(list))
	change.Usage = append(change.Usage, list...)
}
