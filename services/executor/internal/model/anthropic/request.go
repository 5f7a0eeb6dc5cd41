package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// defaultMaxTokens is max_tokens if the request sets no limit. The API requires a value; every model accepts
// this one.
const defaultMaxTokens = 4096

// callIDPattern matches the call ids accepted by the API.
var callIDPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,256}$`)

// newBody converts a request, and says which files its blocks are. Its error is a *model.Error: provider_invalid_request.
func newBody(r model.Request, to origin) (json.RawMessage, model.Locations, error) {
	var opts options
	if len(r.Options) > 0 {
		if err := json.Unmarshal(r.Options, &opts); err != nil {
			return nil, nil, model.InvalidRequest("cannot decode the provider options: %v", err)
		}
	}
	params := body{Model: r.Model, MaxTokens: maxTokens(r, opts), Temperature: r.Temperature}
	if r.System != "" {
		params.System = []block{textBlock(r.System)}
	}
	for _, t := range r.Tools {
		params.Tools = append(params.Tools, toolParam(t))
	}
	if err := setToolChoice(&params, r); err != nil {
		return nil, nil, err
	}
	if r.Output != nil {
		shape, err := outputFormat(*r.Output)
		if err != nil {
			return nil, nil, err
		}
		params.OutputConfig = &outputConfig{Format: shape}
	}
	messages, err := model.OmitUnsupportedFiles(r.Messages, checkFile)
	if err != nil {
		return nil, nil, err
	}
	locations, err := addMessages(&params, messages, to)
	if err != nil {
		return nil, nil, err
	}
	if opts.Thinking.Type != "" && refusesThinking(params, opts) {
		params.Thinking = &kind{"disabled"}
	}
	if r.Cache == agent.CacheAuto {
		setCacheBreakpoints(&params)
	}
	encoded, err := finishBody(params, r.Options)
	return encoded, locations, err
}

// options are the request options that influence other parameters.
type options struct {
	MaxTokens int64 `json:"max_tokens"`
	Thinking  struct {
		Type   string `json:"type"`
		Budget int64  `json:"budget_tokens"`
	} `json:"thinking"`
}

// maxTokens is the request's limit, else the options' max_tokens, else a default on top of the thinking budget.
// The API requires a limit.
func maxTokens(r model.Request, opts options) int64 {
	switch {
	case r.MaxOutputTokens > 0:
		return int64(r.MaxOutputTokens)
	case opts.MaxTokens > 0:
		return opts.MaxTokens
	}
	return defaultMaxTokens + opts.Thinking.Budget
}

func toolParam(t model.Tool) tool {
	schema := t.InputSchema
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	return tool{Name: t.Name, InputSchema: schema, Description: t.Description, Strict: t.Strict && isStrictSchema(t.InputSchema)}
}

func setToolChoice(params *body, r model.Request) error {
	switch {
	case r.Choice == model.ChoiceRequired && len(r.Tools) == 0:
		return model.InvalidRequest("a tool call is required but the request has no tools")
	case r.Choice == model.ChoiceRequired:
		params.ToolChoice = &kind{choiceAny}
	case r.Choice == model.ChoiceNone && len(r.Tools) > 0:
		params.ToolChoice = &kind{"none"}
	}
	return nil
}

// choiceAny is the tool choice that requires a call.
const choiceAny = "any"

// refusesThinking reports whether the API would refuse a request with the thinking of its options. It does so if
// a call is required, or if the assistant's current turn did not begin with thinking, because another model
// began it or it was interrupted.
func refusesThinking(params body, opts options) bool {
	if params.ToolChoice != nil && params.ToolChoice.Type == choiceAny {
		return true
	}
	last := len(params.Messages) - 1
	if last >= 0 && params.Messages[last].Role == roleSystem {
		last--
	}
	if opts.Thinking.Type != "enabled" || last < 1 || params.Messages[last].Content[0].Type != typeToolResult {
		return false
	}
	first := params.Messages[last-1].Content[0].Type
	return first != typeThinking && first != typeRedacted
}

// systemModels matches the models that accept system messages in the middle of a conversation. Only Anthropic's own
// API is known to do so.
var systemModels = regexp.MustCompile(`^claude-opus-(4-8|5)(-|$)`)

func acceptsSystem(to origin) bool {
	return to.Host == anthropicHost && systemModels.MatchString(to.Model)
}

// addMessages adds the messages, and says which files their blocks are.
//
// A model may accept a system message between a turn of the user and one of the assistant, or at the end. So the rows of
// context of a turn of the user follow it, in one message.
func addMessages(params *body, messages []agent.Message, to origin) (model.Locations, error) {
	locations := model.Locations{}
	var rows []agent.Message // of the current turn of the user
	addRows := func() {
		if len(rows) == 0 {
			return
		}
		next := turn{Role: roleSystem}
		last := len(params.Messages) - 1
		if last < 0 || params.Messages[last].Role != roleUser {
			next.Role = roleUser
		}
		for _, m := range rows {
			text := m.Text()
			if next.Role == roleUser {
				text = model.ContextText(m)
			}
			next.Content = append(next.Content, textBlock(text))
		}
		params.Messages = append(params.Messages, next)
		rows = nil
	}
	for _, m := range messages {
		if _, _, isRow := agent.ContextRowOf(m); isRow && acceptsSystem(to) {
			rows = append(rows, m)
			continue
		}
		role, blocks, files, err := turnBlocks(model.ContextAsUser(m), to)
		if err != nil {
			return nil, err
		}
		if role == roleAssistant && len(blocks) > 0 {
			addRows()
		}
		last := len(params.Messages) - 1
		switch {
		case len(blocks) == 0:
			// The API refuses empty messages.
		case last >= 0 && params.Messages[last].Role == role:
			params.Messages[last].Content = append(params.Messages[last].Content, blocks...)
		default:
			params.Messages = append(params.Messages, turn{Role: role, Content: blocks})
		}
		last = len(params.Messages) - 1
		for block, part := range files {
			location := model.Location{Message: last, Part: len(params.Messages[last].Content) - len(blocks) + block}
			locations[location] = model.FileRef{MessageID: m.ID, Part: part}
		}
	}
	addRows()
	return locations, nil
}

// setCacheBreakpoints marks the end of the tools, the system prompt and the conversation. The API allows four
// breakpoints.
func setCacheBreakpoints(params *body) {
	breakpoint := &kind{"ephemeral"}
	if n := len(params.Tools); n > 0 {
		params.Tools[n-1].CacheControl = breakpoint
	}
	if n := len(params.System); n > 0 {
		params.System[n-1].CacheControl = breakpoint
	}
	if len(params.Messages) == 0 {
		return
	}
	content := params.Messages[len(params.Messages)-1].Content
	for i := range slices.Backward(content) {
		// Thinking blocks cannot be marked.
		if content[i].Type != typeThinking && content[i].Type != typeRedacted {
			content[i].CacheControl = breakpoint
			return
		}
	}
}

// finishBody encodes params with the request's options. If params disable thinking, the options' thinking is
// dropped.
func finishBody(params body, source json.RawMessage) (json.RawMessage, error) {
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, model.InvalidRequest("cannot encode the request: %v", err)
	}
	if params.Thinking != nil {
		var members map[string]json.RawMessage
		if json.Unmarshal(source, &members) == nil {
			delete(members, "thinking") // merging would mix its members into the disabled one
			source, _ = json.Marshal(members)
		}
	}
	return model.FinishBody(encoded, source)
}

// turnBlocks returns the role of a message's turn and the blocks for it. files has the number of the part for each block of
// a file.
func turnBlocks(m agent.Message, to origin) (role string, blocks []block, files map[int]int, err error) {
	role = roleUser
	switch m.Role {
	case agent.RoleUser, agent.RoleTool, agent.RoleSystem, agent.RoleContext:
	case agent.RoleAssistant:
		role = roleAssistant
	default:
		return "", nil, nil, model.InvalidRequest("the message %s has the unknown role %q", m.ID, m.Role)
	}
	files = map[int]int{}
	for i, p := range m.Parts {
		b, err := partBlocks(m.Role, p, to)
		if err != nil {
			return "", nil, nil, err
		}
		if _, ok := p.(agent.File); ok && len(b) > 0 {
			files[len(blocks)] = i
		}
		blocks = append(blocks, b...)
	}
	return role, blocks, files, nil
}

// partBlocks returns the block of a part, or none if the API has no use for the part.
func partBlocks(role agent.Role, p agent.Part, to origin) ([]block, error) {
	switch p := p.(type) {
	case agent.Text:
		// The API refuses blank texts.
		if strings.TrimSpace(p.Text) != "" {
			return []block{textBlock(p.Text)}, nil
		}
	case agent.Reasoning:
		if role == agent.RoleAssistant {
			return thinkingBlocks(p, to), nil
		}
	case agent.ToolCall:
		return []block{{
			Type: typeToolUse, ID: validCallID(p.ID), Input: model.ArgumentsObject(p.Arguments), Name: model.ToolName(p.Name),
		}}, nil
	case agent.ToolResult:
		return []block{toolResultBlock(p)}, nil
	case agent.File:
		if role != agent.RoleAssistant {
			b, err := fileBlock(p)
			return []block{b}, err
		}
	}
	return nil, nil
}

// providerData is the provider data of a reasoning part.
type providerData struct {
	Type      string `json:"type"`
	Signature string `json:"signature,omitempty"`
	Data      string `json:"data,omitempty"`
	// Origin is the maker of the block. The data of older versions has none.
	Origin origin `json:"origin,omitzero"`
}

// origin names a model of a server. A thinking block is valid for the model that made it: every other one refuses the signature.
type origin struct {
	Host  string `json:"host,omitempty"`
	Model string `json:"model,omitempty"`
}

func thinkingBlocks(r agent.Reasoning, to origin) []block {
	var m providerData
	if json.Unmarshal(r.ProviderData, &m) != nil || m.Origin != (origin{}) && m.Origin != to {
		return nil
	}
	switch {
	case m.Type == typeThinking && m.Signature != "":
		return []block{{Type: typeThinking, Signature: m.Signature, Thinking: &r.Text}}
	case m.Type == typeRedacted && m.Data != "":
		return []block{{Type: typeRedacted, Data: m.Data}}
	}
	return nil
}

func toolResultBlock(r agent.ToolResult) block {
	out := block{Type: typeToolResult, ToolUseID: validCallID(r.CallID), IsError: !r.Success}
	var texts []string
	if !r.Success {
		texts = append(texts, r.Error)
	}
	if len(r.Result) > 0 {
		texts = append(texts, model.PlainText(r.Result))
	}
	for _, text := range slices.DeleteFunc(texts, func(s string) bool { return strings.TrimSpace(s) == "" }) {
		out.Content = append(out.Content, textBlock(text))
	}
	return out
}

// validCallID replaces an id refused by the API. Equal ids get equal replacements.
func validCallID(id string) string {
	if callIDPattern.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:16])
}
