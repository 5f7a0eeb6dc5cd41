package uistream

import (
	"encoding/json"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// UIMessage is a message as user interfaces keep it.
type UIMessage struct {
	ID    string   `json:"id"`
	Role  string   `json:"role"` // user, assistant or system
	Parts []UIPart `json:"parts"`
	// Metadata says interrupted where a reply was cut short: interrupt, abort or
	// deadline.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// UIPart is one part of a UIMessage; as in Part, what a type does not have is
// zero and stays out of the JSON.
type UIPart struct {
	Type       string          `json:"type"`
	Text       string          `json:"text,omitempty"`
	State      string          `json:"state,omitempty"`
	ToolCallID string          `json:"toolCallId,omitempty"`
	InputText  string          `json:"inputText,omitempty"` // of an input that streams: its text so far
	Input      json.RawMessage `json:"input,omitempty"`
	Output     json.RawMessage `json:"output,omitempty"`
	ErrorText  string          `json:"errorText,omitempty"`
	Approval   *Approval       `json:"approval,omitempty"`
	MediaType  string          `json:"mediaType,omitempty"`
	URL        string          `json:"url,omitempty"`
	Filename   string          `json:"filename,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// Approval is what was asked for before a call may run, and what was answered.
type Approval struct {
	ID       string `json:"id"`
	Approved *bool  `json:"approved,omitempty"` // nil while nobody has answered
	Reason   string `json:"reason,omitempty"`
}

const toolPrefix = "tool-"

// Conversation makes UI messages of stored ones, in their order. All assistant
// and tool messages of one run become one assistant message, the one that the
// translator made of the run's chunks; its id is messageIDs[run], or that of its
// first stored message for a run that is not there. A run with the message id of
// an earlier one goes on in its message. Hidden and context messages are left out.
func Conversation(stored []*eventv1.Message, messageIDs map[string]string) []UIMessage {
	c := conversation{ids: messageIDs, turns: map[string]int{}}
	for _, m := range stored {
		c.add(m)
	}
	return c.messages
}

type conversation struct {
	ids      map[string]string
	messages []UIMessage
	turns    map[string]int // an assistant message's index, by its id, or by its run where nobody knows that
	step     int32          // of the last assistant message
}

// Answers reports whether the message belongs to the assistant message of its
// run rather than standing for itself.
func Answers(m *eventv1.Message) bool {
	return !m.GetHidden() && (m.GetRole() == eventv1.Role_ROLE_ASSISTANT || m.GetRole() == eventv1.Role_ROLE_TOOL)
}

func (c *conversation) add(m *eventv1.Message) {
	switch {
	case Answers(m):
		c.answer(m)
	case m.GetHidden():
	case m.GetRole() == eventv1.Role_ROLE_USER:
		c.messages = append(c.messages, UIMessage{ID: m.GetId(), Role: "user", Parts: plainParts(m)})
	case m.GetRole() == eventv1.Role_ROLE_SYSTEM:
		c.messages = append(c.messages, UIMessage{ID: m.GetId(), Role: "system", Parts: plainParts(m)})
	}
}

func plainParts(m *eventv1.Message) []UIPart {
	parts := []UIPart{} // the key is never null
	for _, p := range m.GetParts() {
		switch p := p.GetPart().(type) {
		case *eventv1.Part_Text:
			if p.Text.GetText() != "" {
				parts = append(parts, UIPart{Type: text, Text: p.Text.GetText()})
			}
		case *eventv1.Part_File:
			parts = append(parts, filePart(p.File))
		}
	}
	return parts
}

func filePart(f *eventv1.FilePart) UIPart {
	return UIPart{Type: "file", MediaType: f.GetMediaType(), URL: f.GetUrl(), Filename: f.GetFilename()}
}

func (c *conversation) answer(m *eventv1.Message) {
	id := c.ids[m.GetRunId()]
	turn := orText(id, m.GetRunId())
	index, known := c.turns[turn]
	if !known || turn == "" {
		index = len(c.messages)
		c.turns[turn] = index
		c.messages = append(c.messages, UIMessage{ID: orText(id, m.GetId()), Role: "assistant", Parts: []UIPart{}})
		c.step = 0
	}
	message := &c.messages[index]
	if m.GetRole() == eventv1.Role_ROLE_ASSISTANT && (c.step != m.GetStep() || len(message.Parts) == 0) {
		message.Parts = append(message.Parts, UIPart{Type: "step-start"})
		c.step = m.GetStep()
	}
	if kind := m.GetMetadata()[interrupted]; kind != "" {
		message.Metadata = map[string]string{interrupted: kind}
	}
	for _, p := range m.GetParts() {
		message.addPart(p)
	}
}

func (m *UIMessage) addPart(p *eventv1.Part) {
	switch p := p.GetPart().(type) {
	case *eventv1.Part_Text:
		m.addBlock(text, p.Text.GetText())
	case *eventv1.Part_Reasoning:
		m.addBlock(reasoning, p.Reasoning.GetText())
	case *eventv1.Part_ToolCall:
		m.Parts = append(m.Parts, UIPart{
			Type: toolPrefix + p.ToolCall.GetToolName(), ToolCallID: p.ToolCall.GetToolCallId(),
			State: "input-available", Input: value(p.ToolCall.GetArguments(), "{}"),
		})
	case *eventv1.Part_ToolResult:
		m.addResult(p.ToolResult)
	case *eventv1.Part_File:
		m.Parts = append(m.Parts, filePart(p.File))
	}
}

func (m *UIMessage) addBlock(kind, content string) {
	if content != "" {
		m.Parts = append(m.Parts, UIPart{Type: kind, Text: content, State: "done"})
	}
}

func (m *UIMessage) addResult(r *eventv1.ToolResultPart) {
	at := m.call(r.GetToolCallId())
	if at < 0 {
		at = len(m.Parts)
		m.Parts = append(m.Parts, UIPart{Type: toolPrefix + r.GetToolName(), ToolCallID: r.GetToolCallId(), Input: value("", "{}")})
	}
	p := &m.Parts[at]
	if !r.GetSuccess() {
		p.State, p.ErrorText = "output-error", orText(r.GetError(), toolFailedText)
		return
	}
	p.State, p.Output = "output-available", value(r.GetResult(), "null")
}

func (m *UIMessage) call(id string) int {
	for i, p := range m.Parts {
		if p.ToolCallID == id {
			return i
		}
	}
	return -1
}

// Replay gives the stream that builds the message from nothing, without its
// end: Finish and Fail of the translator end it.
func (t *Translator) Replay(m UIMessage) []Part {
	parts := t.Start()
	for _, p := range m.Parts {
		parts = append(parts, t.replay(p)...)
	}
	return parts
}

func (t *Translator) replay(p UIPart) []Part {
	switch {
	case p.Type == "step-start":
		return t.startStep(0, t.step.number+1)
	case p.Type == text || p.Type == reasoning:
		return append(append(t.closeBlock(), t.grow(p.Type, p.Text)...), t.closeBlock()...)
	case p.ToolCallID != "":
		return t.replayCall(p)
	default:
		return nil
	}
}

func (t *Translator) replayCall(p UIPart) []Part {
	name := p.Type[len(toolPrefix):]
	parts := t.callStart(0, p.ToolCallID, name)
	known := call{available: true}
	parts = append(parts, Part{Type: "tool-input-available", ToolCallID: p.ToolCallID, ToolName: name, Input: p.Input})
	if a := p.Approval; a != nil {
		known.approval, known.denied = a.ID, a.Approved != nil && !*a.Approved
		parts = append(parts, t.replayApproval(p.ToolCallID, *a)...)
	}
	t.calls[p.ToolCallID] = known
	switch p.State {
	case "output-available":
		parts = append(parts, Part{Type: "tool-output-available", ToolCallID: p.ToolCallID, Output: p.Output})
	case "output-error":
		parts = append(parts, Part{Type: "tool-output-error", ToolCallID: p.ToolCallID, ErrorText: p.ErrorText})
	case "output-denied":
		parts = append(parts, toolDenied(p.ToolCallID))
	}
	return parts
}

func (t *Translator) replayApproval(call string, a Approval) []Part {
	if !t.major.approves() {
		return nil
	}
	parts := []Part{approvalRequest(call, a.ID)}
	if a.Approved != nil && t.major.responds() {
		parts = append(parts, approvalResponse(a.ID, *a.Approved))
	}
	return parts
}

// Asked is an approval that was asked for, of a call that has not ended.
type Asked struct {
	CallID string
	Approval
}

// Ask shows on the calls of the messages that an approval was asked for, which stored
// messages do not say.
func Ask(messages []UIMessage, asked []Asked) {
	for _, a := range asked {
		for i := range messages {
			if at := messages[i].call(a.CallID); at >= 0 && messages[i].Parts[at].State == "input-available" {
				messages[i].Parts[at].ask(a.Approval)
			}
		}
	}
}

func (p *UIPart) ask(a Approval) {
	p.State, p.Approval = "approval-requested", &a
	if a.Approved != nil {
		p.State = "approval-responded"
	}
}
