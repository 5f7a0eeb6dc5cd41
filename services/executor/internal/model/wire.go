package model

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Conversions and errors shared by the providers.

const noArguments = "{}"

// EncodeArguments turns the text of a call's arguments into one JSON value: {} if blank, a JSON string if it is
// not valid JSON.
func EncodeArguments(text string) json.RawMessage {
	if strings.TrimSpace(text) == "" {
		return json.RawMessage(noArguments)
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	// Marshalling a string cannot fail.
	quoted, _ := json.Marshal(text)
	return quoted
}

// NonEmptyObject returns the text of arguments that arrived as JSON, "" for an empty object however it is written.
func NonEmptyObject(arguments json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(arguments, &members) == nil && len(members) == 0 {
		return ""
	}
	return string(arguments)
}

// ArgumentsObject returns arguments as a JSON object, for servers that require one. Any other JSON value is put
// under "invalid_arguments"; invalid JSON becomes {}.
func ArgumentsObject(arguments json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(arguments, &fields) == nil && fields != nil {
		return arguments
	}
	if !json.Valid(arguments) {
		return json.RawMessage("{}")
	}
	return json.RawMessage(`{"invalid_arguments":` + string(arguments) + `}`)
}

// maxToolName is the longest tool name accepted by every provider.
const maxToolName = 64

// ToolName returns a tool name that every provider accepts, the same for equal names. Models sometimes call
// nonexistent tools by names that providers refuse; such a call would fail every later request of the session.
func ToolName(name string) string {
	if name == "" {
		return "unnamed"
	}
	legal := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	return legal[:min(len(legal), maxToolName)]
}

// LetterToolNames returns a request whose tools, calls and results have names that begin with a letter or an underscore: others get an
// underscore in front. RestoreToolNames is for the reply.
func LetterToolNames(r Request) Request {
	r.Tools = slices.Clone(r.Tools)
	for i := range r.Tools {
		r.Tools[i].Name = letterName(r.Tools[i].Name)
	}
	r.Messages = slices.Clone(r.Messages)
	for i, m := range r.Messages {
		parts := slices.Clone(m.Parts)
		for n, p := range parts {
			switch p := p.(type) {
			case agent.ToolCall:
				p.Name = letterName(p.Name)
				parts[n] = p
			case agent.ToolResult:
				p.Name = letterName(p.Name)
				parts[n] = p
			}
		}
		r.Messages[i].Parts = parts
	}
	return r
}

func letterName(name string) string {
	if legal := ToolName(name); legal[0] == '-' || legal[0] >= '0' && legal[0] <= '9' {
		return ToolName("_" + legal)
	}
	return name
}

// RestoreToolNames returns a yield function. It gives the calls of a reply the names of their tools in the request.
func RestoreToolNames(tools []Tool, yield func(Event, error) bool) func(Event, error) bool {
	return func(e Event, err error) bool {
		if call, ok := e.(CallStart); ok && !slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == call.Name }) {
			at := slices.IndexFunc(tools, func(t Tool) bool { return letterName(t.Name) == call.Name })
			if at >= 0 {
				call.Name = tools[at].Name
				e = call
			}
		}
		return yield(e, err)
	}
}

// PlainText returns the text of a JSON string and any other JSON unchanged, null included.
func PlainText(value json.RawMessage) string {
	var text *string
	if json.Unmarshal(value, &text) == nil && text != nil {
		return *text
	}
	return string(value)
}

// DecodeDataURL returns the bytes of a data: URL (RFC 2397).
func DecodeDataURL(source string) (data []byte, ok bool) {
	header, body, found := strings.Cut(source, ",")
	if !found || !strings.HasPrefix(header, "data:") {
		return nil, false
	}
	plain, err := url.PathUnescape(body)
	if err != nil {
		return nil, false
	}
	if !strings.HasSuffix(header, ";base64") {
		return []byte(plain), true
	}
	// Both alphabets occur in practice, with and without padding.
	plain = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(plain, "="))
	data, err = base64.RawStdEncoding.DecodeString(plain)
	return data, err == nil
}

