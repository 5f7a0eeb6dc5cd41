package uistream

import (
	"bytes"
	"encoding/json"
)

// agentMetadata is the event with which an agent sets metadata of the message (agent.MetadataEvent).
const agentMetadata = "message-metadata"

// withAgent returns the metadata after the agent has set more. m may be nil and is not changed.
func (m *Metadata) withAgent(text string) *Metadata {
	var out Metadata
	if m != nil {
		out = *m
	}
	if text != "" {
		out.agentJSON = mergeJSON(out.agentJSON, text)
	}
	return &out
}

// mergeJSON merges the second JSON object into the first, as clients merge metadata: objects in
// depth, and any other value replaces the earlier one. It returns the first if the second is no
// object.
func mergeJSON(base, more string) string {
	from, ok := decodeObject(more)
	if !ok {
		return base
	}
	into, ok := decodeObject(base)
	if !ok {
		into = map[string]any{}
	}
	text, err := json.Marshal(mergeObjects(into, from))
	if err != nil {
		return base
	}
	return string(text)
}

func mergeObjects(into, from map[string]any) map[string]any {
	for key, value := range from {
		inner, isObject := value.(map[string]any)
		before, wasObject := into[key].(map[string]any)
		if isObject && wasObject {
			value = mergeObjects(before, inner)
		}
		into[key] = value
	}
	return into
}

// decodeObject keeps numbers as they are.
func decodeObject(text string) (map[string]any, bool) {
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	var object map[string]any
	err := decoder.Decode(&object)
	return object, err == nil && object != nil
}
