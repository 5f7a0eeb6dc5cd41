package model

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// What every provider's wire has in common.

// noArguments are those of a call that needs none.
const noArguments = "{}"

// EncodeArguments makes one JSON value of the text of a call's arguments: {} of blank
// text, a JSON string of text that is not JSON.
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

// ArgumentsObject gives arguments as a JSON object, which servers that parse them insist
// on; what the model gave instead stands in it under "invalid_arguments".
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

// maxToolName is the longest name that every provider takes for the tool of a call.
const maxToolName = 64

// ToolName gives the name of a call's tool as every provider takes it in a conversation: models
// call tools that there are not by names that no tool may have, and a provider would refuse
// each later request of the session for one of them. It is the same one each time.
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

// PlainText gives the text of a JSON string, and other JSON as it is: null is a value too.
func PlainText(value json.RawMessage) string {
	var text *string
	if json.Unmarshal(value, &text) == nil && text != nil {
		return *text
	}
	return string(value)
}

// DecodeDataURL gives the bytes of a data: URL (RFC 2397).
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
	// The alphabet of either kind, with or without padding, occurs in the wild.
	plain = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(plain, "="))
	data, err = base64.RawStdEncoding.DecodeString(plain)
	return data, err == nil
}

// CallIDs gives the calls of one reply ids that tell them apart.
type CallIDs struct {
	messages int
	used     map[string]bool
}

// NewCallIDs begins a reply to a conversation of so many messages.
func NewCallIDs(messages int) *CallIDs {
	return &CallIDs{messages: messages, used: make(map[string]bool)}
}

// Assign gives the id of the call with this index: the provider's, where it gave one
// that no other call of the reply has.
func (i *CallIDs) Assign(given string, index int) string {
	id := given
	if id == "" {
		id = fmt.Sprintf("call_%d_%d", i.messages, index)
	}
	for first, n := id, 2; i.used[id]; n++ {
		id = fmt.Sprintf("%s_%d", first, n)
	}
	i.used[id] = true
	return id
}

// MergeOptions adds the options of a request to its body: members that the body does not
// have, and in objects that both have, optionMembers. Nothing of the body is replaced. It
// refuses options that are not a JSON object: provider_invalid_request.
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
	if json.Unmarshal(body, &bodyMembers) != nil || json.Unmarshal(options, &optionMembers) != nil || bodyMembers == nil || optionMembers == nil {
		return body, false
	}
	for key, value := range optionMembers {
		if current, set := bodyMembers[key]; set {
			value, _ = mergeObjects(current, value) // two values that are not objects: bodyMembers
		}
		bodyMembers[key] = value
	}
	merged, err := json.Marshal(bodyMembers)
	return merged, err == nil
}

// InvalidRequest is the error of a request that cannot be sent.
func InvalidRequest(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// InvalidResponse is the error of an answer that is not the protocol.
func InvalidResponse(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidResponse, Retryable: true, Message: fmt.Sprintf(format, args...)}
}

// Truncated is the error of a stream that ended before its reply did.
func Truncated(missing string) *Error {
	return &Error{
		Code: CodeUnavailable, Retryable: true,
		Message: "the reply was cut off: the stream ended without " + missing,
	}
}

// ContextTooLong adds what to do to the message of a provider that finds the conversation
// too long for the model.
func ContextTooLong(message string) string {
	return strings.TrimRight(message, ". ") + ". The conversation is longer than the model takes: give the agent a context policy, a model with a larger context, or less to say"
}

// Redact gives an error that does not hold the key, whoever repeated it.
func Redact(err error, key string) error {
	e, ok := err.(*Error) //nolint:errorlint // what wraps it is the runtime's, which has no key
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
