package openai

import (
	"crypto/sha256"
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

const (
	roleSystem    = "system"
	roleDeveloper = "developer"
	roleUser      = "user"
	roleAssistant = "assistant"
	roleTool      = "tool"
)

// Texts in place of missing ones, for servers that demand some.
const (
	noText      = "(empty)"
	noOutput    = "(no output)"
	continueIt  = "Continue."
	tookResults = "Understood."
)

// chatMessage is a message of a request.
type chatMessage struct {
	role    string
	content []contentPart
	calls   []chatCall
	callID  string
	// extra are further members: reasoning.
	extra map[string]json.RawMessage
}

// contentPart is a text or a file.
type contentPart struct {
	text string
	file json.RawMessage // nil for a text
	ref  model.FileRef   // of a file
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
	ExtraContent json.RawMessage `json:"extra_content,omitempty"`
}

// newChatMessages converts the conversation of a request as the profile demands, and says which files the parts are. Its error is a
// *model.Error: provider_invalid_request.
func newChatMessages(r model.Request, system string, p profile.Profile, from origin) ([]json.RawMessage, model.Locations, error) {
	c := chatWriter{profile: p, origin: from}
	if strings.TrimSpace(system) != "" {
		c.addSystem(agent.Message{Role: agent.RoleSystem, Parts: []agent.Part{agent.Text{Text: system}}})
	}
	check := func(f agent.File) error { _, err := c.file(f); return err }
	messages, err := model.OmitUnsupportedFiles(r.Messages, check)
	if err != nil {
		return nil, nil, err
	}
	c.turn = model.LastQuestion(messages)
	for i, m := range messages {
		if err := c.add(i, m); err != nil {
			return nil, nil, err
		}
	}
	c.arrange()
	var out []json.RawMessage
	locations := model.Locations{}
	for i, m := range c.messages {
		for part, content := range m.content {
			if content.file != nil {
				locations[model.Location{Message: i, Part: part}] = content.ref
			}
		}
		body, err := m.encode(p)
		if err != nil {
			return nil, nil, model.InvalidRequest("cannot encode a message: %v", err)
		}
		out = append(out, body)
	}
	return out, locations, nil
}

// chatWriter converts messages one after the other.
type chatWriter struct {
	profile  profile.Profile
	origin   origin
	turn     int // index of the last question
	messages []chatMessage
}

func (c *chatWriter) add(i int, m agent.Message) error {
	switch m.Role {
	case agent.RoleSystem, agent.RoleContext:
		if strings.TrimSpace(m.Text()) != "" {
			c.addSystem(m)
		}
		return nil
	case agent.RoleUser:
		return c.addUser(m)
	case agent.RoleAssistant:
		c.addAssistant(m, i > c.turn)
		return nil
	case agent.RoleTool:
		for _, result := range m.Results() {
			c.messages = append(c.messages, chatMessage{
				role: roleTool, callID: callID(result.CallID, c.profile),
				content: []contentPart{{text: c.orFiller(resultText(result), noOutput)}},
			})
		}
		return nil
	}
	return model.InvalidRequest("the message %s has the unknown role %q", m.ID, m.Role)
}

// addSystem adds a text of the runtime where the server accepts it.
func (c *chatWriter) addSystem(m agent.Message) {
	role, text := roleSystem, m.Text()
	switch c.profile.System {
	case profile.SystemDeveloper:
		role = roleDeveloper
	case profile.SystemUser:
		role = roleUser
	case profile.SystemFirst:
		if len(c.messages) == 1 && c.messages[0].role == roleSystem {
			c.messages[0].join(chatMessage{content: []contentPart{{text: text}}})
			return
		}
		if len(c.messages) > 0 {
			role = roleUser
		}
	}
	if role == roleUser {
		text = model.ContextText(m)
	}
	c.messages = append(c.messages, chatMessage{role: role, content: []contentPart{{text: text}}})
}

func (c *chatWriter) addUser(m agent.Message) error {
	out := chatMessage{role: roleUser}
	afterFile := false
	for i, p := range m.Parts {
		part, isFile := contentPart{}, false
		switch p := p.(type) {
		case agent.Text:
			part.text = p.Text
		case agent.File:
			var err error
			if part, err = c.file(p); err != nil {
				return err
			}
			part.ref = model.FileRef{MessageID: m.ID, Part: i}
			isFile = true
		}
		switch {
		case part.file == nil && part.text == "":
			continue
		case isFile || afterFile:
			out.join(chatMessage{content: []contentPart{part}})
		default:
			out.content = append(out.content, part)
		}
		afterFile = isFile
	}
	hasContent := func(p contentPart) bool { return p.file != nil || strings.TrimSpace(p.text) != "" }
	if !slices.ContainsFunc(out.content, hasContent) {
		out.content = []contentPart{{text: c.orFiller(m.Text(), noText)}}
	}
	c.messages = append(c.messages, out)
	return nil
}

// orFiller returns a text, or the filler for a blank one if the server refuses blank texts.
func (c *chatWriter) orFiller(text, filler string) string {
	if strings.TrimSpace(text) == "" && !c.profile.EmptyText {
		return filler
	}
	return text
}

// addAssistant adds a message of the model. A message without text and calls gives none: servers refuse it.
func (c *chatWriter) addAssistant(m agent.Message, inTurn bool) {
	out := chatMessage{role: roleAssistant, calls: c.callsOf(m)}
	if text := m.Text(); text != "" && (strings.TrimSpace(text) != "" || c.profile.EmptyText) {
		out.content = []contentPart{{text: text}}
	}
	if len(out.content) == 0 && len(out.calls) == 0 {
		return
	}
	p := c.profile.Reasoning
	ofCalls := p == profile.ReasoningCalls || p == profile.ReasoningTurn && inTurn
	if p == profile.ReasoningAlways || len(out.calls) > 0 && ofCalls {
		out.extra = c.reasoningOf(m, len(out.calls) > 0)
	}
	c.messages = append(c.messages, out)
}

func (c *chatWriter) callsOf(m agent.Message) []chatCall {
	var extras map[string]json.RawMessage
	for _, p := range m.Parts {
		if r, ok := p.(agent.Reasoning); ok && c.profile.CallExtra {
			if data := parseChatData(r.ProviderData); data.Calls != nil && data.Origin == c.origin {
				extras = data.Calls
			}
		}
	}
	var calls []chatCall
	for i, call := range m.Calls() {
		out := chatCall{ID: callID(call.ID, c.profile), Type: "function", ExtraContent: extras[strconv.Itoa(i)]}
		out.Function.Name = model.ToolName(call.Name)
		out.Function.Arguments = string(model.ArgumentsObject(call.Arguments))
		if i == 0 && extras == nil && c.profile.CallExtra && c.profile.CallSignature != "" {
			// Marshalling strings cannot fail.
			out.ExtraContent, _ = json.Marshal(map[string]any{"google": map[string]string{"thought_signature": c.profile.CallSignature}})
		}
		calls = append(calls, out)
	}
	return calls
}

// reasoningOf returns the members with the reasoning of a message. Reasoning of another server is not sent, nor are signatures of
// another model.
func (c *chatWriter) reasoningOf(m agent.Message, hasCalls bool) map[string]json.RawMessage {
	field, text := "", ""
	for _, p := range m.Parts {
		r, ok := p.(agent.Reasoning)
		if !ok {
			continue
		}
		data := parseChatData(r.ProviderData)
		if data.Details != nil && data.Origin == c.origin {
			details, _ := json.Marshal(data.Details) // was decoded from JSON
			return map[string]json.RawMessage{"reasoning_details": details}
		}
		if data.Field != "" && data.Field != thinkingContent && data.Origin.Host == c.origin.Host {
			field = data.Field
			text += r.Text
		}
	}
	if c.profile.ReasoningField != "" {
		field = c.profile.ReasoningField
	}
	if text == "" && hasCalls {
		text = c.profile.ReasoningFiller
	}
	if field == "" || text == "" {
		return nil
	}
	encoded, _ := json.Marshal(text) // strings always marshal
	return map[string]json.RawMessage{field: encoded}
}

// arrange gives the messages the order that the server demands.
func (c *chatWriter) arrange() {
	if c.profile.SingleCalls {
		c.messages = splitCalls(c.messages)
	}
	alternate := c.profile.AlternateRoles || c.profile.System == profile.SystemUser
	var out []chatMessage
	for _, m := range c.messages {
		last := len(out) - 1
		begins := last < 0 || out[last].role == roleSystem || out[last].role == roleDeveloper
		switch {
		case alternate && m.role == roleAssistant && begins:
			out = append(out, chatMessage{role: roleUser, content: []contentPart{{text: continueIt}}})
		case alternate && last >= 0 && m.role == out[last].role && m.role != roleTool && len(out[last].calls) == 0:
			out[last].join(m)
			continue
		case c.profile.AnswerAfterTool && last >= 0 && m.role == roleUser && out[last].role == roleTool:
			out = append(out, chatMessage{role: roleAssistant, content: []contentPart{{text: tookResults}}})
		}
		out = append(out, m)
	}
	c.messages = out
}

// splitCalls gives each call a message of its own, followed by its result.
func splitCalls(messages []chatMessage) []chatMessage {
	var out []chatMessage
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if len(m.calls) < 2 {
			out = append(out, m)
			continue
		}
		end := i + 1
		for end < len(messages) && messages[end].role == roleTool {
			end++
		}
		results := messages[i+1 : end]
		for n, call := range m.calls {
			single := chatMessage{role: roleAssistant, calls: []chatCall{call}, extra: m.extra}
			if n == 0 {
				single.content = m.content
			}
			out = append(out, single)
			if at := slices.IndexFunc(results, func(r chatMessage) bool { return r.callID == call.ID }); at >= 0 {
				out = append(out, results[at])
			}
		}
		i = end - 1
	}
	return out
}

