package agent

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// GetState reads the custom state of a call into a T, as encoding/json does; keys that
// T does not have are left out. Invalid (STATE_INVALID) where it does not fit.
func GetState[T any](call *Call) (T, error) {
	return readState[T](call.State())
}

// UpdateState changes the custom state of a call through a T. Of the keys, those are
// written that change has changed: keys that T does not have stay, and one that
// T leaves out since it became empty (omitempty, omitzero) is deleted. Faults are those of
// Host.Update, and Invalid (STATE_INVALID) where the state does not fit T or T is no
// object. An error of change undoes it and is returned.
func UpdateState[T any](call *Call, change func(*T) error) error {
	return call.Update(func(draft State) error {
		typed, err := readState[T](draft)
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
		return write(draft, before, after)
	})
}

// write puts what differs into the draft.
func write(draft State, before, after map[string]json.RawMessage) error {
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

func readState[T any](state State) (T, error) {
	var typed T
	if err := decodeInto(marshal(state), &typed); err != nil {
		return typed, fault.New(fault.Invalid, "STATE_INVALID", "the custom state cannot be read as %v: %v", reflect.TypeFor[T](), err)
	}
	return typed, nil
}

func members(typed any) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(typed)
	if err != nil {
		return nil, fault.New(fault.Invalid, "STATE_INVALID", "the custom state cannot be written as JSON: %v", err)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return nil, fault.New(fault.Invalid, "STATE_INVALID", "a %T is no JSON object", typed)
	}
	return object, nil
}
