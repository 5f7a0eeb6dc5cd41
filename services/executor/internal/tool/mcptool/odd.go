package mcptool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// problemKey is the metadata key under which readable says why a tool cannot be used.
const problemKey = "holdfast.run/problem"

// namesKey is the metadata key of the names in a list of tools. The library leaves tools out of it without a word.
const namesKey = "holdfast.run/names"

// maxUnreadable is how much of a message that is not JSON the library receives, for its error.
const maxUnreadable = 1 << 10

// readable returns a message as the library can read it. The library decodes a list of tools, and a result, as a whole, so
// one tool with a number as its description would take away all tools of its server. It also recurses without a limit,
// and some messages make it panic. A message that json.Valid accepts is nested 10,000 levels deep at most.
func readable(message []byte) []byte {
	if !json.Valid(message) {
		return message[:min(len(message), maxUnreadable)]
	}
	batch, isBatch := listOf(message)
	if !isBatch {
		return readableResponse(message)
	}
	for i, one := range batch {
		batch[i] = readableResponse(one)
	}
	return toJSON(batch)
}

func readableResponse(message json.RawMessage) json.RawMessage {
	envelope := membersOf(message)
	result := membersOf(envelope["result"])
	if result == nil {
		return message
	}
	tools, isListing := listOf(result["tools"])
	switch {
	case isListing:
		readable, names := readableTools(tools)
		result["tools"] = toJSON(readable)
		result["_meta"] = toJSON(map[string][]string{namesKey: names})
		keepText(result, "nextCursor")
	case result["tools"] != nil:
		delete(result, "tools") // what the library makes of it is not known
	case isReadableResult(envelope["result"], result):
		return message
	default:
		repairResult(result)
	}
	envelope["result"] = toJSON(result)
	return toJSON(envelope)
}

// membersOf returns the members of an object, and nil for anything else.
func membersOf(raw json.RawMessage) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	return members
}

func listOf(raw json.RawMessage) (list []json.RawMessage, ok bool) {
	err := json.Unmarshal(raw, &list)
	return list, err == nil && list != nil
}

// toJSON encodes what was decoded from JSON.
func toJSON(value any) json.RawMessage {
	raw, err := json.Marshal(value)
	if err != nil {
		return json.RawMessage("null") // cannot happen: raw messages were valid
	}
	return raw
}

// keepText removes a member that is no text.
func keepText(members map[string]json.RawMessage, name string) {
	if raw, ok := members[name]; ok && !bytes.HasPrefix(raw, []byte(`"`)) {
		delete(members, name)
	}
}

// keepObject removes a member other than an object.
func keepObject(members map[string]json.RawMessage, name string) {
	if raw, ok := members[name]; ok && !bytes.HasPrefix(raw, []byte(`{`)) {
		delete(members, name)
	}
}

// readableTool is what this package uses of a tool.
type readableTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations struct {
		ReadOnlyHint   bool `json:"readOnlyHint"`
		IdempotentHint bool `json:"idempotentHint"`
	} `json:"annotations"`
	Meta map[string]string `json:"_meta,omitempty"`
}

// anyArguments is the schema of a tool without one.
const anyArguments = `{"type":"object"}`

// readableTools rewrites a list of tools, and returns their names. A tool that cannot be read has its problem as metadata.
func readableTools(list []json.RawMessage) (tools []readableTool, names []string) {
	tools = make([]readableTool, 0, len(list))
	for i, raw := range list {
		members := membersOf(raw)
		tool := readableTool{InputSchema: json.RawMessage(anyArguments)}
		// What is of another type stays empty: it is optional, except for the name and the schema.
		_ = json.Unmarshal(members["name"], &tool.Name)
		_ = json.Unmarshal(members["description"], &tool.Description)
		hints := membersOf(members["annotations"])
		_ = json.Unmarshal(hints["readOnlyHint"], &tool.Annotations.ReadOnlyHint)
		_ = json.Unmarshal(hints["idempotentHint"], &tool.Annotations.IdempotentHint)
		schema, problem := readableSchema(members["inputSchema"])
		switch {
		case members == nil:
			problem = fmt.Sprintf("it is no object: %.100s", raw)
		case tool.Name == "":
			problem = fmt.Sprintf("its name is no text: %.100s", members["name"])
		case problem == "":
			tool.InputSchema = schema
		}
		if problem != "" {
			tool.Name = cmp.Or(tool.Name, fmt.Sprintf("tool %d of the list", i+1))
			tool.Meta = map[string]string{problemKey: problem}
		}
		tools, names = append(tools, tool), append(names, tool.Name)
	}
	return tools, names
}

// readableSchema returns an input schema of type object. Servers leave the type out, or the whole schema, or write null or
// true. Arguments are an object in any case.
func readableSchema(raw json.RawMessage) (schema json.RawMessage, problem string) {
	var decoded any
	err := json.Unmarshal(raw, &decoded)
	root, isObject := decoded.(map[string]any)
	types, _ := root["type"].([]any)
	switch {
	case len(raw) == 0 || decoded == nil && err == nil || decoded == true:
		return json.RawMessage(anyArguments), ""
	case err != nil:
		return nil, fmt.Sprintf("its input schema cannot be read: %v", err) // for example a number that no float64 holds
	case !isObject:
		return nil, fmt.Sprintf("its input schema is no object: %.100s", raw)
	}
	if root["type"] == nil || slices.Contains(types, any("object")) {
		members := membersOf(raw)
		members["type"] = json.RawMessage(`"object"`)
		return toJSON(members), ""
	}
	return raw, ""
}

// isReadableResult reports whether the library can read the result of a call.
func isReadableResult(raw json.RawMessage, members map[string]json.RawMessage) bool {
	if members["content"] == nil && members["structuredContent"] == nil {
		return true // of another request
	}
	return json.Unmarshal(raw, new(mcp.CallToolResult)) == nil
}

// repairResult makes the result of a call readable. A part of an unknown kind becomes a text.
func repairResult(result map[string]json.RawMessage) {
	var parts []json.RawMessage
	switch content := result["content"]; {
	case len(content) == 0 || string(content) == "null":
	default:
		list, ok := listOf(content)
		if !ok {
			list = []json.RawMessage{content}
		}
		for _, part := range list {
			parts = append(parts, readablePart(part))
		}
	}
	result["content"] = toJSON(slices.Concat([]json.RawMessage{}, parts))
	if raw, ok := result["isError"]; ok && string(raw) != "true" && string(raw) != "false" {
		failed, err := strconv.ParseBool(strings.Trim(string(raw), `"`))
		result["isError"] = toJSON(failed && err == nil)
	}
	keepText(result, "resultType")
	keepObject(result, "_meta")
	if raw := result["structuredContent"]; len(raw) > 0 && json.Unmarshal(raw, new(any)) != nil {
		delete(result, "structuredContent") // for example a number that no float64 holds; the texts repeat it
	}
}

// readablePart returns a part of a result, or a text with it.
func readablePart(part json.RawMessage) json.RawMessage {
	alone := toJSON(map[string]any{"content": []json.RawMessage{part}})
	if json.Unmarshal(alone, new(mcp.CallToolResult)) == nil {
		return part
	}
	var text string
	if json.Unmarshal(part, &text) != nil {
		text = string(part)
	}
	return toJSON(map[string]string{"type": "text", "text": text})
}
