package cloudflare

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// The types of frames.
const (
	typeIdentity   = "cf_agent_identity"
	typeState      = "cf_agent_state"
	typeStateError = "cf_agent_state_error"
	typeMCPServers = "cf_agent_mcp_servers"

	typeChatRequest   = "cf_agent_use_chat_request"
	typeChatResponse  = "cf_agent_use_chat_response"
	typeChatCancel    = "cf_agent_chat_request_cancel"
	typeChatMessages  = "cf_agent_chat_messages"
	typeChatClear     = "cf_agent_chat_clear"
	typeToolResult    = "cf_agent_tool_result"
	typeToolApproval  = "cf_agent_tool_approval"
	typeResumeRequest = "cf_agent_stream_resume_request"
	typeResumeAck     = "cf_agent_stream_resume_ack"
	typeResuming      = "cf_agent_stream_resuming"
	typeResumeNone    = "cf_agent_stream_resume_none"
)

// frame is a frame of a client, of any type. Other keys are ignored.
type frame struct {
	Type string `json:"type"`
	ID   string `json:"id"`

	State json.RawMessage `json:"state"` // of a state; the state of a call, if the type is typeToolResult

	Init struct {
		Body string `json:"body"` // JSON
	} `json:"init"`
	ProbeID  string          `json:"probeId"`
	Messages json.RawMessage `json:"messages"`

	ToolCallID   string          `json:"toolCallId"`
	Output       json.RawMessage `json:"output"`
	ErrorText    string          `json:"errorText"`
	Approved     bool            `json:"approved"`
	AutoContinue bool            `json:"autoContinue"`

	Method string            `json:"method"`
	Args   []json.RawMessage `json:"args"`
}

// parse decodes a frame; nil if it is none. Clients may send other frames to their own servers, so an
// unknown one is no error.
func parse(text []byte) *frame {
	f := &frame{}
	if json.Unmarshal(text, f) != nil {
		return nil
	}
	return f
}

// encode encodes a frame.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil { // values always marshal
		return []byte(`{}`)
	}
	return text
}

// identityFrame says which instance serves. A client is ready when it has the identity, or the state after it.
func identityFrame(agent, name string, stateFollows bool) []byte {
	return encode(struct {
		Type         string `json:"type"`
		Name         string `json:"name"`
		Agent        string `json:"agent"`
		StateFollows bool   `json:"stateFollows,omitempty"`
	}{typeIdentity, name, agent, stateFollows})
}

// stateFrame has the whole state, a JSON text.
func stateFrame(state string) []byte {
	return encode(struct {
		Type  string          `json:"type"`
		State json.RawMessage `json:"state"`
	}{typeState, json.RawMessage(state)})
}

// stateErrorFrame refuses a state.
func stateErrorFrame(text string) []byte {
	return encode(struct {
		Type  string `json:"type"`
		Error string `json:"error"`
	}{typeStateError, text})
}

// noMCPServers says that the browser may see no MCP servers: the executor has them.
var noMCPServers = []byte(`{"type":"` + typeMCPServers + `","mcp":{"prompts":[],"resources":[],"servers":{},"tools":[]}}`)

// messagesFrame replaces the messages of a client. onConnect keeps the client's unsent messages.
func messagesFrame(messages []uistream.UIMessage, onConnect bool) []byte {
	return encode(struct {
		Type      string               `json:"type"`
		Messages  []uistream.UIMessage `json:"messages"`
		OnConnect bool                 `json:"connect,omitempty"`
	}{typeChatMessages, messages, onConnect})
}

var clearFrame = []byte(`{"type":"` + typeChatClear + `"}`)

// response is a frame of a turn.
type response struct {
	Type           string `json:"type"`
	ID             string `json:"id"`
	Body           string `json:"body"` // a part of the message as JSON, or the text of an error
	Done           bool   `json:"done"`
	Sequence       *int   `json:"seq,omitempty"`
	Continuation   bool   `json:"continuation,omitempty"`
	Replay         bool   `json:"replay,omitempty"`
	ReplayComplete bool   `json:"replayComplete,omitempty"`
	Error          bool   `json:"error,omitempty"`
	Outcome        string `json:"outcome,omitempty"`
}

// The outcomes of turns.
const (
	outcomeCompleted = "completed"
	outcomeError     = "error"
	outcomeAborted   = "aborted"
)

func (r response) encode() []byte {
	r.Type = typeChatResponse
	return encode(r)
}

// refusal ends a request with a sentence.
func refusal(id, sentence string) []byte {
	return response{ID: id, Body: sentence, Done: true, Error: true, Outcome: outcomeError}.encode()
}

// resumingFrame offers the stream of a turn.
func resumingFrame(id, probe string) []byte {
	return encode(struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		ProbeID string `json:"probeId,omitempty"`
	}{typeResuming, id, probe})
}

// resumeNoneFrame says that no turn is live.
func resumeNoneFrame(probe string) []byte {
	return encode(struct {
		Type    string `json:"type"`
		Reason  string `json:"reason"`
		ProbeID string `json:"probeId,omitempty"`
	}{typeResumeNone, "idle", probe})
}
