package gemini

import (
	"encoding/json"

	"google.golang.org/genai"
)

// Wire types. The SDK's types decode arguments into float64, lose the order of members and omit empty texts, so
// everything that must be sent back unchanged has its own type here.

type body struct {
	SystemInstruction *turn                  `json:"systemInstruction,omitempty"`
	Contents          []turn                 `json:"contents"`
	Tools             []genai.Tool           `json:"tools,omitempty"`
	ToolConfig        *genai.ToolConfig      `json:"toolConfig,omitempty"`
	GenerationConfig  genai.GenerationConfig `json:"generationConfig,omitzero"`
}

// turn is a content in the API's terms.
type turn struct {
	Role  string `json:"role,omitempty"`
	Parts []part `json:"parts"`
}

// part is one kind of content, for some models with a thought signature.
type part struct {
	Text             *string           `json:"text,omitempty"`
	Thought          bool              `json:"thought,omitempty"`
	ThoughtSignature string            `json:"thoughtSignature,omitempty"`
	FunctionCall     *functionCall     `json:"functionCall,omitempty"`
	FunctionResponse *functionResponse `json:"functionResponse,omitempty"`
	InlineData       *genai.Blob       `json:"inlineData,omitempty"`
	FileData         *genai.FileData   `json:"fileData,omitempty"`

	file *int // the number of the message's part that is this file
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

// providerData is the provider data of a reasoning part: a signature for itself or for the next part.
type providerData struct {
	Signature string `json:"signature"`
	Of        string `json:"of"`
	// Bytes is the length of the signed prefix of the next text.
	Bytes int `json:"bytes,omitempty"`
	// Origin is who made the signature. The data of older versions has none.
	Origin origin `json:"origin,omitzero"`
}

// origin names a model of a server. Other models may refuse its signatures.
type origin struct {
	Host  string `json:"host,omitempty"`
	Model string `json:"model,omitempty"`
}

// The parts that a signature may belong to.
const (
	ofThought = "thought" // the reasoning part itself
	ofText    = "text"
	ofCall    = "call"
)
