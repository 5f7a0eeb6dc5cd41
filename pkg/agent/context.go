package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Limits of rows of context.
const (
	// MaxContextRow bounds a row: its text, its key and its names of tools together, in bytes.
	MaxContextRow = 16 << 10
	// MaxContextRows bounds the rows of one step, and of one request of an application.
	MaxContextRows = 100
	// MaxContextTools bounds the tools that one row disables, and those that it enables.
	MaxContextTools = 30
	// MaxContextKey bounds a key, in bytes.
	MaxContextKey = 256
	// maxContextTool bounds the name of a tool with its prefix, so that the names of a row fit into one value of the metadata.
	maxContextTool = 128
)

// ContextKind is what a row of context is to the model.
type ContextKind string

// The kinds.
const (
	// ContextInstruction tells the model what to do from here on.
	ContextInstruction ContextKind = "instruction"
	// ContextNotice tells the model something that has happened.
	ContextNotice ContextKind = "notice"
	// ContextTools disables and enables tools. Its text may be empty.
	ContextTools ContextKind = "tools"
	// ContextMemory is something that the model has known before the conversation.
	ContextMemory ContextKind = "memory"
)

// ContextRow is a message to the model in the middle of a conversation. Users do not see it.
//
// It is stored with the conversation and never changes, so what providers have cached stays valid. A rewind removes it
// with the messages around it, and a branch copies it. ContextPolicy keeps the newest row of each key and all rows of the
// kind ContextTools when it shortens a conversation.
//
// Models receive the rows of Agent.StepContext and of applications as system messages where the provider accepts them in
// the middle of a conversation. Rows of tools, and all rows elsewhere, are messages of the user in which the text
// stands between <context kind="…"> and </context>.
type ContextRow struct {
	Kind ContextKind `json:"kind"`
	Text string      `json:"text,omitempty"`
	// Key names what the row is about, so that it replaces the earlier row with this key from the same source: the agent's
	// StepContext, its tools, or applications. A row that says the same as the one before it is not added. Empty for a
	// row that stands alone. At most MaxContextKey bytes.
	Key string `json:"key,omitempty"`
	// Disable and Enable are names of tools, of the kind ContextTools. Models are not offered a disabled tool, and a call of
	// it is a failed result, tool_disabled. The newest row that names a tool counts, and Enable counts more than
	// Disable of the same row. FinishTool cannot be disabled.
	Disable []string `json:"disable,omitempty"`
	Enable  []string `json:"enable,omitempty"`
}

// StepView is what Agent.StepContext may look at.
type StepView struct {
	// Steps counts the run's replies so far.
	Steps int
	// Model is the model of the next call, provider/name.
	Model string
	// Messages is the conversation so far, with hidden messages. It must not be modified.
	Messages []Message
	// Tools are the names of the tools that the model is offered, unless the rows change them.
	Tools []string
}

// Check returns Invalid (CONTEXT_INVALID) for a row without a kind or content, or with fields of another kind, and TooLarge
// (CONTEXT_TOO_LARGE) for one above MaxContextRow.
func (r ContextRow) Check() error {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "CONTEXT_INVALID", format, args...)
	}
	kinds := []ContextKind{ContextInstruction, ContextNotice, ContextTools, ContextMemory}
	size := len(r.Text) + len(r.Key)
	for _, name := range slices.Concat(r.Disable, r.Enable) {
		size += len(name)
		if name == "" || len(name) > maxContextTool || strings.ContainsFunc(name, isInvalidInToolName) {
			return invalid("a row of context names the tool %.80q; a name has 1 to %d characters of A-Z a-z 0-9 _ -", name, maxContextTool)
		}
		if name == FinishTool {
			return invalid("a row of context names %s, which is always enabled", FinishTool)
		}
	}
	switch {
	case !slices.Contains(kinds, r.Kind):
		return invalid("a row of context has the kind %.80q; it must be instruction, notice, tools or memory", r.Kind)
	case size > MaxContextRow:
		return fault.New(fault.TooLarge, "CONTEXT_TOO_LARGE", "a row of context has %d bytes; the limit is %d: say less, or use several rows",
			size, MaxContextRow).WithSizes(int64(size), MaxContextRow)
	case !utf8.ValidString(r.Text):
		return invalid("the text of a row of context is not UTF-8")
	case r.Key != "" && !isValidKey(r.Key):
		return invalid("the key %.80q of a row of context must have at most %d bytes of UTF-8 without control characters", r.Key, MaxContextKey)
	case r.Kind != ContextTools && len(r.Disable)+len(r.Enable) > 0:
		return invalid("a row of context of the kind %s names tools; only the kind tools does so", r.Kind)
	case r.Kind == ContextTools && len(r.Disable)+len(r.Enable) == 0:
		return invalid("a row of context of the kind tools names no tool to disable or enable")
	case max(len(r.Disable), len(r.Enable)) > MaxContextTools:
		return invalid("a row of context names more than %d tools; use several rows", MaxContextTools)
	case r.Kind != ContextTools && strings.TrimSpace(r.Text) == "":
		return invalid("a row of context of the kind %s has no text", r.Kind)
	}
	return nil
}

