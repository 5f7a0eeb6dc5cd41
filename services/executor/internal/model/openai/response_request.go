package openai

import (
	"encoding/json"
	"regexp"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// modelsWithoutReasoning matches the models that refuse a request for encrypted reasoning.
var modelsWithoutReasoning = regexp.MustCompile(`^(gpt-3|gpt-4|chatgpt-|gpt-5(\.\d+)?-chat)`)

// newResponseParams converts a request for responses. Its error is a *model.Error: provider_invalid_request.
func newResponseParams(r model.Request) (responses.ResponseNewParams, error) {
	params := responses.ResponseNewParams{Model: r.Model, Store: openai.Bool(false)}
	if !modelsWithoutReasoning.MatchString(r.Model) {
		params.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	if r.System != "" {
		params.Instructions = openai.String(r.System)
	}
	if r.MaxOutputTokens > 0 {
		params.MaxOutputTokens = openai.Int(int64(r.MaxOutputTokens))
	}
	if r.Temperature != nil {
		params.Temperature = openai.Float(*r.Temperature)
	}
	if err := setResponseTools(&params, r); err != nil {
		return params, err
	}
	if r.Output != nil {
		schema, err := parseObject(r.Output.Schema)
		if err != nil {
			return params, model.InvalidRequest("the schema of the output is not a JSON object: %v", err)
		}
		params.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{
			Name: r.Output.Name, Schema: schema,
			// The API's default is true.
			Strict: openai.Bool(r.Output.Strict && isStrictSchema(r.Output.Schema)),
		}
	}
	messages, err := model.OmitUnsupportedFiles(r.Messages, checkResponseFile)
	if err != nil {
		return params, err
	}
	for _, m := range messages {
		items, err := responseItems(m)
		if err != nil {
			return params, err
		}
		params.Input.OfInputItemList = append(params.Input.OfInputItemList, items...)
	}
	return mergeOptions(params, r.Options)
}

func setResponseTools(params *responses.ResponseNewParams, r model.Request) error {
	for _, t := range r.Tools {
		tool := &responses.FunctionToolParam{
			Name: t.Name,
			// The API's default is true.
			Strict: openai.Bool(t.Strict && isStrictSchema(t.InputSchema)),
			// The API requires a schema.
			Parameters: map[string]any{"type": "object", "properties": map[string]any{}},
		}
		if t.Description != "" {
			tool.Description = openai.String(t.Description)
		}
		if len(t.InputSchema) > 0 {
			schema, err := parseObject(t.InputSchema)
			if err != nil {
				return model.InvalidRequest("the input schema of the tool %s is not a JSON object: %v", t.Name, err)
			}
			tool.Parameters = schema
		}
		params.Tools = append(params.Tools, responses.ToolUnionParam{OfFunction: tool})
	}
	mode, err := toolChoice(r)
	if mode != "" {
		params.ToolChoice.OfToolChoiceMode = param.NewOpt(responses.ToolChoiceOptions(mode))
	}
	return err
}

// responseItems converts a message. An empty message gives no items.
func responseItems(m agent.Message) ([]responses.ResponseInputItemUnionParam, error) {
	switch m.Role {
	case agent.RoleSystem, agent.RoleContext:
		return []responses.ResponseInputItemUnionParam{
			responses.ResponseInputItemParamOfMessage(m.Text(), responses.EasyInputMessageRoleSystem),
		}, nil
	case agent.RoleUser:
		return userItems(m)
	case agent.RoleAssistant:
		return assistantItems(m), nil
	case agent.RoleTool:
		var items []responses.ResponseInputItemUnionParam
		for _, result := range m.Results() {
			item := responses.ResponseInputItemParamOfFunctionCallOutput(resultText(result))
			item.OfFunctionCallOutput.CallID = openai.String(shortCallID(result.CallID))
			items = append(items, item)
		}
		return items, nil
	}
	return nil, model.InvalidRequest("the message %s has the unknown role %q", m.ID, m.Role)
}

func userItems(m agent.Message) ([]responses.ResponseInputItemUnionParam, error) {
	var parts responses.ResponseInputMessageContentListParam
	for _, p := range m.Parts {
		switch p := p.(type) {
		case agent.Text:
			if p.Text != "" {
				parts = append(parts, responses.ResponseInputContentParamOfInputText(p.Text))
			}
		case agent.File:
			part, err := responseFile(p)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return []responses.ResponseInputItemUnionParam{
		responses.ResponseInputItemParamOfMessage(parts, responses.EasyInputMessageRoleUser),
	}, nil
}

func checkResponseFile(f agent.File) error {
	_, err := responseFile(f)
	return err
}

func responseFile(f agent.File) (responses.ResponseInputContentUnionParam, error) {
	a, err := newAttachment(f)
	switch {
	case err != nil:
		return responses.ResponseInputContentUnionParam{}, err
	case a.image:
		part := responses.ResponseInputContentParamOfInputImage(responses.ResponseInputImageDetailAuto)
		part.OfInputImage.ImageURL = openai.String(a.url)
		return part, nil
	case a.text != "":
		return responses.ResponseInputContentParamOfInputText(a.text), nil
	case !a.embedded:
		return responses.ResponseInputContentUnionParam{OfInputFile: &responses.ResponseInputFileParam{FileURL: openai.String(a.url)}}, nil
	}
	return responses.ResponseInputContentUnionParam{OfInputFile: &responses.ResponseInputFileParam{
		FileData: openai.String(a.url), Filename: openai.String(a.name),
	}}, nil
}

// assistantItems converts an assistant message in order. It drops trailing reasoning, because the API refuses
// it.
func assistantItems(m agent.Message) []responses.ResponseInputItemUnionParam {
	var items, pending []responses.ResponseInputItemUnionParam
	add := func(item responses.ResponseInputItemUnionParam) {
		items = append(append(items, pending...), item)
		pending = nil
	}
	for _, p := range m.Parts {
		switch p := p.(type) {
		case agent.Reasoning:
			if isReasoningItem(p.ProviderData) {
				item := param.Override[responses.ResponseReasoningItemParam](p.ProviderData)
				pending = append(pending, responses.ResponseInputItemUnionParam{OfReasoning: &item})
			}
		case agent.Text:
			if p.Text != "" {
				add(responses.ResponseInputItemParamOfMessage(p.Text, responses.EasyInputMessageRoleAssistant))
			}
		case agent.ToolCall:
			add(responses.ResponseInputItemParamOfFunctionCall(string(model.ArgumentsObject(p.Arguments)), shortCallID(p.ID), model.ToolName(p.Name)))
		}
	}
	return items
}

// isReasoningItem reports whether data is a reasoning item that can be sent back. The API stores no items, so
// without the encrypted content it would look up the item and fail.
func isReasoningItem(data json.RawMessage) bool {
	var item struct {
		Type      string `json:"type"`
		Encrypted string `json:"encrypted_content"`
	}
	return json.Unmarshal(data, &item) == nil && item.Type == "reasoning" && item.Encrypted != ""
}
