package uistream

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// jsonValue converts a JSON text to a value. An empty text becomes the default. Invalid JSON, and JSON refused by
// clients, becomes a string: one broken text must not end a client's stream.
func jsonValue(text, whenEmpty string) json.RawMessage {
	if text == "" {
		return json.RawMessage(whenEmpty)
	}
	if json.Valid([]byte(text)) && !isRefused([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, err := json.Marshal(strings.ToValidUTF8(text, string(utf8.RuneError)))
	if err != nil {
		return json.RawMessage(whenEmpty)
	}
	return quoted
}

// isRefused reports whether the client's parser refuses the JSON. It fails the whole message on
// keys that could reach the prototype of an object.
func isRefused(text []byte) bool {
	if !bytes.Contains(text, []byte("proto")) && !bytes.Contains(text, []byte(`\u`)) {
		return false
	}
	var v any
	return json.Unmarshal(text, &v) != nil || reachesPrototype(v)
}

func reachesPrototype(v any) bool {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if reachesPrototype(item) {
				return true
			}
		}
	case map[string]any:
		if _, there := v["__proto__"]; there {
			return true
		}
		if made, ok := v["constructor"].(map[string]any); ok {
			if _, there := made["prototype"]; there {
				return true
			}
		}
		for _, item := range v {
			if reachesPrototype(item) {
				return true
			}
		}
	}
	return false
}
