package anthropic

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// The types of the wire, as far as this package uses the API.

// body is a request. What it does not have comes from the options.
type body struct {
	MaxTokens    int64         `json:"max_tokens"`
	Messages     []turn        `json:"messages,omitempty"`
	Model        string        `json:"model"`
	Temperature  *float64      `json:"temperature,omitempty"`
	OutputConfig *outputConfig `json:"output_config,omitempty"`
	System       []block       `json:"system,omitempty"`
	Thinking     *kind         `json:"thinking,omitempty"`
	ToolChoice   *kind         `json:"tool_choice,omitempty"`
	Tools        []tool        `json:"tools,omitempty"`
}

// turn is a message in the API's terms.
type turn struct {
	Content []block `json:"content"`
	Role    string  `json:"role"`
}

// The roles of turns.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleSystem    = "system"
)

// kind is an object with nothing but its type.
type kind struct {
	Type string `json:"type"`
}

type outputConfig struct {
	Format json.RawMessage `json:"format"`
}

type tool struct {
	InputSchema  json.RawMessage `json:"input_schema"`
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	Strict       bool            `json:"strict,omitempty"`
	CacheControl *kind           `json:"cache_control,omitempty"`
}

// block is a block of content. Its type says which other members it has.
type block struct {
	Text      *string         `json:"text,omitempty"`      // text
	Signature string          `json:"signature,omitempty"` // thinking
	Thinking  *string         `json:"thinking,omitempty"`
	Data      string          `json:"data,omitempty"` // redacted_thinking
	ID        string          `json:"id,omitempty"`   // tool_use
	Input     json.RawMessage `json:"input,omitempty"`
	Name      string          `json:"name,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"` // tool_result
	IsError   bool            `json:"is_error,omitempty"`
	Source    *source         `json:"source,omitempty"` // image, document
	Title     string          `json:"title,omitempty"`

	CacheControl *kind   `json:"cache_control,omitempty"`
	Content      []block `json:"content,omitempty"` // tool_result
	Type         string  `json:"type"`
}

// The types of blocks.
const (
	typeText       = "text"
	typeThinking   = "thinking"
	typeRedacted   = "redacted_thinking"
	typeToolUse    = "tool_use"
	typeToolResult = "tool_result"
	typeImage      = "image"
	typeDocument   = "document"
)

func textBlock(text string) block { return block{Type: typeText, Text: &text} }

// source is the content of a file: base64, a text or a URL.
type source struct {
	Data      *string `json:"data,omitempty"`
	MediaType string  `json:"media_type,omitempty"`
	URL       string  `json:"url,omitempty"`
	Type      string  `json:"type"`
}

// event is an event of a stream.
type event struct {
	Message struct {
		Usage usage `json:"usage"`
	} `json:"message"`
	Type         model.LooseText `json:"type"`
	Delta        delta           `json:"delta"`
	Usage        usage           `json:"usage"`
	ContentBlock startedBlock    `json:"content_block"`
	Index        model.LooseInt  `json:"index"`
}

type usage struct {
	Input      model.LooseInt `json:"input_tokens"`
	CacheWrite model.LooseInt `json:"cache_creation_input_tokens"`
	CacheRead  model.LooseInt `json:"cache_read_input_tokens"`
	Output     model.LooseInt `json:"output_tokens"`
	Details    struct {
		Thinking model.LooseInt `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

type delta struct {
	Type        model.LooseText `json:"type"`
	Text        model.LooseText `json:"text"`
	Thinking    model.LooseText `json:"thinking"`
	Signature   model.LooseText `json:"signature"`
	PartialJSON model.LooseText `json:"partial_json"`
	StopReason  model.LooseText `json:"stop_reason"`
}

type startedBlock struct {
	Type      model.LooseText `json:"type"`
	Text      model.LooseText `json:"text"`
	Thinking  model.LooseText `json:"thinking"`
	Signature model.LooseText `json:"signature"`
	Data      model.LooseText `json:"data"`
	ID        model.LooseText `json:"id"`
	Name      model.LooseText `json:"name"`
	Input     json.RawMessage `json:"input"`
}
