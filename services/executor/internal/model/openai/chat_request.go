package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

// newChatBody converts a request for chat completions as the profile demands, and says which files its parts are. Its error is a
// *model.Error: provider_invalid_request.
func newChatBody(r model.Request, p profile.Profile, from origin) (json.RawMessage, model.Locations, error) {
	if p.ToolNames == profile.NamesLetter {
		r = model.LetterToolNames(r)
	}
	params := chatBody{Model: r.Model, Temperature: r.Temperature}
	if p.StreamOptions {
		params.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if p.OutputLimit == profile.LimitTokens {
		params.MaxTokens = max(r.MaxOutputTokens, 0)
	} else {
		params.MaxCompletionTokens = max(r.MaxOutputTokens, 0)
	}
	if err := setChatTools(&params, r, p); err != nil {
		return nil, nil, err
	}
	system := r.System
	if r.Output != nil {
		format, err := chatFormat(*r.Output, p)
		if err != nil {
			return nil, nil, err
		}
		params.ResponseFormat = &format
		if p.Output == profile.OutputObject {
			system = strings.TrimLeft(system+"\n\n"+objectInstruction+string(r.Output.Schema), "\n")
		}
	}
	messages, locations, err := newChatMessages(r, system, p, from)
	if err != nil {
		return nil, nil, err
	}
	params.Messages = messages
	body, err := encodeJSON(params)
	if err != nil {
		return nil, nil, model.InvalidRequest("cannot encode the request: %v", err)
	}
	body, err = model.FinishBody(body, r.Options, p.Omit...)
	return body, locations, err
}

// objectInstruction asks for an output where the server takes no schema.
const objectInstruction = "Reply with nothing but one JSON object that fits this JSON Schema:\n"

// encodeJSON encodes a value without escapes for HTML, which would only make requests longer.
func encodeJSON(value any) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSpace(text.Bytes()), err
}

func setChatTools(params *chatBody, r model.Request, p profile.Profile) error {
	for _, t := range r.Tools {
		t.Strict = t.Strict && p.Strict
		tool, err := chatTool(t)
		if err != nil {
			return err
		}
		params.Tools = append(params.Tools, tool)
	}
	mode, err := toolChoice(r)
	switch model.Choice(mode) {
	case model.ChoiceRequired:
		mode = p.RequiredChoice
	case model.ChoiceNone:
		mode = p.NoneChoice
	}
	params.ToolChoice = mode
	return err
}

// toolChoice returns the tool choice of a request, "" for the default.
func toolChoice(r model.Request) (string, error) {
	switch {
	case len(r.Tools) == 0 && r.Choice == model.ChoiceRequired:
		return "", model.InvalidRequest("a tool call is required but the request has no tools")
	case len(r.Tools) == 0:
		return "", nil // the API refuses a tool choice without tools
	}
	return string(r.Choice), nil
}

func chatFormat(o model.Output, p profile.Profile) (format responseFormat, err error) {
	schema, err := parseObject(o.Schema)
	if err != nil {
		return format, model.InvalidRequest("the schema of the output is not a JSON object: %v", err)
	}
	if p.Output == profile.OutputObject {
		return responseFormat{Type: "json_object"}, nil
	}
	strict := o.Strict && p.Strict && isStrictSchema(o.Schema)
	return responseFormat{JSONSchema: &outputSchema{Name: o.Name, Strict: strict, Schema: schema}, Type: "json_schema"}, nil
}

// parseObject reads a JSON object. Raw values keep numbers as written.
func parseObject(source json.RawMessage) (object map[string]json.RawMessage, err error) {
	err = json.Unmarshal(source, &object)
	return object, err
}

func chatTool(t model.Tool) (tool chatFunction, err error) {
	tool = chatFunction{Type: "function"}
	tool.Function.Name, tool.Function.Description = t.Name, t.Description
	tool.Function.Strict = t.Strict && isStrictSchema(t.InputSchema)
	if len(t.InputSchema) > 0 {
		if tool.Function.Parameters, err = parseObject(t.InputSchema); err != nil {
			return tool, model.InvalidRequest("the input schema of the tool %s is not a JSON object: %v", t.Name, err)
		}
	}
	return tool, nil
}

// resultText returns a result as the model reads it: texts unchanged, other values and failures as JSON.
func resultText(r agent.ToolResult) string {
	if r.Success {
		return model.PlainText(r.Result)
	}
	failure := struct {
		Error  string          `json:"error"`
		Result json.RawMessage `json:"result,omitempty"`
	}{r.Error, r.Result}
	text, err := json.Marshal(failure)
	if err != nil {
		return r.Error // the result was not JSON
	}
	return string(text)
}
