package gemini

import "encoding/json"

// Wire types. What must be sent back unchanged stays JSON: a decoded number or object would lose digits or the order of its
// members.

type body struct {
	SystemInstruction *turn            `json:"systemInstruction,omitempty"`
	Contents          []turn           `json:"contents"`
	Tools             []tool           `json:"tools,omitempty"`
	ToolConfig        *toolConfig      `json:"toolConfig,omitempty"`
	GenerationConfig  generationConfig `json:"generationConfig,omitzero"`
}

type tool struct {
	FunctionDeclarations []functionDeclaration `json:"functionDeclarations"`
}

type functionDeclaration struct {
	Description string          `json:"description,omitempty"`
	Name        string          `json:"name,omitempty"`
	Parameters  json.RawMessage `json:"parametersJsonSchema,omitempty"`
}

type toolConfig struct {
	FunctionCalling struct {
		Mode string `json:"mode,omitempty"`
	} `json:"functionCallingConfig"`
}

// The modes of function calling.
const (
	modeAny  = "ANY"
	modeNone = "NONE"
)

type generationConfig struct {
	ResponseSchema    json.RawMessage `json:"responseJsonSchema,omitempty"`
	MaxOutputTokens   int32           `json:"maxOutputTokens,omitempty"`
	ResponseMediaType string          `json:"responseMimeType,omitempty"`
	Temperature       *float32        `json:"temperature,omitempty"`
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
	InlineData       *inlineData       `json:"inlineData,omitempty"`
	FileData         *fileData         `json:"fileData,omitempty"`

	file *int // the number of the message's part that is this file
}

type inlineData struct {
	Data      []byte `json:"data,omitempty"`
	MediaType string `json:"mimeType,omitempty"`
}

type fileData struct {
	URL       string `json:"fileUri,omitempty"`
	MediaType string `json:"mimeType,omitempty"`
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
		Content       turn   `json:"content"`
		FinishReason  string `json:"finishReason"`
		FinishMessage string `json:"finishMessage"`
		Index         int    `json:"index"`
	} `json:"candidates"`
	PromptFeedback struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage *usage `json:"usageMetadata"`
}

type usage struct {
	Prompt        int64 `json:"promptTokenCount"`
	ToolUsePrompt int64 `json:"toolUsePromptTokenCount"`
	Candidates    int64 `json:"candidatesTokenCount"`
	Thoughts      int64 `json:"thoughtsTokenCount"`
	Cached        int64 `json:"cachedContentTokenCount"`
	Total         int64 `json:"totalTokenCount"`
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
