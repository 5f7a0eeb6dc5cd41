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

// maxCallID is OpenAI's limit.
const maxCallID = 40

// newChatParams converts a request for chat completions. Its error is a *model.Error: provider_invalid_request.
func newChatParams(r model.Request) (openai.ChatCompletionNewParams, error) {
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
	if err := setChatTools(&params, r); err != nil {
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
	messages, err := model.OmitUnsupportedFiles(r.Messages, checkChatFile)
	if err != nil {
		return params, err
	}
	for _, m := range messages {
		messages, err := chatMessages(m)
		if err != nil {
			return params, err
		}
		params.Messages = append(params.Messages, messages...)
	}
	return mergeOptions(params, r.Options)
}

// mergeOptions adds the request's options to params.
func mergeOptions[T param.ParamStruct, P param.InferPtr[T]](params T, options json.RawMessage) (T, error) {
	if len(options) == 0 {
		return params, nil
	}
	body, err := json.Marshal(params)
	if err != nil {
		return params, model.InvalidRequest("cannot encode the request: %v", err)
	}
	merged, err := model.MergeOptions(body, options)
	if err != nil {
		return params, err
	}
	return param.Override[T, P](merged), nil
}

func setChatTools(params *openai.ChatCompletionNewParams, r model.Request) error {
	for _, t := range r.Tools {
		tool, err := chatTool(t)
		if err != nil {
			return err
		}
		params.Tools = append(params.Tools, tool)
	}
	mode, err := toolChoice(r)
	if mode != "" {
		params.ToolChoice.OfAuto = openai.String(mode)
	}
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

func chatFormat(o model.Output) (shared.ResponseFormatJSONSchemaParam, error) {
	schema, err := parseObject(o.Schema)
	if err != nil {
		return shared.ResponseFormatJSONSchemaParam{}, model.InvalidRequest("the schema of the output is not a JSON object: %v", err)
	}
	format := shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: o.Name, Schema: schema}
	if o.Strict && isStrictSchema(o.Schema) {
		format.Strict = openai.Bool(true)
	}
	return shared.ResponseFormatJSONSchemaParam{JSONSchema: format}, nil
}

// parseObject reads a JSON object. Raw values keep numbers as written.
func parseObject(source json.RawMessage) (map[string]any, error) {
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

func chatTool(t model.Tool) (openai.ChatCompletionToolUnionParam, error) {
	f := shared.FunctionDefinitionParam{Name: t.Name}
	if t.Description != "" {
		f.Description = openai.String(t.Description)
	}
	if len(t.InputSchema) > 0 {
		schema, err := parseObject(t.InputSchema)
		if err != nil {
			return openai.ChatCompletionToolUnionParam{}, model.InvalidRequest("the input schema of the tool %s is not a JSON object: %v", t.Name, err)
		}
		f.Parameters = schema
	}
	if t.Strict && isStrictSchema(t.InputSchema) {
		f.Strict = openai.Bool(true)
	}
	return openai.ChatCompletionFunctionTool(f), nil
}

// chatMessages converts a message. An assistant message without text and calls gives none; a tool message gives
// one message for each result.
func chatMessages(m agent.Message) ([]openai.ChatCompletionMessageParamUnion, error) {
	switch m.Role {
	case agent.RoleSystem, agent.RoleContext:
		return []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(m.Text())}, nil
	case agent.RoleUser:
		return userMessage(m)
	case agent.RoleAssistant:
		return assistantMessage(m), nil
	case agent.RoleTool:
		var results []openai.ChatCompletionMessageParamUnion
		for _, p := range m.Parts {
			if result, ok := p.(agent.ToolResult); ok {
				results = append(results, openai.ToolMessage(resultText(result), shortCallID(result.CallID)))
			}
		}
		return results, nil
	}
	return nil, model.InvalidRequest("the message %s has the unknown role %q", m.ID, m.Role)
}

func userMessage(m agent.Message) ([]openai.ChatCompletionMessageParamUnion, error) {
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
		// Many compatible servers accept texts only as a plain string.
		return []openai.ChatCompletionMessageParamUnion{openai.UserMessage(m.Text())}, nil
	}
	return []openai.ChatCompletionMessageParamUnion{openai.UserMessage(parts)}, nil
}

func assistantMessage(m agent.Message) []openai.ChatCompletionMessageParamUnion {
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
				ID: shortCallID(c.ID),
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: model.ToolName(c.Name), Arguments: string(model.ArgumentsObject(c.Arguments)),
				},
			},
		})
	}
	return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &out}}
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

// shortCallID replaces an id that is too long. Equal ids get equal replacements.
func shortCallID(id string) string {
	if len(id) <= maxCallID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
}