// join adds a message of the same role, as a paragraph of its own.
func (m *chatMessage) join(next chatMessage) {
	for _, p := range next.content {
		last := len(m.content) - 1
		if p.file == nil && last >= 0 && m.content[last].file == nil {
			m.content[last].text += "\n\n" + p.text
			continue
		}
		m.content = append(m.content, p)
	}
	m.calls = append(m.calls, next.calls...)
	if m.extra == nil {
		m.extra = next.extra
	}
}

// encode returns the message as JSON. Texts alone are a string: many servers accept nothing else.
func (m *chatMessage) encode(p profile.Profile) (json.RawMessage, error) {
	out := map[string]any{"role": m.role}
	for name, value := range m.extra {
		out[name] = value
	}
	if len(m.calls) > 0 {
		out["tool_calls"] = m.calls
	}
	if m.role == roleTool {
		out["tool_call_id"] = m.callID
	}
	switch {
	case len(m.content) == 0 && p.CallContent == profile.ContentOmitted:
	case len(m.content) == 0 && p.CallContent == profile.ContentNull:
		out["content"] = nil
	case !slices.ContainsFunc(m.content, func(p contentPart) bool { return p.file != nil }):
		var text string
		for _, part := range m.content {
			text += part.text
		}
		out["content"] = text
	default:
		var parts []any
		for _, part := range m.content {
			if part.file != nil {
				parts = append(parts, part.file)
				continue
			}
			parts = append(parts, map[string]string{"type": "text", "text": part.text})
		}
		out["content"] = parts
	}
	return encodeJSON(out)
}

