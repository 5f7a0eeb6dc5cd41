package agent

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// GetState decodes the custom state of a call into a T. Keys that T does not have are ignored. Invalid
// (STATE_INVALID) if the state does not fit T.
func GetState[T any](call *Call) (T, error) {
	return DecodeState[T](call.State())
}

// DecodeState decodes a custom state into a T, for example RunView.State or the State of a HookCall. It ignores keys that T
// does not have. Invalid (STATE_INVALID) if the state does not fit T.
func DecodeState[T any](state State) (T, error) {
	var typed T
	text, err := json.Marshal(state)
	if err == nil {
		err = decodeInto(text, &typed)
	}
	if err != nil {
		return typed, fault.New(fault.Invalid, "STATE_INVALID", "the custom state cannot be read as %v: %v", reflect.TypeFor[T](), err)
	}
	return typed, nil
}

// UpdateState changes the custom state of a call through a T. Only the keys that change has modified
// are written: keys that T does not have stay, and a key is deleted if its field became empty and has
// omitempty or omitzero. If change returns an error, UpdateState drops the change and returns the
// error.
//
// Faults are those of Host.Update, and Invalid (STATE_INVALID) if the state does not fit T, or T is
// not a JSON object.
func UpdateState[T any](call *Call, change func(*T) error) error {
	return call.Update(func(draft State) error {
		typed, err := DecodeState[T](draft)
		if err != nil {
			return err
		}
		before, err := members(typed)
		if err != nil {
			return err
		}
		if err := change(&typed); err != nil {
			return err
		}
		after, err := members(typed)
		if err != nil {
			return err
		}
		return writeChanges(draft, before, after)
	})
}

// writeChanges writes the members that differ into the draft.
func writeChanges(draft State, before, after map[string]json.RawMessage) error {
	for key := range before {
		if _, still := after[key]; !still {
			delete(draft, key)
		}
	}
	for key, value := range after {
		if was, had := before[key]; had && bytes.Equal(was, value) {
			continue
		}
		decoded, err := decode(value)
		if err != nil {
			return fault.New(fault.Invalid, "STATE_INVALID", "the value of %q is not JSON: %v", key, err)
		}
		draft[key] = decoded
	}
	return nil
}

func members(typed any) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(typed)
	if err != nil {
		return nil, fault.New(fault.Invalid, "STATE_INVALID", "the custom state cannot be written as JSON: %v", err)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return nil, fault.New(fault.Invalid, "STATE_INVALID", "a %T is not a JSON object", typed)
	}
	return object, nil
}
