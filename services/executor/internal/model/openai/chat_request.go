package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxCallID is the longest id of a call that OpenAI accepts.
const maxCallID = 40

// chatRequest puts a conversation into the form of chat completions. Its error is a
// *model.Error: provider_invalid_request.
func chatRequest(r model.Request) (openai.ChatCompletionNewParams, error) {
	params := openai.ChatCompletionNewParams{
		Model:         r.Model,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if r.MaxOutputTokens > 0 {
		params.MaxCompletionTokens = openai.Int(int64(r.MaxOutputTokens))
	}
	if r.Temperature != nil {
		params.Temperature = openai.Float(*r.Temperature)
	}
	if err := chatTools(&params, r); err != nil {
		return params, err
	}
	if r.Output != nil {
		format, err := chatFormat(*r.Output)
		if err != nil {
			return params, err
		}
		params.ResponseFormat.OfJSONSchema = &format
	}
	if r.System != "" {
		params.Messages = append(params.Messages, openai.SystemMessage(r.System))
	}
	for _, m := range model.Former(r.Messages, chatTakes) {
		messages, err := message(m)
		if err != nil {
			return params, err
		}
		params.Messages = append(params.Messages, messages...)
	}
	return withOptions(params, r.Options)
}

// withOptions adds the options of a request to its params.
func withOptions[T param.ParamStruct, P param.InferPtr[T]](params T, options json.RawMessage) (T, error) {
	if len(options) == 0 {
		return params, nil
	}
	body, err := json.Marshal(params)
	if err != nil {
		return params, model.Invalid("the request cannot be written: %v", err)
	}
	merged, err := model.Merge(body, options)
	if err != nil {
		return params, err
	}
	return param.Override[T, P](merged), nil
}

func chatTools(params *openai.ChatCompletionNewParams, r model.Request) error {
	for _, t := range r.Tools {
		tool, err := function(t)
		if err != nil {
			return err
		}
		params.Tools = append(params.Tools, tool)
	}
	mode, err := choice(r)
	if mode != "" {
		params.ToolChoice.OfAuto = openai.String(mode)
	}
	return err
}

// choice gives the word for the choice of a request; "" where nothing is to be said.
func choice(r model.Request) (string, error) {
	switch {
	case len(r.Tools) == 0 && r.Choice == model.ChoiceRequired:
		return "", model.Invalid("a call is required and there are no tools")
	case len(r.Tools) == 0:
		return "", nil // the API refuses a choice without tools
	}
	return string(r.Choice), nil
}

func chatFormat(o model.Output) (shared.ResponseFormatJSONSchemaParam, error) {
	schema, err := object(o.Schema)
	if err != nil {
		return shared.ResponseFormatJSONSchemaParam{}, model.Invalid("the schema of the output is not a JSON object: %v", err)
	}
	format := shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: o.Name, Schema: schema}
	if o.Strict && closed(o.Schema) {
		format.Strict = openai.Bool(true)
	}
	return shared.ResponseFormatJSONSchemaParam{JSONSchema: format}, nil
}

// object reads a JSON object. Raw values keep its numbers as they were written.
func object(source json.RawMessage) (map[string]any, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(source, &raw); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(raw))
	for key, value := range raw {
		out[key] = value
	}
	return out, nil
}

func function(t model.Tool) (openai.ChatCompletionToolUnionParam, error) {
	f := shared.FunctionDefinitionParam{Name: t.Name}
	if t.Description != "" {
		f.Description = openai.String(t.Description)
	}
	if len(t.InputSchema) > 0 {
		schema, err := object(t.InputSchema)
		if err != nil {
			return openai.ChatCompletionToolUnionParam{}, model.Invalid("the input schema of the tool %s is not a JSON object: %v", t.Name, err)
		}
		f.Parameters = schema
	}
	if t.Strict && closed(t.InputSchema) {
		f.Strict = openai.Bool(true)
	}
	return openai.ChatCompletionFunctionTool(f), nil
}

// message gives no message for one that says nothing, and one for each result
// of a tool message.
func message(m agent.Message) ([]openai.ChatCompletionMessageParamUnion, error) {
	switch m.Role {
	case agent.RoleSystem, agent.RoleContext:
		return []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(m.Text())}, nil
	case agent.RoleUser:
		return user(m)
	case agent.RoleAssistant:
		return assistant(m), nil
	case agent.RoleTool:
		var results []openai.ChatCompletionMessageParamUnion
		for _, p := range m.Parts {
			if result, ok := p.(agent.ToolResult); ok {
				results = append(results, openai.ToolMessage(content(result), callID(result.CallID)))
			}
		}
		return results, nil
	}
	return nil, model.Invalid("the message %s has the unknown role %q", m.ID, m.Role)
}

func user(m agent.Message) ([]openai.ChatCompletionMessageParamUnion, error) {
	var parts []openai.ChatCompletionContentPartUnionParam
	plain := true
	for _, p := range m.Parts {
		switch p := p.(type) {
		case agent.Text:
			if p.Text != "" {
				parts = append(parts, openai.TextContentPart(p.Text))
			}
		case agent.File:
			plain = false
			part, err := chatFile(p)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
	}
	if plain {
		// Many compatible servers take texts only in this form.
		return []openai.ChatCompletionMessageParamUnion{openai.UserMessage(m.Text())}, nil
	}
	return []openai.ChatCompletionMessageParamUnion{openai.UserMessage(parts)}, nil
}

func assistant(m agent.Message) []openai.ChatCompletionMessageParamUnion {
	var out openai.ChatCompletionAssistantMessageParam
	text, calls := m.Text(), m.Calls()
	if text == "" && len(calls) == 0 {
		return nil
	}
	if text != "" {
		out.Content.OfString = openai.String(text)
	}
	for _, c := range calls {
		out.ToolCalls = append(out.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: callID(c.ID),
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: model.CallName(c.Name), Arguments: string(model.Object(c.Arguments)),
				},
			},
		})
	}
	return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &out}}
}

// content is a result as the model reads it: texts as they are, other values
// and failures as JSON.
func content(r agent.ToolResult) string {
	if r.Success {
		return model.Plain(r.Result)
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

// callID shortens an id that is too long, to the same one each time.
func callID(id string) string {
	if len(id) <= maxCallID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
}
