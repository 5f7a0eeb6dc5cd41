package openai

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// The types of the wire, as far as this package uses the APIs. Members of requests that they lack come from the options.

// chatBody is a request for chat completions.
type chatBody struct {
	Messages            []json.RawMessage `json:"messages,omitempty"`
	Model               string            `json:"model,omitempty"`
	MaxCompletionTokens int               `json:"max_completion_tokens,omitempty"`
	MaxTokens           int               `json:"max_tokens,omitempty"`
	Temperature         *float64          `json:"temperature,omitempty"`
	StreamOptions       *streamOptions    `json:"stream_options,omitempty"`
	ResponseFormat      *responseFormat   `json:"response_format,omitempty"`
	ToolChoice          string            `json:"tool_choice,omitempty"`
	Tools               []chatFunction    `json:"tools,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type responseFormat struct {
	JSONSchema *outputSchema `json:"json_schema,omitempty"`
	Type       string        `json:"type"`
}

type outputSchema struct {
	Name   string                     `json:"name"`
	Strict bool                       `json:"strict,omitempty"`
	Schema map[string]json.RawMessage `json:"schema,omitempty"`
}

type chatFunction struct {
	Function struct {
		Name        string                     `json:"name"`
		Strict      bool                       `json:"strict,omitempty"`
		Description string                     `json:"description,omitempty"`
		Parameters  map[string]json.RawMessage `json:"parameters,omitempty"`
	} `json:"function"`
	Type string `json:"type"`
}

// responseBody is a request for responses.
type responseBody struct {
	Instructions    string             `json:"instructions,omitempty"`
	MaxOutputTokens int                `json:"max_output_tokens,omitempty"`
	Store           bool               `json:"store"`
	Temperature     *float64           `json:"temperature,omitempty"`
	Include         []string           `json:"include,omitempty"`
	Input           []any              `json:"input,omitempty"` // of the input types below, or the JSON of a reasoning item
	Model           string             `json:"model,omitempty"`
	Text            *responseText      `json:"text,omitempty"`
	ToolChoice      string             `json:"tool_choice,omitempty"`
	Tools           []responseFunction `json:"tools,omitempty"`
}

type responseText struct {
	Format responseSchema `json:"format"`
}

type responseSchema struct {
	Name   string                     `json:"name"`
	Schema map[string]json.RawMessage `json:"schema,omitempty"`
	Strict bool                       `json:"strict"`
	Type   string                     `json:"type"`
}

type responseFunction struct {
	Strict      bool                       `json:"strict"`
	Parameters  map[string]json.RawMessage `json:"parameters,omitempty"`
	Name        string                     `json:"name"`
	Description string                     `json:"description,omitempty"`
	Type        string                     `json:"type"`
}

type inputMessage struct {
	Content any    `json:"content"` // a string or []inputPart
	Role    string `json:"role"`
}

type inputCall struct {
	Arguments string `json:"arguments"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Type      string `json:"type"`
}

type inputResult struct {
	Output string `json:"output"`
	CallID string `json:"call_id,omitempty"`
	Type   string `json:"type"`
}

// inputPart is a text or a file of a user's message. Its type says which other members it has.
type inputPart struct {
	Text     string `json:"text,omitempty"`
	Detail   string `json:"detail,omitempty"` // of an image
	ImageURL string `json:"image_url,omitempty"`
	FileData string `json:"file_data,omitempty"`
	FileURL  string `json:"file_url,omitempty"`
	Filename string `json:"filename,omitempty"`
	Type     string `json:"type"`
}

func inputText(text string) inputPart { return inputPart{Text: text, Type: "input_text"} }

// responseEvent is an event of a response.
type responseEvent struct {
	Type         model.LooseText `json:"type"`
	Delta        model.LooseText `json:"delta"`
	OutputIndex  model.LooseInt  `json:"output_index"`
	SummaryIndex model.LooseInt  `json:"summary_index"`
	ContentIndex model.LooseInt  `json:"content_index"`
	Item         responseItem    `json:"item"`
	Response     responseOutcome `json:"response"`
}

// responseItem is an item of a response's output.
type responseItem struct {
	itemMembers

	raw json.RawMessage // all of it
}

type itemMembers struct {
	Type      model.LooseText `json:"type"`
	Name      model.LooseText `json:"name"`
	CallID    model.LooseText `json:"call_id"`
	Arguments json.RawMessage `json:"arguments"`
	Content   []struct {
		Text    model.LooseText `json:"text"`
		Refusal model.LooseText `json:"refusal"`
	} `json:"content"`
	Summary []struct {
		Text model.LooseText `json:"text"`
	} `json:"summary"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *responseItem) UnmarshalJSON(value []byte) error {
	i.raw = append(json.RawMessage(nil), value...)
	_ = json.Unmarshal(value, &i.itemMembers) // valid JSON: members of another type than expected are left out
	return nil
}

// responseOutcome is a response at its end.
type responseOutcome struct {
	Status            model.LooseText `json:"status"`
	Error             json.RawMessage `json:"error"`
	IncompleteDetails struct {
		Reason model.LooseText `json:"reason"`
	} `json:"incomplete_details"`
	Usage *struct {
		Input        model.LooseInt `json:"input_tokens"`
		Output       model.LooseInt `json:"output_tokens"`
		Total        model.LooseInt `json:"total_tokens"`
		InputDetails struct {
			Cached model.LooseInt `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		OutputDetails struct {
			Reasoning model.LooseInt `json:"reasoning_tokens"`
		} `json:"output_tokens_details"`
	} `json:"usage"`
}
