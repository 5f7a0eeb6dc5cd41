package gemini

import (
	"encoding/json"

	"google.golang.org/genai"
)

// The forms of the wire. Those of the SDK hold arguments as float64, lose the
// order of their members and leave out a text that is empty, so what must go back
// as it came has forms of its own.

// body is a request.
type body struct {
	SystemInstruction *turn                  `json:"systemInstruction,omitempty"`
	Contents          []turn                 `json:"contents"`
	Tools             []genai.Tool           `json:"tools,omitempty"`
	ToolConfig        *genai.ToolConfig      `json:"toolConfig,omitempty"`
	GenerationConfig  genai.GenerationConfig `json:"generationConfig,omitzero"`
}

// turn is a content: what one of the two says.
type turn struct {
	Role  string `json:"role,omitempty"`
	Parts []part `json:"parts"`
}

// part holds one of its fields, and for some models the signature of the thoughts
// that led to it.
type part struct {
	Text             *string           `json:"text,omitempty"`
	Thought          bool              `json:"thought,omitempty"`
	ThoughtSignature string            `json:"thoughtSignature,omitempty"`
	FunctionCall     *functionCall     `json:"functionCall,omitempty"`
	FunctionResponse *functionResponse `json:"functionResponse,omitempty"`
	InlineData       *genai.Blob       `json:"inlineData,omitempty"`
	FileData         *genai.FileData   `json:"fileData,omitempty"`
}

func (p part) text() string {
	if p.Text == nil {
		return ""
	}
	return *p.Text
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

type functionResponse struct {
	ID       string          `json:"id,omitempty"`
	Name     string          `json:"name"`
	Response json.RawMessage `json:"response"`
}

// chunk is an event of the answer.
type chunk struct {
	Candidates []struct {
		Content       turn               `json:"content"`
		FinishReason  genai.FinishReason `json:"finishReason"`
		FinishMessage string             `json:"finishMessage"`
		Index         int                `json:"index"`
	} `json:"candidates"`
	PromptFeedback *genai.GenerateContentResponsePromptFeedback `json:"promptFeedback"`
	UsageMetadata  *genai.GenerateContentResponseUsageMetadata  `json:"usageMetadata"`
}

// providerData is the provider data of a reasoning part: the signature of a part of the
// reply, and which one it belongs to. It stands before that part.
type providerData struct {
	Signature string `json:"signature"`
	Of        string `json:"of"`
	// Bytes is how much of the text behind it is the part.
	Bytes int `json:"bytes,omitempty"`
}

// What a signature may belong to.
const (
	ofThought = "thought" // the reasoning part that holds it
	ofText    = "text"
	ofCall    = "call"
)
