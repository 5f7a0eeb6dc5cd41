package openai

import (
	"encoding/json"
	"regexp"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

// modelsWithoutReasoning matches the models that refuse a request for encrypted reasoning.
var modelsWithoutReasoning = regexp.MustCompile(`^(gpt-3|gpt-4|chatgpt-|gpt-5(\.\d+)?-chat)`)

// newResponseBody converts a request for responses, and says which files its parts are. It leaves out the members that the server
// refuses: Omit of the profile. Its error is a *model.Error: provider_invalid_request.
func newResponseBody(r model.Request, p profile.Profile, from origin) (json.RawMessage, model.Locations, error) {
	if p.ToolNames == profile.NamesLetter {
		r = model.LetterToolNames(r)
	}
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
		return nil, nil, err
	}
	if r.Output != nil {
		schema, err := parseObject(r.Output.Schema)
		if err != nil {
			return nil, nil, model.InvalidRequest("the schema of the output is not a JSON object: %v", err)
		}
		params.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{
			Name: r.Output.Name, Schema: schema,
			// The API's default is true.
			Strict: openai.Bool(r.Output.Strict && isStrictSchema(r.Output.Schema)),
		}
	}
	messages, err := model.OmitUnsupportedFiles(r.Messages, checkResponseFile)
	if err != nil {
		return nil, nil, err
	}
	locations := model.Locations{}
	for _, m := range messages {
		items, files, err := responseItems(m, from)
		if err != nil {
			return nil, nil, err
		}
		for part, file := range files {
			locations[model.Location{Message: len(params.Input.OfInputItemList), Part: part}] = model.FileRef{MessageID: m.ID, Part: file}
		}
		params.Input.OfInputItemList = append(params.Input.OfInputItemList, items...)
	}
	body, err := encodeJSON(params)
	if err != nil {
		return nil, nil, model.InvalidRequest("cannot encode the request: %v", err)
	}
	body, err = model.FinishBody(body, r.Options, p.Omit...)
	return body, locations, err
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

// responseItems converts a message. An empty message gives no items. files has the number of the message's part for each part of the first
// item that is a file.
func responseItems(m agent.Message, from origin) (items []responses.ResponseInputItemUnionParam, files map[int]int, err error) {
	switch m.Role {
	case agent.RoleSystem, agent.RoleContext:
		return []responses.ResponseInputItemUnionParam{
			responses.ResponseInputItemParamOfMessage(m.Text(), responses.EasyInputMessageRoleSystem),
		}, nil, nil
	case agent.RoleUser:
		return userItems(m)
	case agent.RoleAssistant:
		return assistantItems(m, from), nil, nil
	case agent.RoleTool:
		for _, result := range m.Results() {
			item := responses.ResponseInputItemParamOfFunctionCallOutput(resultText(result))
			item.OfFunctionCallOutput.CallID = openai.String(shortID(result.CallID))
			items = append(items, item)
		}
		return items, nil, nil
	}
	return nil, nil, model.InvalidRequest("the message %s has the unknown role %q", m.ID, m.Role)
}

func userItems(m agent.Message) (items []responses.ResponseInputItemUnionParam, files map[int]int, err error) {
	var parts responses.ResponseInputMessageContentListParam
	files = map[int]int{}
	for i, p := range m.Parts {
		switch p := p.(type) {
		case agent.Text:
			if p.Text != "" {
				parts = append(parts, responses.ResponseInputContentParamOfInputText(p.Text))
			}
		case agent.File:
			part, err := responseFile(p)
			if err != nil {
				return nil, nil, err
			}
			files[len(parts)] = i
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return nil, nil, nil
	}
	return []responses.ResponseInputItemUnionParam{
		responses.ResponseInputItemParamOfMessage(parts, responses.EasyInputMessageRoleUser),
	}, files, nil
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
func assistantItems(m agent.Message, from origin) []responses.ResponseInputItemUnionParam {
	var items, pending []responses.ResponseInputItemUnionParam
	add := func(item responses.ResponseInputItemUnionParam) {
		items = append(append(items, pending...), item)
		pending = nil
	}
	for _, p := range m.Parts {
		switch p := p.(type) {
		case agent.Reasoning:
			if raw := reasoningItem(p.ProviderData, from); raw != nil {
				item := param.Override[responses.ResponseReasoningItemParam](raw)
				pending = append(pending, responses.ResponseInputItemUnionParam{OfReasoning: &item})
			}
		case agent.Text:
			if p.Text != "" {
				add(responses.ResponseInputItemParamOfMessage(p.Text, responses.EasyInputMessageRoleAssistant))
			}
		case agent.ToolCall:
			add(responses.ResponseInputItemParamOfFunctionCall(string(model.ArgumentsObject(p.Arguments)), shortID(p.ID),
				model.ToolName(p.Name)))
		}
	}
	return items
}

// responseData is the provider data of a reasoning part: the complete item, and its maker. Older versions stored the item alone.
type responseData struct {
	Origin origin          `json:"responses"`
	Item   json.RawMessage `json:"item"`
}

// reasoningItem returns the item of provider data, nil for none that can be sent back. The encrypted content of another server would be
// refused.
func reasoningItem(data json.RawMessage, from origin) json.RawMessage {
	var d responseData
	if json.Unmarshal(data, &d) == nil && d.Item != nil {
		if d.Origin.Host != from.Host {
			return nil
		}
		data = d.Item
	}
	if !isReasoningItem(data) {
		return nil
	}
	return data
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

// shortID replaces an id above OpenAI's limit. Equal ids get equal replacements.
func shortID(id string) string {
	const longest = 40
	if len(id) <= longest {
		return id
	}
	return replacementID(id, 1, longest)
}
