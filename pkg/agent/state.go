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

// State is the custom state of a session: a JSON object, as encoding/json decodes
// it, with numbers as json.Number.
type State map[string]any

// OpKind is a kind of write to the custom state.
type OpKind string

// The kinds.
const (
	OpReplace OpKind = "replace"
	OpAppend  OpKind = "append"
	OpDelete  OpKind = "delete"
)

// Op is one write to a top-level key of the custom state.
type Op struct {
	Key  string
	Kind OpKind
	// Value is the JSON value of OpReplace, and the JSON array with the items of OpAppend.
	Value json.RawMessage
}

// ParseState reads a state. No text is the empty state. Invalid (STATE_INVALID).
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

// Clone gives a deep copy in which every value is as ParseState makes it. Invalid
// (STATE_INVALID) for what JSON cannot express.
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

// Diff gives the writes that make after from before, by key. An array that has only
// grown is appended to. Both are as Clone makes them.
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
			ops = append(ops, written(key, was, is))
		}
	}
	return ops
}

func written(key string, was, is any) Op {
	old, wasArray := was.([]any)
	grown, isArray := is.([]any)
	if wasArray && isArray && len(old) > 0 && len(grown) > len(old) && equal(old, grown[:len(old)]) {
		return Op{Key: key, Kind: OpAppend, Value: marshal(grown[len(old):])}
	}
	return Op{Key: key, Kind: OpReplace, Value: marshal(is)}
}

// Apply gives the state behind the writes, which it does not change. It does what
// the state service does when the step commits.
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
			value = appended(after[op.Key], value)
		}
		after[op.Key] = value
	}
	return after, nil
}

// Patch gives the writes as an RFC 6902 patch of the state.
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
			patch = append(patch, operation{Op: "add", Path: path, Value: op.Value}) // replaces what there is
		}
		next, err := state.Apply([]Op{op})
		if err != nil {
			return nil, err
		}
		state = next
	}
	return json.Marshal(patch)
}

// appended puts items behind an array. They take the place of what is no array.
func appended(was, items any) any {
	list, _ := items.([]any)
	old, _ := was.([]any)
	return append(append([]any{}, old...), list...) // never nil, which would be null
}

// decode reads one JSON value, with numbers as json.Number.
func decode(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the value")
	}
	return value, nil
}

func equal(a, b any) bool { return bytes.Equal(marshal(a), marshal(b)) }

func marshal(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil { // what was decoded from JSON always marshals
		panic(fmt.Sprintf("agent: a state that is not JSON: %v", err))
	}
	return text
}
