package cloudflare

import (
	"encoding/json"
)

// The types of frames.
const (
	typeIdentity   = "cf_agent_identity"
	typeState      = "cf_agent_state"
	typeStateError = "cf_agent_state_error"
	typeMCPServers = "cf_agent_mcp_servers"
)

// frame is a frame of a client. Other keys are ignored.
type frame struct {
	Type  string          `json:"type"`
	State json.RawMessage `json:"state"`
}

// parse decodes a frame; nil if it is none that the gateway knows. Clients may send other frames to
// their own servers, so an unknown one is no error.
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

// identityFrame says who the instance is. A client is ready when it has the identity, or the state
// that follows.
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