// CheckContext checks the rows of a step or a request. The faults are those of ContextRow.Check, and TooLarge
// (CONTEXT_TOO_MANY) for more than MaxContextRows.
func CheckContext(rows []ContextRow) error {
	if len(rows) > MaxContextRows {
		return TooManyContextRows(len(rows))
	}
	for _, r := range rows {
		if err := r.Check(); err != nil {
			return err
		}
	}
	return nil
}

// TooManyContextRows returns TooLarge (CONTEXT_TOO_MANY).
func TooManyContextRows(n int) error {
	return fault.New(fault.TooLarge, "CONTEXT_TOO_MANY",
		"there are %d rows of context; the limit is %d: join some of them", n, MaxContextRows).
		WithSizes(int64(n), MaxContextRows)
}

// A ContextHost is a Host that takes rows of context.
type ContextHost interface {
	Host
	AddContext(row ContextRow) error
}

// AddContext adds a row of context to the conversation, behind the results of the step. It is stored with the result of the
// call, and dropped if the call fails.
//
// Faults: those of ContextRow.Check; TooLarge (CONTEXT_TOO_MANY) if the calls of the step have added MaxContextRows;
// Conflict (CALL_ENDED). Outside of a run it does nothing but check the row.
func (c *Call) AddContext(row ContextRow) error {
	host, ok := c.Host.(ContextHost)
	if !ok {
		return row.Check()
	}
	return host.AddContext(row)
}

// ContextSource is who has added a row of context. Each has keys of its own.
type ContextSource string

// The sources.
const (
	ContextOfApp  ContextSource = "app"  // an application, by the API
	ContextOfHook ContextSource = "hook" // Agent.StepContext
	ContextOfTool ContextSource = "tool" // Call.AddContext
)

// Metadata of a message that is a row of context.
const (
	metadataSource  = "source"
	metadataKind    = "kind"
	metadataKey     = "key"
	metadataDisable = "disable"
	metadataEnable  = "enable"
)

// Message returns the row as a message of a conversation.
func (r ContextRow) Message(id string, source ContextSource) Message {
	metadata := map[string]string{metadataSource: string(source), metadataKind: string(r.Kind)}
	if r.Key != "" {
		metadata[metadataKey] = r.Key
	}
	for name, tools := range map[string][]string{metadataDisable: r.Disable, metadataEnable: r.Enable} {
		if len(tools) > 0 {
			metadata[name] = string(marshal(tools))
		}
	}
	return Message{ID: id, Role: RoleContext, Hidden: true, Metadata: metadata, Parts: []Part{Text{Text: r.Text}}}
}

// ContextRowOf returns the row of context that a message is. ok is false for every other message.
func ContextRowOf(m Message) (row ContextRow, source ContextSource, ok bool) {
	kind := ContextKind(m.Metadata[metadataKind])
	if m.Role != RoleContext || kind == "" {
		return ContextRow{}, "", false
	}
	row = ContextRow{Kind: kind, Text: m.Text(), Key: m.Metadata[metadataKey]}
	_ = json.Unmarshal([]byte(m.Metadata[metadataDisable]), &row.Disable) // empty for none
	_ = json.Unmarshal([]byte(m.Metadata[metadataEnable]), &row.Enable)
	return row, ContextSource(m.Metadata[metadataSource]), true
}

// Same reports whether two rows say the same.
func (r ContextRow) Same(other ContextRow) bool {
	return r.Kind == other.Kind && r.Text == other.Text && r.Key == other.Key &&
		slices.Equal(r.Disable, other.Disable) && slices.Equal(r.Enable, other.Enable)
}
