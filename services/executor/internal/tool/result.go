package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// result converts the value returned by a tool.
func (r *Runner) result(t agent.Tool, call *agent.Call, value any, maxBytes int) agent.ToolResult {
	data, err := marshal(value)
	if err != nil {
		return failed(t, call, "the tool's result cannot be written as JSON: "+err.Error())
	}
	if len(data) > maxBytes {
		result := failed(t, call, fmt.Sprintf(
			"result_too_large: the tool's result has %d bytes, and at most %d can be kept; ask for less", len(data), maxBytes))
		result.Synthetic = true
		return result
	}
	if len(t.OutputSchema) > 0 {
		schema, err := r.schemas.Compile(t.OutputSchema)
		if err == nil {
			err = schema.Check(data)
		}
		if err != nil {
			return failed(t, call, "the tool's result does not fit its output schema: "+err.Error())
		}
	}
	return agent.ToolResult{CallID: call.ID, Name: t.Name, Result: data, Success: true}
}

// marshal encodes JSON with unescaped <, > and &. The result is valid UTF-8, also if a value contains invalid
// JSON text.
func marshal(value any) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	data := bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	return data, nil
}
