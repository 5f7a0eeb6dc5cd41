package uistream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// UIMessage is a message of the AI SDK.
type UIMessage struct {
	ID       string    `json:"id"`
	Role     string    `json:"role"` // user, assistant or system
	Parts    []UIPart  `json:"parts"`
	Metadata *Metadata `json:"metadata,omitempty"`
}

// UIPart is a part of a UIMessage. As in Part, fields of other types are zero and omitted from the
// JSON.
type UIPart struct {
	Type       string          `json:"type"`
	ID         string          `json:"id,omitempty"`
	Text       string          `json:"text,omitempty"`
	State      string          `json:"state,omitempty"`
	ToolName   string          `json:"toolName,omitempty"` // of a dynamic tool; other tools have it in the type
	ToolCallID string          `json:"toolCallId,omitempty"`
	InputText  string          `json:"inputText,omitempty"` // text so far of a streaming input
	Input      json.RawMessage `json:"input,omitempty"`
	Output     json.RawMessage `json:"output,omitempty"`
	ErrorText  string          `json:"errorText,omitempty"`
	Approval   *Approval       `json:"approval,omitempty"`
	MediaType  string          `json:"mediaType,omitempty"`
	URL        string          `json:"url,omitempty"`
	Filename   string          `json:"filename,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`

	deniedError string // error of a denied call, for clients without approvals
}

// Approval is the approval of a call, and the decision.
type Approval struct {
	ID       string `json:"id"`
	Approved *bool  `json:"approved,omitempty"` // nil before the decision
	Reason   string `json:"reason,omitempty"`
}

// The part types of calls.
const (
	toolPrefix  = "tool-" // followed by the tool's name
	dynamicTool = "dynamic-tool"
)

func callPart(id string, of tool) UIPart {
	if of.dynamic {
		return UIPart{Type: dynamicTool, ToolName: of.name, ToolCallID: id}
	}
	return UIPart{Type: toolPrefix + of.name, ToolCallID: id}
}

func (p *UIPart) tool() tool {
	if p.Type == dynamicTool {
		return tool{p.ToolName, true}
	}
	return tool{name: p.Type[len(toolPrefix):]}
}