// CallIDs assigns unique ids to the calls of one reply.
type CallIDs struct {
	messages int
	used     map[string]bool
}

// NewCallIDs starts a reply to a conversation of this many messages.
func NewCallIDs(messages int) *CallIDs {
	return &CallIDs{messages: messages, used: make(map[string]bool)}
}

// Assign returns the id of the call at index. It is the provider's id, given, unless that is empty or already
// used in this reply.
func (c *CallIDs) Assign(given string, index int) string {
	id := given
	if id == "" {
		id = fmt.Sprintf("call_%d_%d", c.messages, index)
	}
	for first, n := id, 2; c.used[id]; n++ {
		id = fmt.Sprintf("%s_%d", first, n)
	}
	c.used[id] = true
	return id
}

// FinishBody adds to the body of a request what makes it a stream, and the request's options. It removes the members in omit, which the
// server is known to refuse. Options other than a JSON object give provider_invalid_request.
func FinishBody(body, options json.RawMessage, omit ...string) (json.RawMessage, error) {
	const stream = `"stream":true}`
	object := bytes.TrimSpace(body)
	if len(object) < 2 || object[0] != '{' || object[len(object)-1] != '}' {
		return nil, InvalidRequest("cannot encode the request: %.100s", body)
	}
	streamed := append(slices.Clone(object[:len(object)-1]), ("," + stream)...)
	if len(object) == len("{}") {
		streamed = []byte("{" + stream)
	}
	merged, err := MergeOptions(streamed, options)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if len(omit) == 0 || json.Unmarshal(merged, &members) != nil {
		return merged, nil
	}
	before := len(members)
	for _, name := range omit {
		delete(members, name)
	}
	if len(members) == before {
		return merged, nil // equal requests have equal bytes
	}
	return json.Marshal(members)
}

// MergeOptions adds the options of a request to its body. Objects are merged recursively; other members of the
// body are never replaced. Options other than a JSON object give provider_invalid_request.
func MergeOptions(body, options json.RawMessage) (json.RawMessage, error) {
	if len(options) == 0 {
		return body, nil
	}
	merged, ok := mergeObjects(body, options)
	if !ok {
		return nil, InvalidRequest("the provider options are not a JSON object: %.100s", options)
	}
	return merged, nil
}

func mergeObjects(body, options json.RawMessage) (json.RawMessage, bool) {
	var bodyMembers, optionMembers map[string]json.RawMessage
	if json.Unmarshal(body, &bodyMembers) != nil || json.Unmarshal(options, &optionMembers) != nil ||
		bodyMembers == nil || optionMembers == nil {
		return body, false
	}
	for key, value := range optionMembers {
		if current, set := bodyMembers[key]; set {
			value, _ = mergeObjects(current, value) // the body's value wins unless both are objects
		}
		bodyMembers[key] = value
	}
	merged, err := json.Marshal(bodyMembers)
	return merged, err == nil
}

// InvalidRequest returns the error of a request that cannot be sent.
func InvalidRequest(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// InvalidResponse returns the error of a response that violates the protocol.
func InvalidResponse(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidResponse, Retryable: true, Message: fmt.Sprintf(format, args...)}
}

// Truncated returns the error of a stream that ended in the middle of its reply.
func Truncated(missing string) *Error {
	return &Error{
		Code: CodeUnavailable, Retryable: true,
		Message: "the reply was truncated: the stream ended without " + missing,
	}
}

// ContextTooLong adds advice to a provider's message about a conversation that exceeds the model's context.
func ContextTooLong(message string) string {
	return strings.TrimRight(message, ". ") + ". The conversation exceeds the model's context: " +
		"give the agent a context policy or a model with a larger context, or send shorter messages"
}

// Redact returns err without the key.
func Redact(err error, key string) error {
	e, ok := err.(*Error) //nolint:errorlint // only the runtime wraps it, and it has no key
	if !ok || key == "" {
		return err
	}
	clean := *e
	clean.Message = strings.ReplaceAll(e.Message, key, "[key]")
	if e.Err != nil && strings.Contains(e.Err.Error(), key) {
		clean.Err = nil
	}
	return &clean
}
