package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// defaultMaxTokens is the cap on a reply where the request has none: the API
// insists on one, and every model takes this.
const defaultMaxTokens = 4096

// legalCallID is what the API takes for the id of a call.
var legalCallID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,256}$`)

// request puts a conversation into the form of messages. Its error is a
// *model.Error: provider_invalid_request.
func request(r model.Request) (anthropic.MessageNewParams, error) {
	params := anthropic.MessageNewParams{Model: r.Model, MaxTokens: defaultMaxTokens}
	if r.MaxOutputTokens > 0 {
		params.MaxTokens = int64(r.MaxOutputTokens)
	}
	if r.Temperature != nil {
		params.Temperature = anthropic.Float(*r.Temperature)
	}
	if r.System != "" {
		params.System = []anthropic.TextBlockParam{{Text: r.System}}
	}
	for _, t := range r.Tools {
		tool := anthropic.ToolParam{Name: t.Name, InputSchema: param.Override[anthropic.ToolInputSchemaParam](schema(t))}
		if t.Description != "" {
			tool.Description = anthropic.String(t.Description)
		}
		params.Tools = append(params.Tools, anthropic.ToolUnionParam{OfTool: &tool})
	}
	for _, m := range r.Messages {
		role, blocks, err := turn(m)
		if err != nil {
			return params, err
		}
		last := len(params.Messages) - 1
		switch {
		case len(blocks) == 0:
			// The API refuses messages that say nothing.
		case last >= 0 && params.Messages[last].Role == role:
			params.Messages[last].Content = append(params.Messages[last].Content, blocks...)
		default:
			params.Messages = append(params.Messages, anthropic.MessageParam{Role: role, Content: blocks})
		}
	}
	return params, nil
}

// schema gives the input schema of a tool, or the one that the API wants for a
// tool without.
func schema(t model.Tool) json.RawMessage {
	if len(t.InputSchema) == 0 {
		return json.RawMessage(`{"type":"object"}`)
	}
	return t.InputSchema
}

// turn gives whose turn a message belongs to and what it says in it.
func turn(m agent.Message) (role anthropic.MessageParamRole, blocks []anthropic.ContentBlockParamUnion, err error) {
	role = anthropic.MessageParamRoleUser
	switch m.Role {
	case agent.RoleUser, agent.RoleTool, agent.RoleSystem, agent.RoleContext:
	case agent.RoleAssistant:
		role = anthropic.MessageParamRoleAssistant
	default:
		return "", nil, invalid("the message %s has the unknown role %q", m.ID, m.Role)
	}
	for _, p := range m.Parts {
		b, err := block(m.Role, p)
		if err != nil {
			return "", nil, err
		}
		blocks = append(blocks, b...)
	}
	return role, blocks, nil
}

// block gives the block of a part; none for a part that says nothing here.
func block(role agent.Role, p agent.Part) ([]anthropic.ContentBlockParamUnion, error) {
	one := func(b anthropic.ContentBlockParamUnion) []anthropic.ContentBlockParamUnion {
		return []anthropic.ContentBlockParamUnion{b}
	}
	switch p := p.(type) {
	case agent.Text:
		// The API refuses blank texts.
		if strings.TrimSpace(p.Text) != "" {
			return one(anthropic.NewTextBlock(p.Text)), nil
		}
	case agent.Reasoning:
		if role == agent.RoleAssistant {
			return thinking(p), nil
		}
	case agent.ToolCall:
		return one(anthropic.NewToolUseBlock(callID(p.ID), object(p.Arguments), p.Name)), nil
	case agent.ToolResult:
		return one(anthropic.ContentBlockParamUnion{OfToolResult: result(p)}), nil
	case agent.File:
		if role != agent.RoleAssistant {
			b, err := file(p)
			return one(b), err
		}
	}
	return nil, nil
}

// memory is the provider data of a reasoning part.
type memory struct {
	Type      string `json:"type"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
}

// The types of thinking.
const (
	typeThinking = "thinking"
	typeRedacted = "redacted_thinking"
)

func thinking(r agent.Reasoning) []anthropic.ContentBlockParamUnion {
	var m memory
	if json.Unmarshal(r.ProviderData, &m) != nil {
		return nil
	}
	switch {
	case m.Type == typeThinking && m.Signature != "":
		return []anthropic.ContentBlockParamUnion{anthropic.NewThinkingBlock(m.Signature, r.Text)}
	case m.Type == typeRedacted && m.Data != "":
		return []anthropic.ContentBlockParamUnion{anthropic.NewRedactedThinkingBlock(m.Data)}
	}
	return nil
}

func result(r agent.ToolResult) *anthropic.ToolResultBlockParam {
	out := &anthropic.ToolResultBlockParam{ToolUseID: callID(r.CallID)}
	var texts []string
	if !r.Success {
		out.IsError = anthropic.Bool(true)
		texts = append(texts, r.Error)
	}
	if len(r.Result) > 0 {
		texts = append(texts, unquote(r.Result))
	}
	for _, text := range slices.DeleteFunc(texts, func(s string) bool { return strings.TrimSpace(s) == "" }) {
		out.Content = append(out.Content, anthropic.ToolResultBlockParamContentUnion{
			OfText: &anthropic.TextBlockParam{Text: text},
		})
	}
	return out
}

// object gives arguments as a JSON object, which the API insists on; what the
// model gave instead stands in it under "invalid_arguments".
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

// unquote gives the text of a JSON string, and other JSON as it is.
func unquote(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// callID replaces an id that the API would refuse, by the same one each time.
func callID(id string) string {
	if legalCallID.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
}

func invalid(format string, args ...any) *model.Error {
	return &model.Error{Code: model.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}