// IsPartOfAnswer reports whether the stored message belongs to the assistant message of its run.
func IsPartOfAnswer(m *eventv1.Message) bool {
	return !m.GetHidden() && (m.GetRole() == eventv1.Role_ROLE_ASSISTANT || m.GetRole() == eventv1.Role_ROLE_TOOL)
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

// dataPart is a data part of a user message, as UiParts has it.
type dataPart struct {
	At   int             `json:"at"` // how many stored parts come before it
	Type string          `json:"type"`
	ID   string          `json:"id,omitempty"`
	Data json.RawMessage `json:"data"`
}

// DataParts collects the data parts of a user message, which models do not see.
type DataParts []dataPart

// Add adds a part behind the first stored ones. data is a JSON value.
func (d *DataParts) Add(stored int, kind, id, data string) {
	*d = append(*d, dataPart{At: stored, Type: kind, ID: id, Data: json.RawMessage(data)})
}

// Text returns UiParts of the message, "" without parts.
func (d DataParts) Text() string {
	if len(d) == 0 {
		return ""
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(d) != nil { // the values are JSON
		return ""
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// userParts returns the parts of a user message with its data parts.
func userParts(m *eventv1.Message) []UIPart {
	var data DataParts
	if json.Unmarshal([]byte(m.GetUiParts()), &data) != nil {
		data = nil // "" or of a newer writer
	}
	parts := []UIPart{} // the key is never null
	add := func(stored int) {
		for ; len(data) > 0 && data[0].At <= stored; data = data[1:] {
			parts = append(parts, UIPart{Type: data[0].Type, ID: data[0].ID, Data: data[0].Data})
		}
	}
	for i, p := range m.GetParts() {
		add(i)
		parts = append(parts, plainParts(&eventv1.Message{Parts: []*eventv1.Part{p}})...)
	}
	add(math.MaxInt)
	return parts
}

func filePart(f *eventv1.FilePart) UIPart {
	return UIPart{Type: "file", MediaType: f.GetMediaType(), URL: f.GetUrl(), Filename: f.GetFilename()}
}

func hasOnlyResults(m *eventv1.Message) bool {
	return len(m.GetParts()) > 0 && !slices.ContainsFunc(m.GetParts(), func(p *eventv1.Part) bool { return p.GetToolResult() == nil })
}

func (p *UIPart) isOpenCall() bool {
	return p.ToolCallID != "" && !strings.HasPrefix(p.State, "output-")
}

// HasOpenCalls reports whether the messages have a call without an end.
func HasOpenCalls(messages []UIMessage) bool {
	return slices.ContainsFunc(messages, func(m UIMessage) bool {
		return slices.ContainsFunc(m.Parts, func(p UIPart) bool { return p.isOpenCall() })
	})
}

// ApplyResults ends open calls of the messages with results of a later stored message.
func ApplyResults(messages []UIMessage, stored *eventv1.Message) {
	if !IsPartOfAnswer(stored) {
		return
	}
	for _, p := range stored.GetParts() {
		r := p.GetToolResult()
		for i := len(messages) - 1; r != nil && i >= 0; i-- { // the newest call with the id
			if messages[i].endCall(r) {
				break
			}
		}
	}
}

// endCall ends the call with the result's id, and its sub-agent. It reports false if the message has no such
// open call.
func (m *UIMessage) endCall(r *eventv1.ToolResultPart) bool {
	at := m.callIndex(r.GetToolCallId())
	if at < 0 || !m.Parts[at].isOpenCall() {
		return false
	}
	m.Parts[at].addResult(r)
	m.endSubAgent(r)
	return true
}

func (m *UIMessage) addPart(p *eventv1.Part) {
	switch p := p.GetPart().(type) {
	case *eventv1.Part_Text:
		m.addBlock(text, p.Text.GetText())
	case *eventv1.Part_Reasoning:
		m.addBlock(reasoning, p.Reasoning.GetText())
	case *eventv1.Part_ToolCall:
		part := callPart(p.ToolCall.GetToolCallId(), tool{p.ToolCall.GetToolName(), p.ToolCall.GetDynamic()})
		part.State, part.Input = "input-available", jsonValue(p.ToolCall.GetArguments(), "{}")
		m.Parts = append(m.Parts, part)
	case *eventv1.Part_ToolResult:
		if at := m.callIndex(p.ToolResult.GetToolCallId()); at >= 0 {
			m.Parts[at].addResult(p.ToolResult)
		}
	case *eventv1.Part_File:
		m.Parts = append(m.Parts, filePart(p.File))
	}
}

func (m *UIMessage) addBlock(kind, content string) {
	if content != "" {
		m.Parts = append(m.Parts, UIPart{Type: kind, Text: content, State: "done"})
	}
}

func (p *UIPart) addResult(r *eventv1.ToolResultPart) {
	if v := r.GetApproval(); v != nil {
		approved := v.GetApproved()
		p.Approval = &Approval{ID: v.GetApprovalId(), Approved: &approved, Reason: v.GetReason()}
		if !approved {
			p.State, p.deniedError = "output-denied", cmp.Or(step.PublicError(r), toolFailedText)
			return
		}
	}
	p.setAnswer(Answer{Result: r.GetResult(), Error: step.PublicError(r), Success: r.GetSuccess()})
}

// setAnswer ends the call and drops an undecided approval.
func (p *UIPart) setAnswer(a Answer) {
	if p.Approval != nil && p.Approval.Approved == nil {
		p.Approval = nil
	}
	p.Output, p.ErrorText = nil, ""
	if !a.Success {
		p.State, p.ErrorText = "output-error", cmp.Or(a.Error, toolFailedText)
		return
	}
	p.State, p.Output = "output-available", jsonValue(a.Result, "null")
}

func (m *UIMessage) callIndex(id string) int {
	for i, p := range m.Parts {
		if p.ToolCallID == id {
			return i
		}
	}
	return -1
}

// Replay returns the stream that builds the message from nothing. The caller ends it with Finish or
// Fail.
func (t *Translator) Replay(m UIMessage) []Part {
	parts := t.Start()
	if m.Metadata != nil {
		t.usage, t.cutShort = m.Metadata.Usage, t.cutShort || m.Metadata.Interrupted != ""
	}
	for _, p := range m.Parts {
		parts = append(parts, t.replayPart(p)...)
		t.step.shown = p.Type != "step-start"
	}
	return parts
}

func (t *Translator) replayPart(p UIPart) []Part {
	switch {
	case p.Type == "step-start":
		return t.startStep(0, t.step.number+1)
	case p.Type == text || p.Type == reasoning:
		return append(append(t.closeBlock(), t.grow(p.Type, p.Text)...), t.closeBlock()...)
	case p.ToolCallID != "":
		return t.replayCall(p)
	case p.Data != nil:
		return []Part{{Type: p.Type, ID: p.ID, Data: p.Data}}
	default:
		return nil
	}
}

// replayCall returns the parts of a call. An ended call without an approval may be a client tool's,
// so its input is sent silently.
func (t *Translator) replayCall(p UIPart) []Part {
	id, of := p.ToolCallID, p.tool()
	ended := strings.HasPrefix(p.State, "output-")
	var parts []Part
	if p.Approval == nil && (ended || t.answered != nil && t.answered(id)) {
		parts = t.sendInputSilently(0, id, of, string(p.Input))
	} else {
		parts = t.sendInput(0, id, of, string(p.Input))
	}
	if a := p.Approval; a != nil {
		parts = append(parts, t.sendApprovalRequest(id, a.ID)...)
		if a.Approved != nil {
			parts = append(parts, t.sendDecision(id, a.ID, *a.Approved, a.Reason)...)
		}
	}
	if !ended {
		return parts
	}
	if p.State == "output-denied" && t.major.approves() {
		t.calls[id].ended = true
		return append(parts, toolDenied(id))
	}
	return append(parts, t.output(t.calls[id], Answer{
		Result: string(p.Output), Error: cmp.Or(p.ErrorText, p.deniedError), Success: p.State == "output-available",
	}))
}

func (p *UIPart) setApproval(a Approval) {
	p.State, p.Approval = "approval-requested", &a
	if a.Approved != nil {
		p.State = "approval-responded"
	}
}
