package openai

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxCallID is the longest id of a call that OpenAI accepts.
const maxCallID = 40

// request puts a conversation into the form of chat completions. Its error is a
// *model.Error: provider_invalid_request.
func request(r model.Request) (openai.ChatCompletionNewParams, error) {
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
	for _, t := range r.Tools {
		tool, err := function(t)
		if err != nil {
			return params, err
		}
		params.Tools = append(params.Tools, tool)
	}
	if r.System != "" {
		params.Messages = append(params.Messages, openai.SystemMessage(r.System))
	}
	for _, m := range r.Messages {
		messages, err := message(m)
		if err != nil {
			return params, err
		}
		params.Messages = append(params.Messages, messages...)
	}
	return params, nil
}

func function(t model.Tool) (openai.ChatCompletionToolUnionParam, error) {
	f := shared.FunctionDefinitionParam{Name: t.Name}
	if t.Description != "" {
		f.Description = openai.String(t.Description)
	}
	if len(t.InputSchema) > 0 {
		// Raw values keep the numbers of the schema as they were written.
		var schema map[string]json.RawMessage
		if err := json.Unmarshal(t.InputSchema, &schema); err != nil {
			return openai.ChatCompletionToolUnionParam{}, invalid("the input schema of the tool %s is not a JSON object: %v", t.Name, err)
		}
		f.Parameters = make(shared.FunctionParameters, len(schema))
		for key, value := range schema {
			f.Parameters[key] = value
		}
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
	return nil, invalid("the message %s has the unknown role %q", m.ID, m.Role)
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
			part, err := file(p)
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

func file(f agent.File) (openai.ChatCompletionContentPartUnionParam, error) {
	if strings.HasPrefix(f.MediaType, "image/") {
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: f.URL}), nil
	}
	if !strings.HasPrefix(f.URL, "data:") {
		return openai.ChatCompletionContentPartUnionParam{}, invalid("chat completions take a file of type %s only as a data: URL", f.MediaType)
	}
	name := f.Filename
	if name == "" {
		name = "file" // the API wants one beside file_data
	}
	return openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{
		FileData: openai.String(f.URL), Filename: openai.String(name),
	}), nil
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
					Name: c.Name, Arguments: string(object(c.Arguments)),
				},
			},
		})
	}
	return []openai.ChatCompletionMessageParamUnion{{OfAssistant: &out}}
}

// object gives arguments as a JSON object, which servers that parse them insist
// on; what the model gave instead stands in it under "invalid_arguments".
func object(arguments json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(arguments, &fields) == nil && fields != nil {
		return arguments
	}
	if !json.Valid(arguments) {
		return json.RawMessage("{}")
	}
	return json.RawMessage(`{"invalid_arguments":` + string(arguments) + `}`)
}

// content is a result as the model reads it: texts as they are, other values
// and failures as JSON.
func content(r agent.ToolResult) string {
	if r.Success {
		return unquote(r.Result)
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

func invalid(format string, args ...any) *model.Error {
	return &model.Error{Code: model.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}
