package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// State is the custom state of a session: a decoded JSON object with numbers as json.Number.
type State map[string]any

// OpKind is a kind of write to the custom state.
type OpKind string

// Kinds of writes.
const (
	OpReplace OpKind = "replace"
	OpAppend  OpKind = "append"
	OpDelete  OpKind = "delete"
)

// Op is one write to a top-level key of the custom state.
type Op struct {
	Key  string
	Kind OpKind
	// Value is the JSON value of OpReplace, or the JSON array of items of OpAppend.
	Value json.RawMessage
}

// ParseState decodes a state. An empty text is an empty state. Invalid (STATE_INVALID) if it is not a
// JSON object.
func ParseState(text []byte) (State, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return State{}, nil
	}
	value, err := decode(text)
	object, ok := value.(map[string]any)
	if err != nil || !ok {
		return nil, fault.New(fault.Invalid, "STATE_INVALID", "the custom state is not a JSON object")
	}
	return object, nil
}

// Clone returns a deep copy, with values as ParseState decodes them. Invalid (STATE_INVALID) for values
// without JSON.
func (s State) Clone() (State, error) {
	if len(s) == 0 {
		return State{}, nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fault.New(fault.Invalid, "STATE_INVALID", "the custom state cannot be written as JSON: %v", err)
	}
	return ParseState(text)
}

// Diff returns the writes from before to after, sorted by key. An array with new items at its end is
// appended to. Both states must come from ParseState or Clone.
func Diff(before, after State) []Op {
	keys := maps.Clone(before)
	if keys == nil {
		keys = State{}
	}
	maps.Copy(keys, after)
	var ops []Op
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, had := before[key]
		is, has := after[key]
		switch {
		case !has:
			ops = append(ops, Op{Key: key, Kind: OpDelete})
		case had && equal(was, is):
		default:
			ops = append(ops, writeOf(key, was, is))
		}
	}
	return ops
}

func writeOf(key string, was, is any) Op {
	old, wasArray := was.([]any)
	grown, isArray := is.([]any)
	if wasArray && isArray && len(old) > 0 && len(grown) > len(old) && equal(old, grown[:len(old)]) {
		return Op{Key: key, Kind: OpAppend, Value: marshal(grown[len(old):])}
	}
	return Op{Key: key, Kind: OpReplace, Value: marshal(is)}
}

// Apply returns the state after the writes, as the state service applies them when a step commits. s
// does not change.
func (s State) Apply(ops []Op) (State, error) {
	after := maps.Clone(s)
	if after == nil {
		after = State{}
	}
	for _, op := range ops {
		if op.Kind == OpDelete {
			delete(after, op.Key)
			continue
		}
		value, err := decode(op.Value)
		if err != nil {
			return nil, fault.New(fault.Invalid, "STATE_INVALID", "the write to %q is not JSON: %v", op.Key, err)
		}
		if op.Kind == OpAppend {
			value = appendItems(after[op.Key], value)
		}
		after[op.Key] = value
	}
	return after, nil
}

// Patch returns the writes as an RFC 6902 patch of the state.
func (s State) Patch(ops []Op) (json.RawMessage, error) {
	type operation struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value,omitempty"`
	}
	var patch []operation
	state := s
	for _, op := range ops {
		path := "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(op.Key)
		was, had := state[op.Key]
		_, array := was.([]any)
		switch {
		case op.Kind == OpDelete && had:
			patch = append(patch, operation{Op: "remove", Path: path})
		case op.Kind == OpDelete: // there is nothing to remove
		case op.Kind == OpAppend && array: // one item after another
			var items []json.RawMessage
			if err := json.Unmarshal(op.Value, &items); err != nil {
				return nil, fmt.Errorf("the items for %q: %w", op.Key, err)
			}
			for _, item := range items {
				patch = append(patch, operation{Op: "add", Path: path + "/-", Value: item})
			}
		default:
			patch = append(patch, operation{Op: "add", Path: path, Value: op.Value}) // add replaces an existing member
		}
		next, err := state.Apply([]Op{op})
		if err != nil {
			return nil, err
		}
		state = next
	}
	return json.Marshal(patch)
}

// appendItems appends items to an array. They replace any other value.
func appendItems(was, items any) any {
	list, _ := items.([]any)
	old, _ := was.([]any)
	return append(append([]any{}, old...), list...) // never nil, which would be null
}

// decode decodes one JSON value, with numbers as json.Number.
func decode(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more text after the value")
	}
	return value, nil
}

func equal(a, b any) bool { return bytes.Equal(marshal(a), marshal(b)) }

func marshal(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil { // values decoded from JSON always marshal
		panic(fmt.Sprintf("agent: a state has no JSON: %v", err))
	}
	return text
}
