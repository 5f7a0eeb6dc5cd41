package openai

import (
	"encoding/json"
	"regexp"

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
	params := responseBody{
		Model: r.Model, Instructions: r.System, MaxOutputTokens: max(r.MaxOutputTokens, 0), Temperature: r.Temperature,
	}
	if !modelsWithoutReasoning.MatchString(r.Model) {
		params.Include = []string{"reasoning.encrypted_content"}
	}
	if err := setResponseTools(&params, r); err != nil {
		return nil, nil, err
	}
	if r.Output != nil {
		schema, err := parseObject(r.Output.Schema)
		if err != nil {
			return nil, nil, model.InvalidRequest("the schema of the output is not a JSON object: %v", err)
		}
		params.Text = &responseText{}
		params.Text.Format = responseSchema{
			Name: r.Output.Name, Schema: schema,
			// The API's default is true.
			Strict: r.Output.Strict && isStrictSchema(r.Output.Schema), Type: "json_schema",
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
			locations[model.Location{Message: len(params.Input), Part: part}] = model.FileRef{MessageID: m.ID, Part: file}
		}
		params.Input = append(params.Input, items...)
	}
	body, err := encodeJSON(params)
	if err != nil {
		return nil, nil, model.InvalidRequest("cannot encode the request: %v", err)
	}
	body, err = model.FinishBody(body, r.Options, p.Omit...)
	return body, locations, err
}

func setResponseTools(params *responseBody, r model.Request) error {
	for _, t := range r.Tools {
		tool := responseFunction{
			Name: t.Name, Description: t.Description, Type: "function",
			// The API's default is true.
			Strict: t.Strict && isStrictSchema(t.InputSchema),
			// The API requires a schema.
			Parameters: map[string]json.RawMessage{"type": json.RawMessage(`"object"`), "properties": json.RawMessage(`{}`)},
		}
		if len(t.InputSchema) > 0 {
			schema, err := parseObject(t.InputSchema)
			if err != nil {
				return model.InvalidRequest("the input schema of the tool %s is not a JSON object: %v", t.Name, err)
			}
			tool.Parameters = schema
		}
		params.Tools = append(params.Tools, tool)
	}
	mode, err := toolChoice(r)
	params.ToolChoice = mode
	return err
}

// responseItems converts a message. An empty message gives no items. files has the number of the message's part for each part of the first
// item that is a file.
func responseItems(m agent.Message, from origin) (items []any, files map[int]int, err error) {
	switch m.Role {
	case agent.RoleSystem, agent.RoleContext:
		return []any{inputMessage{Content: m.Text(), Role: roleSystem}}, nil, nil
	case agent.RoleUser:
		return userItems(m)
	case agent.RoleAssistant:
		return assistantItems(m, from), nil, nil
	case agent.RoleTool:
		for _, result := range m.Results() {
			items = append(items, inputResult{Output: resultText(result), CallID: shortID(result.CallID), Type: "function_call_output"})
		}
		return items, nil, nil
	}
	return nil, nil, model.InvalidRequest("the message %s has the unknown role %q", m.ID, m.Role)
}

func userItems(m agent.Message) (items []any, files map[int]int, err error) {
	var parts []inputPart
	files = map[int]int{}
	for i, p := range m.Parts {
		switch p := p.(type) {
		case agent.Text:
			if p.Text != "" {
				parts = append(parts, inputText(p.Text))
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
	return []any{inputMessage{Content: parts, Role: roleUser}}, files, nil
}

func checkResponseFile(f agent.File) error {
	_, err := responseFile(f)
	return err
}

func responseFile(f agent.File) (inputPart, error) {
	a, err := newAttachment(f)
	switch {
	case err != nil:
		return inputPart{}, err
	case a.image:
		return inputPart{Detail: "auto", ImageURL: a.url, Type: "input_image"}, nil
	case a.text != "":
		return inputText(a.text), nil
	case !a.embedded:
		return inputPart{FileURL: a.url, Type: "input_file"}, nil
	}
	return inputPart{FileData: a.url, Filename: a.name, Type: "input_file"}, nil
}

// assistantItems converts an assistant message in order. It drops trailing reasoning, because the API refuses
// it.
func assistantItems(m agent.Message, from origin) []any {
	var items, pending []any
	add := func(item any) {
		items = append(append(items, pending...), item)
		pending = nil
	}
	for _, p := range m.Parts {
		switch p := p.(type) {
		case agent.Reasoning:
			if raw := reasoningItem(p.ProviderData, from); raw != nil {
				pending = append(pending, raw)
			}
		case agent.Text:
			if p.Text != "" {
				add(inputMessage{Content: p.Text, Role: roleAssistant})
			}
		case agent.ToolCall:
			add(inputCall{
				Arguments: string(model.ArgumentsObject(p.Arguments)), CallID: shortID(p.ID), Name: model.ToolName(p.Name), Type: "function_call",
			})
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
