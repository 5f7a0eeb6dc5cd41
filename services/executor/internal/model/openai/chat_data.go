package openai

import (
	"encoding/json"
	"strings"
)

// origin names the maker of a piece of provider data. Signatures are valid for one model, and plain reasoning for one
// server.
type origin struct {
	Host  string `json:"host,omitempty"`
	Model string `json:"model,omitempty"`
}

// chatData is the provider data of a reasoning part: of the block itself (Field), or of the complete message (Details, Calls).
type chatData struct {
	Origin origin `json:"chat"`
	// Field is the member of the block's text on the wire.
	Field string `json:"field,omitempty"`
	// Details are reasoning_details of a router, unchanged.
	Details []json.RawMessage `json:"details,omitempty"`
	// Calls has the extra_content of calls, unchanged, by their index in the message.
	Calls map[string]json.RawMessage `json:"calls,omitempty"`
}

func (d chatData) encode() json.RawMessage {
	text, err := json.Marshal(d)
	if err != nil { // a server sent a member that is not JSON
		return nil
	}
	return text
}

// parseChatData returns the zero value for the data of another API.
func parseChatData(text json.RawMessage) chatData {
	var d chatData
	if json.Unmarshal(text, &d) != nil || d.Origin.Host == "" {
		return chatData{}
	}
	return d
}

// reasoningDetails joins the pieces of reasoning_details: neighbours of the same type and index form one entry.
type reasoningDetails struct {
	entries []*detailEntry
	bytes   int
}

type detailEntry struct {
	members map[string]json.RawMessage
	texts   map[string]*strings.Builder // of the members that come in pieces
}

func (r *reasoningDetails) add(piece json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(piece, &members) != nil || members == nil {
		return
	}
	r.bytes += len(piece)
	if r.bytes > maxExtra {
		return
	}
	last := len(r.entries) - 1
	// Texts and summaries come in pieces, encrypted data comes complete.
	same := func(name string) bool { return string(members[name]) == string(r.entries[last].members[name]) }
	if last < 0 || !same("type") || !same("index") || !isNull(members["data"]) {
		r.entries = append(r.entries, &detailEntry{members: map[string]json.RawMessage{}, texts: map[string]*strings.Builder{}})
		last++
	}
	r.entries[last].add(members)
}

func (e *detailEntry) add(members map[string]json.RawMessage) {
	for name, value := range members {
		var text string
		switch {
		case isNull(value) && e.members[name] != nil:
		case (name == "text" || name == "summary") && json.Unmarshal(value, &text) == nil && !isNull(value):
			if e.texts[name] == nil {
				e.texts[name] = &strings.Builder{}
			}
			e.texts[name].WriteString(text)
		default:
			e.members[name] = value
		}
	}
}

// encode returns the entries. It returns nil if they are too many to be kept: a part of them would be refused.
func (r *reasoningDetails) encode() []json.RawMessage {
	if r.bytes > maxExtra {
		return nil
	}
	var list []json.RawMessage
	for _, e := range r.entries {
		for name, text := range e.texts {
			e.members[name], _ = json.Marshal(text.String()) // strings always marshal
		}
		entry, err := json.Marshal(e.members)
		if err != nil {
			return nil
		}
		list = append(list, entry)
	}
	return list
}