// file returns the part of a file that the server accepts.
func (c *chatWriter) file(f agent.File) (contentPart, error) {
	a, err := newAttachment(f)
	if err != nil {
		return contentPart{}, err
	}
	if a.text != "" {
		return contentPart{text: a.text}, nil
	}
	kind := profile.MediaFile
	if a.image {
		kind = profile.MediaImage
	}
	if !c.profile.Accepts(kind) {
		return contentPart{},
			model.InvalidRequest("the model's server accepts no files of type %s: see media in the profiles of model servers", f.MediaType)
	}
	part := map[string]any{"type": "image_url", "image_url": map[string]string{"url": a.url}}
	if !a.image {
		if !a.embedded {
			return contentPart{}, model.InvalidRequest("chat completions accept files of type %s only as data: URLs", f.MediaType)
		}
		part = map[string]any{"type": "file", "file": map[string]string{"file_data": a.url, "filename": a.name}}
	}
	encoded, err := encodeJSON(part)
	return contentPart{file: encoded}, err
}

// isWord and isAlphanumeric match call ids.
var (
	isWord         = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	isAlphanumeric = regexp.MustCompile(`^[A-Za-z0-9]+$`)
)

// callID returns an id for the server: the id itself if the server accepts it, or a replacement. Equal ids get equal
// replacements.
func callID(id string, p profile.Profile) string {
	fits := len(id) >= p.CallIDMin && len(id) <= p.CallIDMax
	switch p.CallIDs {
	case profile.IDWord:
		fits = fits && isWord.MatchString(id)
	case profile.IDAlphanumeric:
		fits = fits && isAlphanumeric.MatchString(id)
	}
	if fits {
		return id
	}
	return replacementID(id, p.CallIDMin, p.CallIDMax)
}

// replacementID returns letters and digits made of a text, in a number of bytes between the limits.
func replacementID(text string, shortest, longest int) string {
	const base, usual = 62, 32
	sum := sha256.Sum256([]byte(text))
	digits := new(big.Int).SetBytes(sum[:]).Text(base)
	for len(digits) < shortest { // a sum has 43 digits, or a few less
		digits += digits
	}
	return digits[len(digits)-min(len(digits), max(shortest, min(usual, longest))):]
}
